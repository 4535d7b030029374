"""Cross-entropy of hidden states and the table of tokens, without the logits of all of them."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Scalar, Tensor
from keras_transformers.training.losses import SmoothedCrossEntropy, token_weights

# Logits that there are at once, 512 MB in float32. With fewer the gradient of a table of 256,000
# tokens is gone through more often, which takes longer.
LOGITS = 2**27
ROWS = 512  # in a block at most, where nobody knows how many there will be


@dataclasses.dataclass(frozen=True, eq=False)
class TokenResults:
    """What is known of each token without its logits; metrics of tokens take it for them.

    Args:
        total: Scalar, the sum of `weights * losses`. It alone has a gradient.
        losses: Cross-entropy against the smoothed target, float32, in the shape of the labels.
        nats: The same without smoothing.
        right: 1 where the label is the most probable token, else 0.
        weights: Weight of each token, 0 at padding.
    """

    total: Scalar
    losses: Tensor
    nats: Tensor
    right: Tensor
    weights: Tensor


def linear_cross_entropy(
    hidden: Tensor,
    table: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    weights: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_id: int = 0,
    differentiable: bool = True,
) -> TokenResults:
    """`token_cross_entropy` of `hidden E^T + b`, of which a block of tokens exists at a time.

    The gradient is computed beside the loss, while the logits of a block are there, so that no
    product is computed twice: the loss is a weighted sum, and what comes from above is one number
    by which the gradient is multiplied later (Hsu et al. 2024, "Liger Kernel",
    https://arxiv.org/abs/2410.10989, section 3.2).

    Args:
        hidden: `(..., hidden_dim)`, in whose dtype the products are computed.
        table: `E`, `(vocab, hidden_dim)`.
        labels: Integers `(...)`.
        bias: `b`, `(vocab,)`.
        weights: Of each token; by default 1. No gradient goes to them.
        label_smoothing: `eps`, as in `token_cross_entropy`.
        ignore_id: Label of padding: nothing that stands there has any influence.
        differentiable: Whether the gradient of `total` for `hidden`, `table` and `bias` is wanted.

    Returns:
        `TokenResults`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import linear_cross_entropy
    >>> found = linear_cross_entropy(ops.zeros((1, 2, 3)), ops.ones((5, 3)), ops.array([[3, 0]]))
    >>> round(float(found.total), 4)  # log 5: one token of five, and padding
    1.6094
    """
    shape = ops.shape(labels)
    real = token_weights(labels, ignore_id)
    weights = real if weights is None else real * ops.cast(weights, "float32")
    dim = hidden.shape[-1]
    # Not even a NaN at padding may meet the 0 of its gradient.
    x = ops.where(real[..., None] > 0, hidden, ops.zeros((), hidden.dtype))
    x = ops.reshape(x, (-1, dim))
    ids = ops.reshape(ops.where(real > 0, ops.cast(labels, "int32"), 0), (-1,))
    rows, number = _blocks(x.shape[0], ops.shape(x)[0], table.shape[0])
    missing = rows * number - ops.shape(x)[0]
    each = ops.reshape(weights, (-1,))
    cut = (
        ops.reshape(ops.pad(ids, [[0, missing]]), (number, rows)),
        ops.reshape(ops.pad(each, [[0, missing]]), (number, rows)),
    )

    def computed(x: Tensor, table: Tensor, *biases: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Total and results, one after the other in a vector, and gradients of the total."""
        blocks = ops.reshape(ops.pad(x, [[0, missing], [0, 0]]), (number, rows, dim))
        low = ops.cast(table, x.dtype)

        def step(sums: Any, block: Any) -> tuple[Any, Any]:
            results, change = _of_block(low, biases, label_smoothing, differentiable, *block)
            sums = [total + more for total, more in zip(sums, change[1:], strict=True)]
            return sums, (results, *change[:1])

        zeros = [ops.zeros(each.shape) for each in (table, *biases)] if differentiable else []
        sums, (results, *change) = ops.scan(step, zeros, (blocks, *cut))
        results = ops.reshape(results, (-1, 3))
        # PyTorch's `custom_gradient` gives one tensor only.
        total = ops.sum(results[:, 0] * ops.reshape(cut[1], (-1,)))
        packed = ops.concatenate([total[None], ops.reshape(results, (-1,))])
        gradients = [ops.reshape(g, (-1, dim))[: ops.shape(x)[0]] for g in change] + list(sums)
        return packed, gradients

    @ops.custom_gradient
    def with_gradient(*arguments: Tensor) -> tuple[Tensor, Any]:
        packed, gradients = computed(*arguments)

        def gradient(*upstream_of: Any, upstream: Any = None) -> tuple[Tensor, ...]:
            scale = (upstream_of[0] if upstream is None else upstream)[0]
            pairs = zip(gradients, arguments, strict=True)
            return tuple(ops.cast(scale * change, given.dtype) for change, given in pairs)

        return packed, gradient

    arguments = [ops.convert_to_tensor(each) for each in (table, bias) if each is not None]
    packed = with_gradient(x, *arguments) if differentiable else computed(x, *arguments)[0]
    results = ops.stop_gradient(ops.reshape(packed[1:], (-1, 3))[: ops.shape(x)[0]])
    losses, nats, right = (ops.reshape(results[:, i], shape) for i in range(3))
    return TokenResults(packed[0], losses, nats, right, weights)


def _blocks(known: int | None, number: Any, vocab: int) -> tuple[int, Any]:
    """Rows of a block, and how many blocks there are."""
    most = max(1, LOGITS // vocab)
    if known is None:
        rows = min(most, ROWS)
        return rows, (number + rows - 1) // rows
    blocks = max(1, -(-known // most))
    return max(1, -(-known // blocks)), blocks


def _of_block(
    table: Tensor,
    biases: tuple[Tensor, ...],
    smoothing: float,
    differentiable: bool,
    hidden: Tensor,
    labels: Tensor,
    weights: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """Loss, nats and 0 or 1 of each token, `(rows, 3)`, and gradients of the weighted sum."""
    z = ops.cast(ops.matmul(hidden, ops.transpose(table)), "float32")
    for bias in biases:
        z = z + ops.cast(bias, "float32")
    lse = ops.logsumexp(z, axis=-1)
    z_label = ops.take_along_axis(z, labels[:, None], axis=-1)[:, 0]
    loss = lse - (1 - smoothing) * z_label
    if smoothing:
        loss = loss - smoothing * ops.mean(z, axis=-1)
    right = ops.cast(ops.argmax(z, axis=-1), "int32") == labels
    results = ops.stack([loss, lse - z_label, ops.cast(right, "float32")], axis=-1)
    if not differentiable:
        return results, []
    vocab = table.shape[0]
    chosen = ops.arange(vocab, dtype="int32") == labels[:, None]
    target = ops.where(chosen, 1 - smoothing, 0.0) + smoothing / vocab
    change = (ops.exp(z - lse[:, None]) - target) * weights[:, None]
    # Float16 has no numbers as small as these before the loss is scaled.
    half = keras.backend.standardize_dtype(table.dtype) == "bfloat16"
    low = [ops.cast(each, table.dtype if half else "float32") for each in (change, table, hidden)]
    of_hidden = ops.matmul(low[0], low[1])
    of_table = ops.cast(ops.matmul(ops.transpose(low[0]), low[2]), "float32")
    return results, [of_hidden, of_table, *(ops.sum(change, axis=0) for _ in biases)]


class _Reduced(keras.losses.Loss):
    """Keras's reduction of losses that are known."""

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


@keras.saving.register_keras_serializable("keras_transformers")
class LinearCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` for which a model of texts makes no logits while it is fitted.

    Compiled with it, `LanguageModel`, `TextEncoder` with `MaskedLanguageHead`, `Transformer` and
    `RecurrentTranslator` hand their last hidden states to `linear_cross_entropy` in `fit` and
    `evaluate`; the value is the same. Metrics can be `MaskedAccuracy`, `TokenCrossEntropy` and
    `Perplexity`, which need no logits either. What a call, `predict` and decoding give stays as it
    is; and for other models the loss is computed from logits.

    Args:
        label_smoothing: `eps`, in `[0, 1)`.
        ignore_id: The label that stands for padding.
        reduction: Keras's, except None; by default the sum over the sum of the weights.

    Raises:
        ValueError: If `label_smoothing` is not in `[0, 1)`, or `reduction` is None.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import AdamW, LinearCrossEntropy, Perplexity
    >>> model = LanguageModel.from_variant("tiny", 31, style="modern")
    >>> model.compile(AdamW(), LinearCrossEntropy(label_smoothing=0.1), metrics=[Perplexity()])
    >>> ids = np.array([[1, 5, 7, 3], [1, 7, 5, 3]])
    >>> sorted(model.fit(ids[:, :-1], ids[:, 1:], verbose=0).history)
    ['loss', 'perplexity']
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        ignore_id: int = 0,
        reduction: str = "mean_with_sample_weight",
        name: str = "linear_cross_entropy",
    ) -> None:
        super().__init__(label_smoothing, ignore_id, reduction, name)
        if self.reduction in (None, "none"):
            raise ValueError(
                "LinearCrossEntropy: `reduction` must be one that gives a number: the gradient is "
                f"that of a sum. Received: {reduction}"
            )

    def of_hidden(
        self,
        labels: Tensor,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> TokenResults:
        """Called by a model instead of making logits; what it gives is then called with."""
        weights = token_weights(labels, self.ignore_id, sample_weight)
        mask = getattr(hidden, "_keras_mask", None)  # Keras's losses obey that of the logits
        if mask is not None:
            weights = weights * ops.cast(mask, "float32")
        return linear_cross_entropy(
            hidden, table, labels, bias, weights, self.label_smoothing, self.ignore_id, training
        )

    def __call__(
        self, y_true: Tensor, y_pred: Any, sample_weight: Tensor | None = None
    ) -> Scalar:
        if not isinstance(y_pred, TokenResults):
            return super().__call__(y_true, y_pred, sample_weight)
        reduced = _Reduced(reduction=self.reduction, dtype="float32")(
            y_true, y_pred.losses, sample_weight=y_pred.weights
        )
        total = ops.stop_gradient(y_pred.total)
        share = ops.where(total == 0, 0.0, reduced / ops.where(total == 0, 1.0, total))
        return y_pred.total * ops.stop_gradient(share)
