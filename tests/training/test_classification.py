"""Claims about scores of a classifier."""

import numpy as np
import pytest

from keras_transformers.training import (
    calibration_error,
    classification_accuracy,
    classification_loss,
    score_classes,
    score_labels,
    several_hot,
)

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 7, 200)
LOGITS = RNG.normal(size=(200, 7)) + 2 * np.eye(7)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
CLASSES = list("abcdefg")


def test_scores_are_those_counted_by_hand():
    scores = score_classes(PROBABILITIES, LABELS, CLASSES)
    ranks = [
        list(np.argsort(-row)).index(label)
        for row, label in zip(PROBABILITIES, LABELS, strict=True)
    ]
    assert scores.top1 == np.mean([rank == 0 for rank in ranks])
    assert scores.top5 == np.mean([rank < 5 for rank in ranks])
    predicted = PROBABILITIES.argmax(1)
    for true in range(7):
        for guess in range(7):
            count = sum((true == LABELS) & (predicted == guess))
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


PROBLEMS = ("single_label_classification", "multi_label_classification")


@pytest.mark.parametrize("problem_type", PROBLEMS)
def test_losses_are_those_of_transformers(problem_type):
    torch = pytest.importorskip("torch")
    logits = RNG.normal(size=(7, 5)).astype("float32") * 3
    labels = np.eye(5, dtype="float32")[RNG.integers(0, 5, 7)]
    if problem_type == "multi_label_classification":
        labels = RNG.integers(0, 2, (7, 5)).astype("float32")
        theirs = torch.nn.BCEWithLogitsLoss()(torch.tensor(logits), torch.tensor(labels))
    else:
        chosen = torch.tensor(labels.argmax(1))
        theirs = torch.nn.CrossEntropyLoss()(torch.tensor(logits), chosen)
    assert float(classification_loss(problem_type)(labels, logits)) == pytest.approx(
        float(theirs), rel=1e-5
    )
    accuracy = classification_accuracy(problem_type)
    accuracy.update_state(labels, logits)
    right = logits.argmax(1) == labels.argmax(1)
    if problem_type == "multi_label_classification":
        right = (logits > 0) == labels
    assert float(accuracy.result()) == pytest.approx(right.mean())


def test_scores_of_several_labels_are_scikit_learns():
    from sklearn import metrics

    names = list("abcd")
    labels = RNG.integers(0, 2, (40, 4))
    labels[:, 3] = 0  # of which there is none
    probabilities = RNG.uniform(size=(40, 4))
    found = score_labels(probabilities, labels, names)
    present = probabilities >= 0.5
    assert found.exact_match == metrics.accuracy_score(labels, present)
    assert found.micro_f1 == pytest.approx(metrics.f1_score(labels, present, average="micro"))
    expected = metrics.f1_score(labels[:, :3], present[:, :3], average="macro")
    assert found.macro_f1 == pytest.approx(expected)
    area = metrics.average_precision_score(labels[:, :3], probabilities[:, :3])
    assert found.mean_average_precision == pytest.approx(area)
    columns = metrics.precision_recall_fscore_support(labels, present, zero_division=0)
    for row, *each in zip(found.table, names, *columns, strict=True):
        assert list(row) == ["class", "images", "precision", "recall", "f1"]
        assert row["class"] == each[0] and row["images"] == each[4]
        assert [row["precision"], row["recall"], row["f1"]] == pytest.approx(each[1:4])


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), r"must be \(n, 2\)"),
        (np.ones((2, 2)), np.full((2, 2), 2), "`labels` 0 and 1"),
        (np.full((2, 2), np.nan), np.ones((2, 2)), "must be finite"),
        (np.ones((0, 2)), np.ones((0, 2)), "Received: shapes"),
    ],
)
def test_wrong_scores_of_labels_are_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        score_labels(probabilities, labels, ["a", "b"])


def test_lists_of_labels_become_zeros_and_ones():
    assert several_hot([[2, 0], [], [1]], 3).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
