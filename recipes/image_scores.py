"""How good a classifier of pictures is: numbers, and tables of classes and of pictures."""

import itertools

from keras_transformers.export.classes import THRESHOLD
from keras_transformers.training import score_classes, score_labels


def score(probabilities, corpus):
    """Scores of a classifier's probabilities on a corpus, and those that are metrics, a dict."""
    if corpus.several:
        scores = score_labels(probabilities, corpus.labels, corpus.classes)
        return scores, {f"test_{name}": value for name, value in scores.numbers().items()}
    scores = score_classes(probabilities, corpus.labels, corpus.classes)
    return scores, {
        "test_top1": 100 * scores.top1,
        "test_top5": 100 * scores.top5,
        "test_calibration_error": scores.calibration_error,
    }


def in_words(probabilities, corpus):
    """What is true of each picture, and what is said of it: two lists of str, commas between."""
    if corpus.several:
        rows = (corpus.labels, probabilities >= THRESHOLD)
        return [[", ".join(itertools.compress(corpus.classes, row)) for row in of] for of in rows]
    return [[corpus.classes[i] for i in of] for of in (corpus.labels, probabilities.argmax(1))]


def write_tables(folder, scores, probabilities, corpus):
    """Writes `classes.tsv`, and `predictions.tsv` with the most probable class's probability."""
    header = ["class", "images", "precision", "recall", "f1"]
    folder.write_table("classes.tsv", header, [list(row.values()) for row in scores.table])
    most = [f"{each:.6f}" for each in probabilities.max(axis=1)]
    folder.write_table(
        "predictions.tsv",
        ["labels" if corpus.several else "label", "predicted", "probability"],
        zip(*in_words(probabilities, corpus), most, strict=True),
    )
