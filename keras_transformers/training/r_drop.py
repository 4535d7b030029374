"""R-Drop: two passes with dropout of their own are kept close to one another."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.assertions import require_values
from keras_transformers.training.losses import SmoothedCrossEntropy


@keras.saving.register_keras_serializable("keras_transformers")
class RDropCrossEntropy(SmoothedCrossEntropy):
    """Label-smoothed cross-entropy, and how far two passes through dropout are from one another.

    `(CE_1 + CE_2 + alpha (KL(p_1 || p_2) + KL(p_2 || p_1)) / 2) / 2` for each real token (Liang et
    al. 2021, https://arxiv.org/abs/2106.14448, equations 1 to 4, halved, so that the learning rate
    of `SmoothedCrossEntropy` serves). Both passes lie in one batch: row `2 n` and row `2 n + 1` are
    the same example, as `streams.each_row_twice` makes them, for validation data too. Without
    dropout, as in validation, the second term is 0.

    Args:
        alpha: Weight of the second term. The paper has 5 for translation.
        label_smoothing, ignore_id, reduction: Of `SmoothedCrossEntropy`.

    Call arguments:
        y_true: Integer labels `(2 batch, length)`.
        y_pred: Logits `(2 batch, length, vocab)`.
        sample_weight: Optional weights `(2 batch,)` or `(2 batch, length)`.

    Returns:
        A scalar, the weighted mean over real tokens.

    Raises:
        ValueError: If `alpha` is not positive, the number of rows is odd, the labels of a pair
            differ, or as in `SmoothedCrossEntropy`. A graph of TensorFlow asserts that the labels
            are the same; under XLA and on JAX the loss of a pair whose labels differ is NaN.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import RDropCrossEntropy
    >>> logits = np.array([[[0.0, 1.0]], [[1.0, 0.0]]], "float32")  # of two passes
    >>> loss = RDropCrossEntropy(alpha=1.0, label_smoothing=0.0)
    >>> round(float(loss(np.array([[1], [1]]), logits)), 4)
    1.0443
    """

    def __init__(
        self,
        alpha: float = 1.0,
        label_smoothing: float = 0.1,
        ignore_id: int = 0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "r_drop_cross_entropy",
    ) -> None:
        super().__init__(label_smoothing, ignore_id, reduction, name)
        if alpha <= 0:
            raise ValueError(f"RDropCrossEntropy: `alpha` must be positive. Received: {alpha}")
        self.alpha = alpha

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Loss of each token, unreduced."""
        rows = y_pred.shape[0]
        if rows is not None and rows % 2:
            raise ValueError(
                "RDropCrossEntropy: `y_pred` must have each example in two rows, one after the "
                f"other (see `streams.each_row_twice`). Received: {rows} rows"
            )
        length, vocab = ops.shape(y_pred)[1], y_pred.shape[-1]
        pairs = ops.reshape(y_true, (-1, 2, length))
        is_same = pairs[:, :1] == pairs[:, 1:]
        is_same = ops.logical_and(is_same, ops.ones_like(pairs, "bool"))
        pairs = require_values(
            pairs,
            is_same,
            f"{type(self).__name__}: rows `2 n` and `2 n + 1` must be the same example, with the "
            "same labels, in validation data too (see `streams.each_row_twice`).",
        )
        y_true = ops.reshape(pairs, (-1, length))
        real = ops.not_equal(y_true, self.ignore_id)
        # Not the loss alone: 0 times a NaN at padding would reach the gradient.
        logits = ops.where(real[..., None], ops.cast(y_pred, "float32"), 0.0)
        log_p = ops.log_softmax(logits, axis=-1)
        first, second = ops.unstack(ops.reshape(log_p, (-1, 2, length, vocab)), 2, axis=1)
        # KL(p || q) + KL(q || p) = sum_v (p_v - q_v) (log p_v - log q_v)
        change = (ops.exp(first) - ops.exp(second)) * (first - second)
        apart = ops.repeat(ops.sum(change, axis=-1), 2, axis=0)
        # Of a factor 1/2 each: the two directions, and the two rows that both have the term.
        apart = ops.where(ops.reshape(is_same, (-1, length)), apart, math.nan)
        return super().call(y_true, y_pred) + self.alpha / 4 * apart

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha}
