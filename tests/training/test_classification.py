"""Claims about scores of a classifier."""

import numpy as np
import pytest

from keras_transformers.training import calibration_error, score_classes

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 7, 200)
LOGITS = RNG.normal(size=(200, 7)) + 2 * np.eye(7)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
CLASSES = list("abcdefg")


def test_scores_are_those_counted_by_hand():
    scores = score_classes(PROBABILITIES, LABELS, CLASSES)
    ranks = [list(np.argsort(-row)).index(label)
             for row, label in zip(PROBABILITIES, LABELS, strict=True)]
    assert scores.top1 == np.mean([rank == 0 for rank in ranks])
    assert scores.top5 == np.mean([rank < 5 for rank in ranks])
    predicted = PROBABILITIES.argmax(1)
    for true in range(7):
        for guess in range(7):
            count = sum((LABELS == true) & (predicted == guess))
            assert scores.confusion[true, guess] == count
    row = scores.table[2]
    right = scores.confusion[2, 2]
    assert row["class"] == "c" and row["images"] == sum(LABELS == 2)
    assert row["precision"] == pytest.approx(right / sum(predicted == 2))
    assert row["recall"] == pytest.approx(right / sum(LABELS == 2))


def test_a_class_that_never_occurs_counts_zero():
    scores = score_classes([[0.9, 0.1, 0.0]] * 4, [0, 0, 1, 1], ["a", "b", "c"])
    assert [row["images"] for row in scores.table] == [2, 2, 0]
    assert scores.top5 == 1.0 and scores.table[2]["f1"] == 0


def test_calibration_error_is_the_sum_over_bins():
    error = 0
    confidence, right = PROBABILITIES.max(1), PROBABILITIES.argmax(1) == LABELS
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert calibration_error(PROBABILITIES, LABELS) == pytest.approx(error, abs=1e-9)


def test_a_perfect_and_certain_classifier_is_calibrated():
    assert calibration_error(np.eye(3), [0, 1, 2]) == 0
    assert calibration_error(np.eye(3), [1, 2, 0]) == 1


@pytest.mark.parametrize(
    ("probabilities", "labels", "complaint"),
    [
        (PROBABILITIES, LABELS[:-1], r"shapes \(200, 7\) and \(199,\)"),
        (PROBABILITIES, LABELS + 1, r"`labels` must lie in \[0, 7\)"),
        (PROBABILITIES * np.nan, LABELS, "must be finite"),
        (PROBABILITIES[:, :6], LABELS % 6, "a column for each of 7 classes"),
    ],
)
def test_what_does_not_fit_is_refused(probabilities, labels, complaint):
    with pytest.raises(ValueError, match=complaint):
        score_classes(probabilities, labels, CLASSES)
