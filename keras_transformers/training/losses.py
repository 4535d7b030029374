"""Cross-entropy over real tokens."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Scalar, Tensor
from keras_transformers.gradients import custom_gradient


def _float(logits: Tensor) -> Tensor:
    dtype = keras.backend.standardize_dtype(logits.dtype)
    return ops.cast(logits, "float64" if dtype == "float64" else "float32")


def token_weights(
    labels: Tensor, ignore_id: int = 0, sample_weight: Tensor | None = None
) -> Tensor:
    """Weight of each token, float32, in the shape of `labels`: exactly 0 at padding.

    Args:
        labels: Integers `(batch, ...)`.
        ignore_id: Label of padding.
        sample_weight: Optional weights `(batch,)`, `(batch, 1)` or one for each label.
    """
    weights = ops.cast(ops.not_equal(labels, ignore_id), "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, "float32")
        while len(sample_weight.shape) < len(weights.shape):
            sample_weight = sample_weight[..., None]
        weights = weights * sample_weight
    return weights


def check_ranks(owner: str, y_true: Tensor, y_pred: Tensor) -> None:
    """Raises ValueError unless the logits have the labels' shape and one axis, the vocabulary."""
    pairs = zip(y_true.shape, y_pred.shape, strict=False)
    fit = all(None in pair or pair[0] == pair[1] for pair in pairs)
    if len(y_pred.shape) != len(y_true.shape) + 1 or not fit:
        raise ValueError(
            f"{owner}: `y_pred` must have the shape of the labels and one axis more. Received: "
            f"y_true of shape {tuple(y_true.shape)}, y_pred of shape {tuple(y_pred.shape)}"
        )


def token_cross_entropy(
    labels: Tensor, logits: Tensor, label_smoothing: float = 0.0, ignore_id: int = 0
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each token against a smoothed one-hot target.

    `loss = lse(z) - (1 - eps) z_y - eps mean_v(z)`, which is the cross-entropy against
    `(1 - eps) onehot(y) + eps / V` (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, section
    7; Vaswani et al. 2017, section 5.4). In float32 whatever the dtype of the logits.

    Args:
        labels: Integers `(..., )`.
        logits: `(..., vocab)`.
        label_smoothing: `eps`.
        ignore_id: Label of padding.

    Returns:
        Losses and weights, float32 `(..., )`: at padding both are exactly 0, whatever stands there.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import token_cross_entropy
    >>> losses, weights = token_cross_entropy(ops.array([[3, 0]]), ops.zeros((1, 2, 5)))
    >>> ops.convert_to_numpy(weights).tolist()
    [[1.0, 0.0]]
    """
    real = ops.not_equal(labels, ignore_id)
    labels = ops.where(real, ops.cast(labels, "int32"), 0)  # ignore_id may be no id at all
    vocab, dtype = logits.shape[-1], logits.dtype

    def loss_of(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        lse = ops.logsumexp(z, axis=-1)
        z_label = ops.take_along_axis(z, labels[..., None], axis=-1)[..., 0]
        loss = lse - (1 - label_smoothing) * z_label
        return loss - label_smoothing * ops.mean(z, axis=-1) if label_smoothing else loss, lse

    def forward(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        loss, lse = loss_of(_float(logits), labels)
        return ops.where(real, loss, 0.0), lse

    # Derived by hand: `softmax(z) - target`, in one pass over the vocabulary instead of five, and
    # nothing at a padded position reaches the gradient, as 0 * NaN would.
    def backward(
        tensors: tuple[Tensor, ...], found: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor | None]:
        logits, labels, real = tensors
        chosen = ops.arange(vocab, dtype="int32") == labels[..., None]
        target = ops.where(chosen, 1 - label_smoothing, 0.0) + label_smoothing / vocab
        change = (ops.exp(_float(logits) - found[1][..., None]) - target) * upstream[..., None]
        return [ops.cast(ops.where(real[..., None], change, 0.0), dtype), None, None]

    def plain(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        clean = ops.where(real[..., None], _float(logits), 0.0)
        return ops.where(real, loss_of(clean, labels)[0], 0.0)

    losses = custom_gradient(forward, backward, plain)(logits, labels, real)
    return losses, ops.cast(real, losses.dtype)


@keras.saving.register_keras_serializable("keras_transformers")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy with integer labels, averaged over real tokens.

    `mean over real tokens of lse(z) - (1 - eps) z_y - eps mean_v(z)` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 5.4), in float32 whatever the dtype of the logits.
    Padding has weight exactly 0: not even a NaN there changes loss or gradient. A batch without a
    real token gives 0.

    Args:
        label_smoothing: `eps`, in `[0, 1)`.
        ignore_id: The label that stands for padding.
        reduction: Keras's; by default the sum over the sum of the weights.

    Call arguments:
        y_true: Integer labels `(batch, length)`.
        y_pred: Logits `(batch, length, vocab)`.
        sample_weight: Optional weights `(batch,)` or `(batch, length)`.

    Returns:
        A scalar, the weighted mean.

    Raises:
        ValueError: If `label_smoothing` is not in `[0, 1)`, or the shapes do not fit.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import SmoothedCrossEntropy
    >>> loss = SmoothedCrossEntropy(label_smoothing=0.1)
    >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 5), "float32"))), 4)
    1.6094
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        ignore_id: int = 0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "smoothed_cross_entropy",
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "SmoothedCrossEntropy: `label_smoothing` must be in [0, 1). "
                f"Received: {label_smoothing}"
            )
        # Float32 whatever `floatx` is: Keras casts the labels too, and bfloat16 ends at 256.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing
        self.ignore_id = ignore_id

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Scalar:
        y_true = ops.convert_to_tensor(y_true)
        check_ranks("SmoothedCrossEntropy", y_true, ops.convert_to_tensor(y_pred))
        # Padding is weight 0, so Keras's own reduction means over real tokens; it also knows
        # implicit masks and the number of replicas under tf.distribute.
        weights = token_weights(y_true, self.ignore_id, sample_weight)
        return super().__call__(y_true, y_pred, sample_weight=weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Loss of each token, unreduced."""
        return token_cross_entropy(y_true, y_pred, self.label_smoothing, self.ignore_id)[0]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
        }
