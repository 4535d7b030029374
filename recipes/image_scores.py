"""How good a classifier of images is: numbers, and tables of classes and of images."""

import itertools

from keras_transformers.tasks.classes import THRESHOLD
from keras_transformers.training import score_classes, score_labels


def score(probabilities, corpus, history):
    """Scores of a classifier's probabilities on a corpus, and those that are metrics, a dict."""
    scores, metrics = _scores(probabilities, corpus)
    for row in scores.table:
        print("  {class:20} precision {precision:.3f}  recall {recall:.3f}".format(**row))
    last = history["val_accuracy"][-1]
    name, scale = ("valid_accuracy", 1) if corpus.several else ("valid_top1", 100)
    return scores, metrics | {"test_examples": len(corpus.labels), name: scale * last}


def _scores(probabilities, corpus):
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
    """What is true of each image, and what is said of it: two lists of str, commas between."""
    if corpus.several:
        rows = (corpus.labels, probabilities >= THRESHOLD)
        return [[", ".join(itertools.compress(corpus.classes, row)) for row in of] for of in rows]
    return [[corpus.classes[i] for i in of] for of in (corpus.labels, probabilities.argmax(1))]


def tables(folder, scores, probabilities, corpus):
    """What is written: dict of name -> function of the path, for each class and each image."""

    def classes(path):
        header = ["class", "images", "precision", "recall", "f1"]
        folder.write_table(path.name, header, [list(row.values()) for row in scores.table])

    def predictions(path):  # with the probability of the most probable class
        header = ["labels" if corpus.several else "label", "predicted", "probability"]
        most = [f"{each:.6f}" for each in probabilities.max(axis=1)]
        rows = zip(*in_words(probabilities, corpus), most, strict=True)
        folder.write_table(path.name, header, rows)

    return {"classes.tsv": classes, "predictions.tsv": predictions}


def show_use(folder, corpus, preprocessing):
    """Writes the first image of a corpus, and prints how its class or labels are asked for."""
    image = corpus.select([0]).decoded(preprocessing).images[0]
    wanted = "labels" if corpus.several else "label"
    example = folder.write_example(image)
    folder.show_use(example, f'{{}}["{wanted}"]', lambda answer: answer[wanted])
