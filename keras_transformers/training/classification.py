"""How good a classifier is: accuracy, calibration, and each class on its own."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ClassificationScores:
    """Scores of class probabilities on a labelled set.

    Args:
        top1, top5: Share of examples whose label is the most probable class, or one of the five
            most probable.
        calibration_error: Expected calibration error, see `calibration_error`.
        confusion: Counts `(classes, classes)`: true class, then predicted class.
        table: A dict for each class: class, images, precision, recall, f1.

    Example:
    >>> from keras_transformers.training import score_classes
    >>> score_classes([[1.0, 0.0]], [0], ["cat", "dog"]).table[0]["recall"]
    1.0
    """

    top1: float
    top5: float
    calibration_error: float
    confusion: np.ndarray
    table: list


def calibration_error(probabilities, labels, bins=15):
    """Expected calibration error: how far confidence is from accuracy, on average.

    `sum over bins of n_b / n |accuracy_b - confidence_b|` with the probability of the predicted
    class in `bins` equal intervals (Guo et al. 2017, https://arxiv.org/abs/1706.04599, eq. 5).

    Args:
        probabilities: `(n, classes)`, rows that sum to 1.
        labels: Integers `(n,)`.
        bins: Number of intervals.

    Returns:
        A float in [0, 1].

    Example:
    >>> from keras_transformers.training import calibration_error
    >>> round(calibration_error([[0.8, 0.2], [0.8, 0.2]], [0, 1]), 6)  # 80 % sure, 50 % right
    0.3
    """
    probabilities, labels = _checked(probabilities, labels)
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    places = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(places, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def score_classes(probabilities, labels, classes):
    """Scores class probabilities against labels.

    Args:
        probabilities: `(n, classes)`, rows that sum to 1.
        labels: Integers `(n,)`.
        classes: Names of the classes.

    Returns:
        `ClassificationScores`.

    Raises:
        ValueError: If shapes do not fit, a label is out of range, or a probability is not finite.
        ImportError: If scikit-learn, which counts, is not installed.

    Example:
    >>> from keras_transformers.training import score_classes
    >>> scores = score_classes([[0.9, 0.1], [0.6, 0.4]], [0, 1], ["cat", "dog"])
    >>> scores.top1, scores.confusion.tolist()
    (0.5, [[1, 0], [1, 0]])
    """
    try:
        from sklearn import metrics  # only where something is scored
    except ImportError as error:
        raise ImportError(
            "score_classes: scoring needs scikit-learn; `pip install scikit-learn`."
        ) from error

    probabilities, labels = _checked(probabilities, labels)
    if probabilities.shape[1] != len(classes):
        raise ValueError(
            f"score_classes: `probabilities` must have a column for each of {len(classes)} "
            f"classes. Received: shape {probabilities.shape}"
        )
    predicted = probabilities.argmax(axis=1)
    every = np.arange(len(classes))
    of_classes = metrics.precision_recall_fscore_support(
        labels, predicted, labels=every, zero_division=0
    )
    rows = zip(classes, *(column.tolist() for column in of_classes), strict=True)
    best = np.argsort(-probabilities, axis=1)[:, :5]
    return ClassificationScores(
        top1=float(np.mean(predicted == labels)),
        top5=float(np.mean((best == labels[:, None]).any(axis=1))),
        calibration_error=calibration_error(probabilities, labels),
        confusion=metrics.confusion_matrix(labels, predicted, labels=every),
        table=[
            {"class": name, "images": images, "precision": p, "recall": r, "f1": f}
            for name, p, r, f, images in rows
        ],
    )


def _checked(probabilities, labels):
    probabilities, labels = np.asarray(probabilities, "float64"), np.asarray(labels)
    fit = probabilities.ndim == 2 and labels.shape == probabilities.shape[:1] and len(labels)
    if not fit or labels.dtype.kind not in "iu" or not np.isfinite(probabilities).all():
        raise ValueError(
            "`probabilities` must be finite, of shape (n, classes), and `labels` integers (n,). "
            f"Received: shapes {probabilities.shape} and {labels.shape} ({labels.dtype})"
        )
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        raise ValueError(
            f"`labels` must lie in [0, {probabilities.shape[1]}). "
            f"Received: {labels.min()} to {labels.max()}"
        )
    return probabilities, labels
