"""Metrics of `model.fit` over real tokens, and scores of classifiers and taggers."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, ProblemType, Scalar, Tensor, Values
from keras_transformers.data.labels import entities_of, mark_entities
from keras_transformers.training.losses import (
    LinearCrossEntropy,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
    TokenResults,
    check_ranks,
    read_labels,
    token_cross_entropy,
    token_weights,
)


class _TokenMean(keras.metrics.Metric):
    """Mean of a value over all real tokens of all batches."""

    def __init__(
        self, ignore_id: int = 0, name: str | None = None, dtype: Any = "float32", **kwargs: Any
    ) -> None:
        # Float32 whatever `floatx` is: a count in bfloat16 ends at 256.
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.ignore_id = ignore_id
        self.total = self.add_weight(name="total", initializer="zeros", dtype=self.dtype)
        self.count = self.add_weight(name="count", initializer="zeros", dtype=self.dtype)

    def values(self, y_true: Tensor, y_pred: Any) -> Tensor:
        """Value of each token, `(batch, length)`."""
        raise NotImplementedError

    def update_state(
        self, y_true: Tensor, y_pred: Any, sample_weight: Tensor | None = None
    ) -> None:
        y_true = ops.convert_to_tensor(y_true)
        if not isinstance(y_pred, TokenResults):  # of a loss that has made no logits
            y_pred = ops.convert_to_tensor(y_pred)
            check_ranks(type(self).__name__, y_true, y_pred)
        weights = token_weights(y_true, self.ignore_id, sample_weight)
        values = ops.cast(self.values(y_true, y_pred), weights.dtype)
        self.total.assign_add(ops.sum(values * weights))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Scalar:
        count = ops.convert_to_tensor(self.count)  # JAX's where() takes no variables
        return self.total / ops.where(count > 0, count, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ignore_id": self.ignore_id}


@keras.saving.register_keras_serializable("keras_transformers")
class MaskedAccuracy(_TokenMean):
    """Share of real tokens whose most probable token is right.

    Args:
        ignore_id: The label that stands for padding.

    Call arguments:
        y_true: Integer labels `(batch, length)`.
        y_pred: Logits `(batch, length, vocab)`.

    Returns:
        A scalar in `[0, 1]`, over all batches since the last reset.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import MaskedAccuracy
    >>> accuracy = MaskedAccuracy()
    >>> accuracy.update_state(np.array([[1, 2, 0]]), np.eye(3)[None, [1, 1, 2]])
    >>> float(accuracy.result())
    0.5
    """

    def __init__(self, ignore_id: int = 0, name: str = "accuracy", **kwargs: Any) -> None:
        super().__init__(ignore_id, name, **kwargs)

    def values(self, y_true: Tensor, y_pred: Any) -> Tensor:
        if isinstance(y_pred, TokenResults):
            return y_pred.right
        labels = (y_true, y_pred.shape[-1], self.ignore_id)
        ids, _, is_wrong = read_labels(type(self).__name__, *labels)
        right = ops.equal(ops.argmax(y_pred, axis=-1), ids)
        return ops.where(is_wrong, math.nan, ops.cast(right, "float32"))


@keras.saving.register_keras_serializable("keras_transformers")
class TokenCrossEntropy(_TokenMean):
    """Cross-entropy of real tokens in nats, without smoothing; its exponential is the perplexity.

    Args:
        ignore_id: The label that stands for padding.

    Call arguments:
        y_true: Integer labels `(batch, length)`.
        y_pred: Logits `(batch, length, vocab)`.

    Returns:
        A scalar, over all batches since the last reset.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import TokenCrossEntropy
    >>> nats = TokenCrossEntropy()
    >>> nats.update_state(np.array([[1, 0]]), np.zeros((1, 2, 5)))
    >>> round(float(np.exp(nats.result())), 4)
    5.0
    """

    def __init__(self, ignore_id: int = 0, name: str = "cross_entropy", **kwargs: Any) -> None:
        super().__init__(ignore_id, name, **kwargs)

    def values(self, y_true: Tensor, y_pred: Any) -> Tensor:
        if isinstance(y_pred, TokenResults):
            return y_pred.nats
        owner = type(self).__name__
        return token_cross_entropy(y_true, y_pred, 0.0, self.ignore_id, owner)[0]


@keras.saving.register_keras_serializable("keras_transformers")
class Perplexity(TokenCrossEntropy):
    """`exp` of the mean cross-entropy of real tokens: among how many tokens a model hesitates.

    Depends on what a token is: compare models with other vocabularies by their perplexity per word,
    `exp(nats / words)`, or their bits per byte, `nats / (bytes ln 2)`, of the same text.

    Args:
        ignore_id: The label that stands for padding.

    Call arguments:
        y_true: Integer labels `(batch, length)`.
        y_pred: Logits `(batch, length, vocab)`.

    Returns:
        A scalar, at least 1, over all batches since the last reset.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import Perplexity
    >>> perplexity = Perplexity()
    >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 5)))
    >>> round(float(perplexity.result()), 4)
    5.0
    """

    def __init__(self, ignore_id: int = 0, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(ignore_id, name, **kwargs)

    def result(self) -> Scalar:
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_transformers")
class LabelAccuracy(keras.metrics.Mean):
    """Share of right decisions where there can be several labels, each present or not.

    A label is taken to be present where its logit is positive, its probability above a half.

    Call arguments:
        y_true: 0 and 1 `(batch, classes)`.
        y_pred: Logits `(batch, classes)`.
        sample_weight: Optional weights `(batch,)`.

    Returns:
        A scalar in `[0, 1]`, over all batches since the last reset.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import LabelAccuracy
    >>> accuracy = LabelAccuracy()
    >>> accuracy.update_state(np.array([[1, 0]]), np.array([[2.5, 0.1]]))
    >>> float(accuracy.result())
    0.5
    """

    def __init__(self, name: str = "accuracy", dtype: Any = "float32", **kwargs: Any) -> None:
        super().__init__(name=name, dtype=dtype, **kwargs)  # whatever `floatx` is

    def update_state(  # type: ignore[override]
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        there = ops.cast(y_true, "float32") > 0.5
        right = ops.equal(ops.convert_to_tensor(y_pred) > 0, there)
        super().update_state(ops.mean(ops.cast(right, "float32"), axis=-1), sample_weight)


# Entries of a vocabulary whose logits are too large to be made: 4 bytes for each and each token.
LARGE = 100_000


def token_learning(
    padding_id: int = 0, label_smoothing: float = 0.0, model: Any = None, r_drop: float = 0.0
) -> dict[str, Any]:
    """Loss and metrics of a model that predicts tokens; padding counts for nothing.

    Args:
        padding_id: The label that stands for padding.
        label_smoothing: Share of each label that is moved to the others.
        model: What is trained. One of this library with 100,000 tokens and more gets
            `LinearCrossEntropy`, the same loss without all logits at once.
        r_drop: Weight of R-Drop's second term: the loss is then `RDropCrossEntropy`, for batches
            of `streams.each_row_twice`.

    Returns:
        `loss` and `metrics` for `compile`.

    Raises:
        ValueError: If there are so many tokens, and `r_drop`, which needs all logits.

    Example:
    >>> from keras_transformers.training import token_learning
    >>> [metric.name for metric in token_learning()["metrics"]]
    ['accuracy', 'cross_entropy']
    """
    found = model.output_table() if hasattr(model, "output_table") else None
    large = found is not None and found[0].vocab_size >= LARGE
    if large and r_drop:
        raise ValueError(
            f"token_learning: `r_drop` must be 0 for a model with {LARGE:,} tokens and more, whose "
            f"logits are never made all at once. Received: r_drop={r_drop}"
        )
    kind = LinearCrossEntropy if large else SmoothedCrossEntropy
    loss = kind(label_smoothing, padding_id)
    return {
        "loss": RDropCrossEntropy(r_drop, label_smoothing, padding_id) if r_drop else loss,
        "metrics": [MaskedAccuracy(padding_id), TokenCrossEntropy(padding_id)],
    }


SEVERAL = "multi_label_classification"


def classification_loss(
    problem_type: ProblemType | None = None, label_smoothing: float = 0.0
) -> keras.losses.Loss:
    """The loss of a classifier, from its logits and labels of 0 and 1, both `(batch, classes)`.

    Cross-entropy of a softmax; for "multi_label_classification" the mean over the labels of binary
    cross-entropies, one sigmoid each. `transformers` trains by the same for the same
    `problem_type`.

    Args:
        problem_type: Of the model.
        label_smoothing: Share of each label that is moved to the others.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import classification_loss
    >>> loss = classification_loss("multi_label_classification")
    >>> round(float(loss(np.array([[1.0, 1.0, 0.0]]), np.zeros((1, 3)))), 4)  # ln 2
    0.6931
    """
    kind = keras.losses.CategoricalCrossentropy
    if problem_type == SEVERAL:
        kind = keras.losses.BinaryCrossentropy
    return kind(from_logits=True, label_smoothing=label_smoothing, dtype="float32")


def classification_accuracy(problem_type: ProblemType | None = None) -> keras.metrics.Metric:
    """A metric "accuracy" of the same: of the most probable class, or of each label's yes or no.

    Args:
        problem_type: Of the model.

    Example:
    >>> from keras_transformers.training import classification_accuracy
    >>> classification_accuracy().name, type(classification_accuracy("multi_label_classification"))
    ('accuracy', <class 'keras_transformers.training.metrics.LabelAccuracy'>)
    """
    if problem_type == SEVERAL:
        return LabelAccuracy()
    return keras.metrics.CategoricalAccuracy("accuracy", dtype="float32")


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
    confusion: Array
    table: list[dict[str, Any]]


def calibration_error(probabilities: Values, labels: Values, bins: int = 15) -> float:
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
    positions = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(positions, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def score_classes(
    probabilities: Values, labels: Values, classes: Sequence[str]
) -> ClassificationScores:
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
    metrics = _sklearn_metrics("score_classes")
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


@dataclasses.dataclass(frozen=True)
class LabelScores:
    """Scores where there can be several labels at once, each present from a half on.

    Args:
        exact_match: Share of examples of which all labels are right.
        micro_f1, macro_f1: F1 of all decisions together, and the mean of the labels'.
        mean_average_precision: Mean over labels of the area under precision and recall.
        table: A dict for each label: class, images, precision, recall, f1.

    Example:
    >>> from keras_transformers.training import score_labels
    >>> round(score_labels([[0.9, 0.7]], [[1, 0]], ["cat", "dog"]).micro_f1, 3)
    0.667
    """

    exact_match: float
    micro_f1: float
    macro_f1: float
    mean_average_precision: float
    table: list[dict[str, Any]]

    def numbers(self) -> dict[str, float]:
        """Dict of the name of each score of the whole to its number."""
        found = dataclasses.asdict(self)
        return {name: number for name, number in found.items() if name != "table"}


def score_labels(probabilities: Values, labels: Values, classes: Sequence[str]) -> LabelScores:
    """Scores probabilities of labels, of which several can be present.

    Args:
        probabilities: `(n, classes)`, each from 0 to 1.
        labels: 0 and 1 `(n, classes)`.
        classes: Names of the labels.

    Returns:
        `LabelScores`; a label that no example has counts in none of the means.

    Raises:
        ValueError: If shapes do not fit, a label is not 0 or 1, or a probability is not finite.
        ImportError: If scikit-learn, which counts, is not installed.

    Example:
    >>> from keras_transformers.training import score_labels
    >>> score_labels([[0.9, 0.1], [0.2, 0.8]], [[1, 0], [1, 1]], ["cat", "dog"]).exact_match
    0.5
    """
    metrics = _sklearn_metrics("score_labels")
    probabilities, labels = np.asarray(probabilities, "float64"), np.asarray(labels)
    fits = probabilities.ndim == 2 and probabilities.shape == labels.shape == (
        len(labels),
        len(classes),
    )
    if not fits or not len(labels) or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            f"score_labels: `probabilities` must be (n, {len(classes)}), and `labels` 0 and 1 of "
            f"the same shape. Received: shapes {probabilities.shape} and {labels.shape}"
        )
    if not np.isfinite(probabilities).all():
        raise ValueError("score_labels: `probabilities` must be finite.")
    present = (probabilities >= 0.5).astype(int)
    found, there, right = (each.sum(axis=0) for each in (present, labels, labels * present))
    columns = [
        right / np.maximum(found, 1), right / np.maximum(there, 1),
        2 * right / np.maximum(found + there, 1), there,
    ]  # fmt: skip
    known = labels.any(axis=0)
    areas = [
        metrics.average_precision_score(labels[:, i], probabilities[:, i])
        for i in np.flatnonzero(known)
    ]
    rows = zip(classes, *(column.tolist() for column in columns), strict=True)
    return LabelScores(
        exact_match=float((labels == present).all(axis=1).mean()),
        micro_f1=float(2 * right.sum() / max(found.sum() + there.sum(), 1)),
        macro_f1=float(np.mean(columns[2][known])) if known.any() else 0.0,
        mean_average_precision=float(np.mean(areas)) if areas else 0.0,
        table=[
            {"class": name, "images": images, "precision": p, "recall": r, "f1": f}
            for name, p, r, f, images in rows
        ],
    )


def _sklearn_metrics(caller: str) -> Any:
    with needed_by(caller):
        from sklearn import metrics  # only where something is scored
    return metrics


def _checked(probabilities: Values, labels: Values) -> tuple[Array, Array]:
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


@dataclasses.dataclass(frozen=True)
class TagScores:
    """How good tags are.

    Args:
        accuracy: Share of words with the right tag.
        precision, recall, f1: Of whole entities, those of all types together: right ones have the
            right words and type. None where tags mark no entities.

    Example:
    >>> from keras_transformers.training import TagScores
    >>> TagScores(0.5).numbers()
    {'accuracy': 0.5}
    """

    accuracy: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None

    def numbers(self) -> dict[str, float]:
        """Dict of the name of each score that there is to its number."""
        found = dataclasses.asdict(self)
        return {name: number for name, number in found.items() if number is not None}


def score_tags(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> TagScores:
    """Scores tags of sentences.

    Entities are those of `entities.entities_of`, and the scores are `seqeval`'s, and with it those
    of the shared tasks of CoNLL. They are 0 where nothing is there to divide by.

    Args:
        found: The tags of each sentence, lists of str; "" for a word that has none.
        expected: The right ones, of as many words.

    Returns:
        `TagScores`.

    Raises:
        ValueError: If there are no words, or not as many of both.

    Example:
    >>> from keras_transformers.training import score_tags
    >>> scores = score_tags([["B-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "B-LOC"]])
    >>> scores.f1, round(scores.accuracy, 2)
    (0.5, 0.67)
    """
    sizes = [[len(sentence) for sentence in each] for each in (found, expected)]
    if sizes[0] != sizes[1] or not sum(sizes[1]):
        raise ValueError(
            "score_tags: `found` and `expected` must have tags for the same words. Received: "
            f"{sum(sizes[0])} in {len(found)} sentences and {sum(sizes[1])} in {len(expected)}"
        )
    pairs = [*zip(found, expected, strict=True)]
    right = sum(a == b for one, other in pairs for a, b in zip(one, other, strict=True))
    accuracy = right / sum(sizes[1])
    if not mark_entities({tag for both in pairs for tags in both for tag in tags if tag}):
        return TagScores(accuracy)
    numbers = [0, 0, 0]
    for one, other in pairs:
        entities = {*entities_of(one)}, {*entities_of(other)}
        for i, those in enumerate((entities[0] & entities[1], *entities)):
            numbers[i] += len(those)
    both, ours, theirs = numbers
    return TagScores(
        accuracy, both / max(ours, 1), both / max(theirs, 1), 2 * both / max(ours + theirs, 1)
    )
