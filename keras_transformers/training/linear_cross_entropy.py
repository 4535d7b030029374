"""Cross-entropy of hidden states and the table of tokens, without the logits of all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.annotations import Scalar, Tensor
from keras_transformers.training.losses import SmoothedCrossEntropy, token_weights

# Tokens of the vocabulary in a chunk: of 2,000 to 16,000 the quickest for 256,000 (two CPU cores).
CHUNK = 8000


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


class _Seen(NamedTuple):
    """What is known of the logits of each token after some chunks, float32 or int32 `(tokens,)`.

    `total` is the sum of `exp(z - largest)`.
    """

    largest: Tensor
    total: Tensor
    best: Tensor
    of_label: Tensor
    sum: Tensor


def linear_cross_entropy(
    hidden: Tensor,
    table: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_id: int = 0,
) -> TokenResults:
    """`token_cross_entropy` of `hidden E^T + b`, of which a chunk of the vocabulary exists at once.

    The logarithm of the sum is kept up chunk by chunk, and the gradient computes the logits of each
    chunk again (Wijmans et al. 2024, "Cut Your Losses", https://arxiv.org/abs/2411.09009, sections
    4.2 and 4.3): four products instead of three, and no tensor of tokens times vocabulary.

    Args:
        hidden: `(..., hidden_dim)`, in whose dtype the products are computed.
        table: `E`, `(vocab, hidden_dim)`.
        labels: Integers `(...)`.
        bias: `b`, `(vocab,)`.
        label_smoothing: `eps`, as in `token_cross_entropy`.
        ignore_id: Label of padding: nothing that stands there has any influence.

    Returns:
        `TokenResults`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import linear_cross_entropy
    >>> found = linear_cross_entropy(ops.zeros((1, 2, 3)), ops.ones((5, 3)), ops.array([[3, 0]]))
    >>> [round(float(loss), 4) for loss in found.losses[0]]  # log 5; padding
    [1.6094, 0.0]
    """
    shape, dim = ops.shape(labels), hidden.shape[-1]
    vocab, eps = table.shape[0], label_smoothing
    real = ops.reshape(ops.not_equal(labels, ignore_id), (-1,))
    ids = ops.where(real, ops.reshape(ops.cast(labels, "int32"), (-1,)), 0)

    @ops.custom_gradient
    def results_of(x: Tensor, table: Tensor, *bias: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        # Not even a NaN at padding may meet the 0 of its gradient.
        clean = ops.where(real[:, None], x, ops.zeros((), x.dtype))
        seen = _all_seen(clean, table, bias, ids)
        lse = seen.largest + ops.log(seen.total)
        nats = lse - seen.of_label
        loss = lse - (1 - eps) * seen.of_label - eps * seen.sum / vocab
        right = ops.cast(seen.best == ids, "float32")
        found = ops.where(real[:, None], ops.stack([loss, nats, right], axis=-1), 0.0)

        def gradient(*arguments: Any, upstream: Any = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream
            share = ops.where(real, ops.cast(upstream[:, 0], "float32"), 0.0)
            changes = _gradients(clean, table, bias, ids, lse, share, eps)
            given = (x, table, *bias)
            return tuple(ops.cast(c, g.dtype) for c, g in zip(changes, given, strict=True))

        return found, gradient  # one tensor, for PyTorch's `custom_gradient` takes no more

    biases = [] if bias is None else [ops.convert_to_tensor(bias)]
    found = results_of(ops.reshape(hidden, (-1, dim)), ops.convert_to_tensor(table), *biases)
    known = ops.stop_gradient(found[:, 1:])
    columns = (found[:, 0], known[:, 0], known[:, 1])
    return TokenResults(*(ops.reshape(column, shape) for column in columns))


def _each_chunk(vocab: int, state: Any, step: Callable[[Any, int, Any], Any]) -> Any:
    """`state = step(first token, tokens, state)` for all chunks of the vocabulary."""
    whole = vocab // CHUNK
    if whole:
        state = ops.fori_loop(0, whole, lambda i, state: step(i * CHUNK, CHUNK, state), state)
    rest = vocab - whole * CHUNK
    return step(whole * CHUNK, rest, state) if rest else state


def _logits(
    x: Tensor, table: Tensor, bias: tuple[Tensor, ...], first: Any, size: int
) -> tuple[Tensor, Tensor]:
    """Logits of a chunk, float32 `(tokens, size)`, and its part of the table."""
    part = ops.cast(ops.slice(table, (first, 0), (size, table.shape[1])), x.dtype)
    z = ops.cast(ops.matmul(x, ops.transpose(part)), "float32")
    for each in bias:
        z = z + ops.cast(ops.slice(each, (first,), (size,)), "float32")
    return z, part


def _all_seen(x: Tensor, table: Tensor, bias: tuple[Tensor, ...], ids: Tensor) -> _Seen:
    def step(first: Any, size: int, state: Any) -> Any:
        seen = _Seen(*state)
        z, _ = _logits(x, table, bias, first, size)
        here = ops.max(z, axis=-1)
        best = ops.cast(ops.argmax(z, axis=-1), "int32") + first
        largest = ops.maximum(seen.largest, here)
        total = seen.total * ops.exp(seen.largest - largest)
        total = total + ops.sum(ops.exp(z - largest[:, None]), axis=-1)
        own = ids - first
        there = ops.take_along_axis(z, ops.clip(own, 0, size - 1)[:, None], axis=-1)[:, 0]
        inside = ops.logical_and(own >= 0, own < size)
        return (
            largest,
            total,
            ops.where(here > seen.largest, best, seen.best),
            ops.where(inside, there, seen.of_label),
            seen.sum + ops.sum(z, axis=-1),
        )

    zero = ops.zeros_like(ids, dtype="float32")
    return _Seen(*_each_chunk(table.shape[0], (zero - 1e38, zero, ids * 0, zero, zero), step))


def _gradients(
    x: Tensor,
    table: Tensor,
    bias: tuple[Tensor, ...],
    ids: Tensor,
    lse: Tensor,
    share: Tensor,
    smoothing: float,
) -> tuple[Tensor, ...]:
    """Of `sum(share * losses)`, for `x`, `table` and `bias`, float32."""
    vocab = table.shape[0]

    def step(first: Any, size: int, state: Any) -> Any:
        of_x, of_table, *of_bias = state
        z, part = _logits(x, table, bias, first, size)
        chosen = ops.arange(size, dtype="int32") == (ids - first)[:, None]
        target = ops.where(chosen, 1 - smoothing, 0.0) + smoothing / vocab
        change = (ops.exp(z - lse[:, None]) - target) * share[:, None]
        low = ops.cast(change, x.dtype)
        of_x = of_x + ops.cast(ops.matmul(low, part), "float32")
        of_part = ops.cast(ops.matmul(ops.transpose(low), x), "float32")
        of_table = ops.slice_update(of_table, (first, 0), of_part)
        sums = [ops.slice_update(each, (first,), ops.sum(change, axis=0)) for each in of_bias]
        return (of_x, of_table, *sums)

    state = tuple(ops.zeros_like(each, dtype="float32") for each in (x, table, *bias))
    return tuple(_each_chunk(vocab, state, step))


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
        self, labels: Tensor, hidden: Tensor, table: Tensor, bias: Tensor | None
    ) -> TokenResults:
        """What a model asks for instead of making logits, and then calls the loss with."""
        found = linear_cross_entropy(
            hidden, table, labels, bias, self.label_smoothing, self.ignore_id
        )
        mask = getattr(hidden, "_keras_mask", None)  # Keras's losses obey that of the logits
        return TokenResults(found.losses, found.nats, found.right, mask)

    def __call__(self, y_true: Tensor, y_pred: Any, sample_weight: Tensor | None = None) -> Scalar:
        if not isinstance(y_pred, TokenResults):
            return super().__call__(y_true, y_pred, sample_weight)
        weights = token_weights(y_true, self.ignore_id, sample_weight)
        if y_pred.mask is not None:
            weights = weights * ops.cast(y_pred.mask, "float32")
        reduced = _Reduced(reduction=self.reduction, dtype="float32")
        return reduced(y_true, y_pred.losses, sample_weight=weights)
