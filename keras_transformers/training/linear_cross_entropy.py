"""Cross-entropy of hidden states and the table of tokens, without the logits of all of them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Scalar, Tensor
from keras_transformers.gradients import custom_gradient
from keras_transformers.training.logits_in_chunks import in_chunks
from keras_transformers.training.losses import SmoothedCrossEntropy, read_labels, token_weights


class TokenResults:
    """What is known of each token without its logits; losses and metrics take it for them.

    Args:
        losses: Cross-entropy against the smoothed target, float32, in the shape of the labels: 0 at
            padding. It alone has a gradient.
        nats: The same without smoothing.
        right: 1 where the label is the most probable token, else 0.
        mask: The implicit mask of the hidden states, or None.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import linear_cross_entropy
    >>> found = linear_cross_entropy(ops.zeros((1, 2, 3)), ops.ones((5, 3)), ops.array([[0, 3]]))
    >>> [float(right) for right in found.right[0]]  # padding; of equal logits, the first wins
    [0.0, 0.0]
    """

    # No tuple: Keras would take it for several outputs of a model.
    def __init__(
        self, losses: Tensor, nats: Tensor, right: Tensor, mask: Tensor | None = None
    ) -> None:
        self.losses, self.nats, self.right, self.mask = losses, nats, right, mask


def linear_cross_entropy(
    hidden: Tensor,
    table: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_id: int = 0,
    weights: Tensor | None = None,
    compiled: bool = True,
    owner: str = "linear_cross_entropy",
) -> TokenResults:
    """`token_cross_entropy` of `hidden E^T + b`, of which a chunk of positions exists at once.

    Where it is known by what factors the losses will be summed up, `weights` says so, and the
    gradient is computed with the losses, while the logits of a chunk are there (Hsu et al. 2024,
    "Liger Kernel", https://arxiv.org/abs/2410.10989, section 3.2): three products, as with all
    logits. Else the gradient computes the logits again (Wijmans et al. 2024, "Cut Your Losses",
    https://arxiv.org/abs/2411.09009, section 4.3): four products.

    Args:
        hidden: `(..., hidden_dim)`, in whose dtype the products are computed.
        table: `E`, `(vocab, hidden_dim)`. Of a variable that is frozen no gradient is computed.
        labels: Integers `(...)`.
        bias: `b`, `(vocab,)`.
        label_smoothing: `eps`, as in `token_cross_entropy`.
        ignore_id: Label of padding: nothing that stands there has any influence.
        weights: Float `(...)`. The gradient is right for `sum(weights * losses)` and what is
            proportional to it, as a weighted mean, and for nothing else. Leave it out where no
            gradient is taken.
        compiled: Whether a compiler sees the program. TensorFlow without XLA copies what it writes
            a part of, so that the vocabulary is not cut into parts there.
        owner: Name for messages.

    Returns:
        `TokenResults`.

    Raises:
        ValueError: If a label is neither a token nor `ignore_id`, as `token_cross_entropy` does.
            Where that cannot raise an error, all results of the label are NaN.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import linear_cross_entropy
    >>> found = linear_cross_entropy(ops.zeros((1, 2, 3)), ops.ones((5, 3)), ops.array([[3, 0]]))
    >>> [round(float(loss), 4) for loss in found.losses[0]]  # log 5; padding
    [1.6094, 0.0]
    """
    shape, dim = ops.shape(labels), hidden.shape[-1]
    flat = ops.reshape(labels, (-1,))
    ids, real, is_wrong = read_labels(owner, flat, table.shape[0], ignore_id)
    frozen, tensors = _tensors([table] if bias is None else [table, bias])
    factors = () if weights is None else (_shares(weights, real),)
    losses = _Losses(label_smoothing, compiled, frozen, bool(factors))
    derived = custom_gradient(losses.forward, losses.backward, losses.plain)
    results = derived(ops.reshape(hidden, (-1, dim)), ids, real, *factors, *tensors)
    facts = ops.stop_gradient(results[:, 1:])
    columns = [ops.where(is_wrong, math.nan, x) for x in (results[:, 0], facts[:, 0], facts[:, 1])]
    return TokenResults(*(ops.reshape(column, shape) for column in columns))


def _shares(factors: Tensor, real: Tensor) -> Tensor:
    """Returns the factor of each position in the sum of losses, float32: 0 at padding."""
    return ops.where(real, ops.cast(ops.reshape(factors, (-1,)), "float32"), 0.0)


@dataclasses.dataclass(frozen=True)
class _Losses:
    """Functions of hidden states, ids, whether a position is real, known factors, and the table.

    Attributes:
        smoothing, compiled: See `linear_cross_entropy`.
        frozen: Whether table and bias have no gradient.
        known: Whether the tensors hold the factors by which losses will be summed up.
    """

    smoothing: float
    compiled: bool
    frozen: bool
    known: bool

    def _in_chunks(
        self, x: Tensor, ids: Tensor, real: Tensor, shares: Tensor | None, table: Sequence[Tensor]
    ) -> list[Tensor]:
        clean = _without_padding(x, real)
        options = (ids, self.smoothing, shares, self.compiled, self.frozen)
        return in_chunks(clean, table[0], table[1:], *options)

    def forward(self, x: Tensor, ids: Tensor, real: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Returns loss, nats and right of each position; then gradients, if factors are known."""
        shares = rest[0] if self.known else None
        results, *changes = self._in_chunks(x, ids, real, shares, rest[self.known :])
        return (ops.where(real[:, None], results, 0.0), *changes)

    def backward(
        self, tensors: tuple[Tensor, ...], outputs: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor | None]:
        x, ids, real, *rest = tensors
        shares, table = _shares(upstream[:, 0], real), rest[self.known :]
        if self.known:  # `shares` is a multiple of the known factors
            square = ops.sum(rest[0] * rest[0])
            factor = ops.sum(shares * rest[0]) / ops.where(square > 0, square, 1.0)
            changes = [change * factor for change in outputs[1:]]
        else:
            _, *changes = self._in_chunks(x, ids, real, shares, table)
        trained = [x] if self.frozen else [x, *table]
        pairs = zip(changes, trained, strict=True)
        of_x, *of_table = [ops.cast(change, tensor.dtype) for change, tensor in pairs]
        constants: list[Tensor | None] = [None] * (2 + self.known)
        return [of_x, *constants, *(of_table or [None for _ in table])]

    def plain(self, x: Tensor, ids: Tensor, real: Tensor, *rest: Tensor) -> Tensor:
        """Returns what `forward` returns first, with all logits at once."""
        table, *bias = rest[self.known :]
        z = ops.matmul(_without_padding(x, real), ops.transpose(ops.cast(table, x.dtype)))
        z = ops.cast(z, "float32")
        if bias:
            z = z + ops.cast(bias[0], "float32")
        lse = ops.logsumexp(z, axis=-1)
        nats = lse - ops.take_along_axis(z, ids[:, None], axis=-1)[:, 0]
        losses = (1 - self.smoothing) * nats + self.smoothing * (lse - ops.mean(z, axis=-1))
        is_right = ops.cast(ops.argmax(z, axis=-1), "int32") == ids
        results = ops.stack([losses, nats, ops.cast(is_right, "float32")], axis=-1)
        return ops.where(real[:, None], results, 0.0)


def _without_padding(x: Tensor, real: Tensor) -> Tensor:
    """Returns `x` with zeros at padding: not even a NaN there may meet the 0 of its gradient."""
    return ops.where(real[:, None], x, ops.zeros((), x.dtype))


def _tensors(weights: Sequence[Any]) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether none is trained, and their values; TensorFlow's own gradients see no variables."""
    frozen = not any(getattr(each, "trainable", True) for each in weights)
    return frozen, tuple(map(ops.stop_gradient if frozen else ops.convert_to_tensor, weights))


class ReducedLosses(keras.losses.Loss):
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

    For vocabularies of 100,000 and more. Steps of the recipes' default networks take as long as
    with logits: 0.99 to 1.02 of the time with 4,000 and 8,000 entries, whose logits are small
    (medians of 16 steps, XLA, two cores of an AMD EPYC with AVX-512).

    Args:
        label_smoothing: `eps`, in `[0, 1)`.
        ignore_id: The label that stands for padding.
        reduction: Keras's; by default the sum over the sum of the weights.

    Raises:
        ValueError: If `label_smoothing` is not in `[0, 1)`.

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
        label_smoothing: float = 0.1,
        ignore_id: int = 0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "linear_cross_entropy",
    ) -> None:
        super().__init__(label_smoothing, ignore_id, reduction, name)

    def of_hidden(
        self,
        labels: Tensor,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
        compiled: bool = True,
    ) -> TokenResults:
        """What a model asks for instead of making logits, and then calls the loss with."""
        mask = getattr(hidden, "_keras_mask", None)  # Keras's losses obey that of the logits
        weights = self._weights(labels, mask, sample_weight) if training else None
        settings = (self.label_smoothing, self.ignore_id, weights, compiled, type(self).__name__)
        found = linear_cross_entropy(hidden, table, labels, bias, *settings)
        return TokenResults(found.losses, found.nats, found.right, mask)

    def _weights(self, labels: Tensor, mask: Tensor | None, sample_weight: Tensor | None) -> Tensor:
        weights = token_weights(labels, self.ignore_id, sample_weight)
        return weights if mask is None else weights * ops.cast(mask, "float32")

    def __call__(self, y_true: Tensor, y_pred: Any, sample_weight: Tensor | None = None) -> Scalar:
        if not isinstance(y_pred, TokenResults):
            return super().__call__(y_true, y_pred, sample_weight)
        weights = self._weights(y_true, y_pred.mask, sample_weight)
        reduced = ReducedLosses(reduction=self.reduction, dtype="float32")
        return reduced(y_true, y_pred.losses, sample_weight=weights)
