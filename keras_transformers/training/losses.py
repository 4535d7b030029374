"""Cross-entropy over real tokens."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Scalar, Tensor
from keras_transformers.assertions import require_values
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

    Raises:
        ValueError: If `sample_weight` has another shape.
    """
    weights = ops.cast(ops.not_equal(signed(labels), ignore_id), "float32")
    if sample_weight is not None:
        weights = weights * _in_rank_of(labels, sample_weight)
    return weights


def _in_rank_of(labels: Tensor, sample_weight: Tensor) -> Tensor:
    """Weights of rows or tokens, float32, with as many axes as the labels."""
    weights = ops.cast(sample_weight, "float32")
    while len(weights.shape) > len(labels.shape) and weights.shape[-1] == 1:
        weights = ops.squeeze(weights, axis=-1)
    while len(weights.shape) < len(labels.shape):
        weights = weights[..., None]
    pairs = zip(weights.shape, labels.shape, strict=False)
    fits = all(one in (1, other) or None in (one, other) for one, other in pairs)
    if len(weights.shape) != len(labels.shape) or not fits:
        raise ValueError(
            "token_weights: `sample_weight` must have the shape (batch,), (batch, 1) or that of "
            f"the labels, {tuple(labels.shape)}. Received: shape {tuple(sample_weight.shape)}"
        )
    return weights


def signed(labels: Tensor) -> Tensor:
    """Labels in a dtype that can hold a negative `ignore_id` too."""
    labels = ops.convert_to_tensor(labels)
    is_signed = not keras.backend.standardize_dtype(labels.dtype).startswith(("uint", "bool"))
    return labels if is_signed else ops.cast(labels, "int32")


def read_labels(
    owner: str, labels: Tensor, vocab_size: int, ignore_id: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Tells padding, tokens of the vocabulary and impossible labels apart.

    Args:
        owner: Name for the message.
        labels: Integers `(...)`.
        vocab_size: Number of tokens, or classes.
        ignore_id: Label of padding.

    Returns:
        Int32 ids, 0 where no token of the vocabulary stands; bool, where one stands; and bool,
        where the label is impossible. All in the shape of `labels`.

    Raises:
        ValueError: If an impossible label is seen, see `assertions.require_values`.
    """
    labels = signed(labels)
    is_ignored = ops.equal(labels, ignore_id)
    is_token = ops.logical_and(labels >= 0, labels < vocab_size)
    sentence = (
        f"{owner}: labels must lie in [0, {vocab_size}), or be `ignore_id`, here {ignore_id}. Data "
        "in the form of Hugging Face have -100 where nothing is learned: `ignore_id=-100`."
    )
    labels = require_values(labels, ops.logical_or(is_token, is_ignored), sentence)
    is_wrong = ops.logical_not(ops.logical_or(is_token, is_ignored))
    is_real = ops.logical_and(is_token, ops.logical_not(is_ignored))
    return ops.where(is_real, ops.cast(labels, "int32"), 0), is_real, is_wrong


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
    labels: Tensor,
    logits: Tensor,
    label_smoothing: float = 0.0,
    ignore_id: int = 0,
    owner: str = "token_cross_entropy",
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each token against a smoothed one-hot target.

    `loss = lse(z) - (1 - eps) z_y - eps mean_v(z)`, which is the cross-entropy against
    `(1 - eps) onehot(y) + eps / V` (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, section
    7; Vaswani et al. 2017, section 5.4). In float32 whatever the dtype of the logits.

    Args:
        labels: Integers `(..., )`.
        logits: `(..., vocab)`.
        label_smoothing: `eps`.
        ignore_id: Label of padding, which need not be a token: -100 in data in the form of Hugging
            Face.
        owner: Name for messages.

    Returns:
        Losses and weights, float32 `(..., )`: at padding both are exactly 0, whatever stands there.

    Raises:
        ValueError: If a label is neither a token nor `ignore_id`, in an eager call. Graphs of
            TensorFlow assert it. Under XLA and on JAX such a label has the loss NaN, and nothing of
            it is in the gradient.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import token_cross_entropy
    >>> losses, weights = token_cross_entropy(ops.array([[3, 0]]), ops.zeros((1, 2, 5)))
    >>> ops.convert_to_numpy(weights).tolist()
    [[1.0, 0.0]]
    """
    labels, real, is_wrong = read_labels(owner, labels, logits.shape[-1], ignore_id)
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
    is_counted = ops.cast(ops.logical_or(real, is_wrong), losses.dtype)
    return ops.where(is_wrong, math.nan, losses), is_counted


@keras.saving.register_keras_serializable("keras_transformers")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy with integer labels, averaged over real tokens.

    `mean over real tokens of lse(z) - (1 - eps) z_y - eps mean_v(z)` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 5.4), in float32 whatever the dtype of the logits.
    Padding has weight exactly 0: not even a NaN there changes loss or gradient. A batch without a
    real token gives 0.

    `fit` and `evaluate` report the mean over batches, in which a batch counts by its rows. So that
    number depends on the batches; the metrics `TokenCrossEntropy` and `Perplexity` do not.

    Args:
        label_smoothing: `eps`, in `[0, 1)`.
        ignore_id: The label that stands for padding: 0, or -100 for data in the form of Hugging
            Face.
        reduction: Keras's; by default the sum over the sum of the weights.

    Call arguments:
        y_true: Integer labels `(batch, length)`.
        y_pred: Logits `(batch, length, vocab)`.
        sample_weight: Optional weights `(batch,)`, `(batch, 1)` or `(batch, length)`. Weigh classes
            by these too: `class_weight` of Keras's `fit` knows one label for each row.

    Returns:
        A scalar, the weighted mean.

    Raises:
        ValueError: If `label_smoothing` is not in `[0, 1)`, the shapes do not fit, or a label is
            neither a token nor `ignore_id`; see `token_cross_entropy`.

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
        check_ranks(type(self).__name__, y_true, ops.convert_to_tensor(y_pred))
        # Padding is weight 0, so Keras's own reduction means over real tokens; it also knows
        # implicit masks and the number of replicas under tf.distribute.
        weights = token_weights(y_true, self.ignore_id, sample_weight)
        return super().__call__(y_true, y_pred, sample_weight=weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Loss of each token, unreduced."""
        owner = type(self).__name__
        return token_cross_entropy(y_true, y_pred, self.label_smoothing, self.ignore_id, owner)[0]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
        }
