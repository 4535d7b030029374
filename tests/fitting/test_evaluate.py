"""Claims about `evaluate`: each row counts, and rows that cannot be right count as errors."""

import numpy as np
import pytest

import keras_transformers
from keras_transformers.tasks.classes import targets_of
from keras_transformers.tasks.fitting import class_scores
from keras_transformers.vision import ImageCorpus, read_folder, read_images
from tests.fitting.test_fitting import FAST, images, loaded, royal, sentences
from tests.pretrained import folders
from tests.slow import slow_except

PROBABILITIES = np.array([[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])


def test_rows_of_unknown_classes_are_errors_of_one_class():
    metrics = pytest.importorskip("sklearn.metrics")
    truth, names = np.array([0, 1, 1, 2, 3]), ["a", "b", "new", "newer"]
    scores = class_scores(PROBABILITIES, truth, names)
    answers = PROBABILITIES.argmax(axis=1)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(truth, answers))
    f1 = metrics.f1_score(truth, answers, average="macro", zero_division=0)
    assert scores["macro_f1"] == pytest.approx(f1)
    assert (scores["rows"], scores["of_unknown_classes"]) == (5, 2)


def test_unknown_labels_are_errors_of_several():
    metrics = pytest.importorskip("sklearn.metrics")
    truth = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]])
    scores = class_scores(PROBABILITIES, truth, ["a", "b", "new"])
    answers = np.pad(PROBABILITIES >= 0.5, ((0, 0), (0, 1))).astype(int)
    assert scores["exact_match"] == pytest.approx(metrics.accuracy_score(truth, answers))
    f1 = metrics.f1_score(truth, answers, average="micro", zero_division=0)
    assert scores["micro_f1"] == pytest.approx(f1)
    assert (scores["rows"], scores["of_unknown_classes"]) == (5, 2)


def test_a_classifier_of_texts_is_scored_on_every_row(tmp_path):
    texts = sentences(40)
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        predictor.fit((texts, royal(texts)), epochs=1, **FAST)
        known = predictor.evaluate((texts, royal(texts)))
        both = predictor.evaluate((texts * 2, royal(texts) + ["new"] * 40))
    assert (known["rows"], known["of_unknown_classes"], known["left_out"]) == (40, 0, 0)
    assert (both["rows"], both["of_unknown_classes"]) == (80, 40)
    assert both["accuracy"] == pytest.approx(known["accuracy"] / 2)


@pytest.mark.slow
def test_a_classifier_of_images_is_scored_on_every_image(tmp_path):
    folder = images(tmp_path / "images")
    with folders.eagerly():
        predictor = loaded("image_classifier", tmp_path / "vit")
        predictor.fit(folder, epochs=1, **FAST)
        known = predictor.evaluate(folder)
        (folder / "light").rename(folder / "new")
        half = predictor.evaluate(folder)
    assert (known["rows"], known["of_unknown_classes"]) == (20, 0)
    assert (half["rows"], half["of_unknown_classes"]) == (20, 10)
    assert half["accuracy"] <= 0.5


def test_evaluate_reads_labels_with_the_separator_of_fit(tmp_path):
    texts = sentences(40)
    rows = [(text, "|".join(w for w in ("king", "queen") if w in text)) for text in texts]
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        predictor.fit(rows, epochs=1, label_separator="|", **FAST)
        assert predictor.labels == ["king", "queen"]
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        for each in (predictor, again):
            assert each.evaluate(rows)["of_unknown_classes"] == 0


def test_unknown_classes_come_after_the_known_ones_of_tables_of_texts_and_images():
    pixels = [np.full((4, 4, 3), number, "uint8") for number in range(3)]
    texts = ["a cat", "a dog", "a hen"]
    rows = {
        "names": ["cat", "dog", "hen"],
        "numbers": [0, None, 1],
        "lists": [[1, 0], [0, 1], [1, 0]],
    }
    expected = {
        "names": (["dog", "cat", "hen"], [1, 0, 2]),
        "numbers": (["0", "1"], [0, 1]),
        "lists": (["ape", "bee"], [0, 1, 0]),
    }
    known = {"names": ["dog"], "numbers": ["0", "1"], "lists": ["ape", "bee"]}
    for kind, labels in rows.items():
        corpus = read_images({"image": pixels, "label": labels}, known[kind], keeps_unknown=True)
        assert (corpus.classes, corpus.labels.tolist()) == expected[kind], kind
        data = {"text": texts, "label": labels}
        problem = "single_label_classification"
        targets = targets_of(data, None, problem, None, known[kind], True, keeps_unknown=True)
        assert (targets.classes, targets.values) == expected[kind], kind


def test_known_classes_of_a_corpus_come_first():
    pixels = np.zeros((3, 4, 4, 3), "uint8")
    corpus = ImageCorpus.from_arrays("toy", pixels, [0, 1, 2], ["a", "c", "d"])
    ordered = corpus.with_first(["d", "b", "a"])
    assert (ordered.classes, ordered.labels.tolist()) == (["d", "b", "a", "c"], [2, 3, 0])
    several = ImageCorpus.from_arrays("toy", pixels[:2], [[1, 0], [1, 1]], ["c", "b"], several=True)
    ordered = several.with_first(["a", "b"])
    assert (ordered.classes, ordered.labels.tolist()) == (["a", "b", "c"], [[0, 0, 1], [0, 1, 1]])


def test_a_validation_folder_may_lack_a_class(tmp_path):
    folder = images(tmp_path / "images", 2)
    (folder / "light").rename(tmp_path / "elsewhere")
    corpus = read_folder(folder, ["dark", "light"])
    assert (corpus.classes, corpus.labels.tolist()) == (["dark", "light"], [0, 0])
    (folder / "light").mkdir()
    assert read_folder(folder, ["dark", "light"]).labels.tolist() == [0, 0]


@pytest.mark.parametrize("model_type", slow_except(folders.SLIDING.keys(), "mistral"))
def test_a_model_with_a_sliding_window_learns_from_texts_in_rows_of_several(model_type, tmp_path):
    """And scores a text in a row with others as it scores the text alone."""
    long = "the king and the queen, to be or not to be, that is the question of the play"
    loaded = keras_transformers.load(folders.sliding(tmp_path, model_type))
    if model_type != "modernbert":  # which masks other words each time
        alone = loaded.evaluate([long])["perplexity"]
        assert loaded.evaluate([long] * 9)["perplexity"] == pytest.approx(alone, rel=1e-5)
    history = loaded.fit([long, "a king", "to be or not"] * 6, epochs=1)
    assert np.isfinite(history["val_loss"]).all()
