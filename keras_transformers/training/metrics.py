"""Metrics over real tokens."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformers.core.types import Scalar, Tensor
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
