"""Cross-entropy over real tokens: smoothed, without logits in memory, with R-Drop."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.core.backend import custom_gradient, require_values
from keras_transformers.core.types import Scalar, Tensor


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
        """Returns the loss of each token; `__call__` weighs them."""
        owner = type(self).__name__
        return token_cross_entropy(y_true, y_pred, self.label_smoothing, self.ignore_id, owner)[0]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
        }


# Positions whose logits exist at once, and entries of the vocabulary of which their softmax is
# computed at once. Fewer of the first add the gradient of the table up more often: with 256,000
# entries, width 512 and 2,048 positions 128 took 6.7 seconds, 256 and 512 both 5.5 (two CPU cores).
CHUNK = 256
PART = 2000


class _Seen(NamedTuple):
    """What is known of the logits of each position after some parts, float32 or int32 `(chunk,)`.

    `total` is the sum of `exp(z - largest)`; `z` is `(chunk, vocab)`, or None where nobody needs
    it.
    """

    largest: Tensor
    total: Tensor
    best: Tensor
    of_label: Tensor
    sum: Tensor
    z: Tensor | None = None


def in_chunks(
    x: Tensor,
    table: Tensor,
    bias: Sequence[Tensor],
    ids: Tensor,
    smoothing: float,
    shares: Tensor | None,
    compiled: bool,
    frozen: bool = False,
) -> list[Tensor]:
    """Loss, nats and right of each position; then the gradients of `sum(shares * losses)`.

    See `linear_cross_entropy` for the arguments.

    Returns:
        Float32 `(positions, 3)`; if there are shares, gradients by `x`, and by `table` and `bias`
        unless these are `frozen`.
    """
    positions, vocab = ops.shape(x)[0], table.shape[0]
    size, number = CHUNK, (positions + CHUNK - 1) // CHUNK
    if isinstance(positions, int):
        number = max(number, 1)
        size = max(-(-positions // number), 1)
    part = PART if compiled else vocab
    ends = number * size - positions
    x = ops.pad(x, ((0, ends), (0, 0)))
    ids = ops.pad(ids, ((0, ends),))
    shares = None if shares is None else ops.pad(shares, ((0, ends),))

    def step(i: Any, state: Any) -> Any:
        results, *changes = state
        first = i * size
        own = ops.slice(ids, (first,), (size,))
        rows = ops.slice(x, (first, 0), (size, x.shape[1]))
        seen = _all_seen(rows, table, bias, own, bool(smoothing), bool(changes), part)
        lse = seen.largest + ops.log(seen.total)
        loss = lse - (1 - smoothing) * seen.of_label - smoothing * seen.sum / vocab
        right = ops.cast(seen.best == own, "float32")
        found = ops.stack([loss, lse - seen.of_label, right], axis=-1)
        results = _updated(results, (first, 0), found)
        if not changes:
            return (results,)
        share = ops.slice(shares, (first,), (size,))
        of_x, *of_others = changes
        given = (rows, table, own, seen.z, lse, share, smoothing, of_others, part)
        of_rows, *of_others = _gradients(*given)
        return (results, _updated(of_x, (first, 0), of_rows), *of_others)

    given = () if shares is None else (x,) if frozen else (x, table, *bias)
    state = [ops.zeros_like(x[:, :1], dtype="float32") + ops.zeros((3,), "float32")]
    state += [ops.zeros_like(each, dtype="float32") for each in given]
    state = ops.fori_loop(0, number, step, tuple(state))
    return [each[:positions] for each in state[:2]] + list(state[2:])


def _each_part(vocab: int, part: int, state: Any, step: Callable[[Any, int, Any], Any]) -> Any:
    """`state = step(first entry, entries, state)` for all parts of the vocabulary."""
    whole = vocab // part
    if whole == 1:
        state = step(0, part, state)
    elif whole:
        state = ops.fori_loop(0, whole, lambda i, state: step(i * part, part, state), state)
    rest = vocab - whole * part
    return step(whole * part, rest, state) if rest else state


def _updated(x: Any, start: tuple[Any, ...], new: Tensor) -> Any:
    """`ops.slice_update`, which on PyTorch copies all of `x`, and XLA does in place."""
    if x.shape == new.shape:
        return new
    if keras.backend.backend() != "torch":
        return ops.slice_update(x, start, new)
    x[tuple(slice(a, a + n) for a, n in zip(start, new.shape, strict=True))] = new
    return x


def _all_seen(
    x: Tensor,
    table: Tensor,
    bias: Sequence[Tensor],
    ids: Tensor,
    smoothed: bool,
    keep: bool,
    part: int,
) -> _Seen:
    """Of one chunk; with the sum of its logits and these themselves if somebody needs them."""

    def step(first: Any, size: int, state: Any) -> Any:
        seen = _Seen(*state)
        rows = ops.cast(ops.slice(table, (first, 0), (size, table.shape[1])), x.dtype)
        z = ops.cast(ops.matmul(x, ops.transpose(rows)), "float32")
        for each in bias:
            z = z + ops.cast(ops.slice(each, (first,), (size,)), "float32")
        here = ops.max(z, axis=-1)
        # The first of the largest; XLA's `argmax` takes four times as long on a CPU.
        entries = ops.where(z >= here[:, None], ops.arange(size, dtype="int32"), size)
        best = ops.min(entries, axis=-1) + first
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
            seen.sum + ops.sum(z, axis=-1) if smoothed else seen.sum,
            *((_updated(seen.z, (0, first), z),) if keep else ()),
        )

    zero = ops.zeros_like(ids, dtype="float32")
    state: tuple[Any, ...] = (zero - 1e38, zero, ids * 0, zero, zero)
    if keep:
        state = (*state, ops.zeros((ids.shape[0], table.shape[0]), "float32"))
    return _Seen(*_each_part(table.shape[0], part, state, step))


def _gradients(
    x: Tensor,
    table: Tensor,
    ids: Tensor,
    z: Tensor | None,
    lse: Tensor,
    share: Tensor,
    smoothing: float,
    so_far: list[Tensor],
    part: int,
) -> tuple[Tensor, ...]:
    """By `x`, a chunk, and `so_far`, by table and bias, with what the chunk adds; float32."""
    vocab, dim = table.shape

    def step(first: Any, size: int, state: Any) -> Any:
        of_x, *of_others = state
        rows = ops.cast(ops.slice(table, (first, 0), (size, dim)), x.dtype)
        chosen = ops.arange(size, dtype="int32") == (ids - first)[:, None]
        target = ops.where(chosen, 1 - smoothing, 0.0) + smoothing / vocab
        weight = ops.exp(ops.slice(z, (0, first), (ids.shape[0], size)) - lse[:, None])
        change = (weight - target) * share[:, None]
        low = ops.cast(change, x.dtype)
        of_x = of_x + ops.cast(ops.matmul(low, rows), "float32")
        if not of_others:
            return (of_x,)
        of_table, *of_bias = of_others
        more = ops.cast(ops.matmul(ops.transpose(low), x), "float32")
        more = more + ops.slice(of_table, (first, 0), (size, dim))
        of_table = _updated(of_table, (first, 0), more)
        sums = [ops.slice(each, (first,), (size,)) + ops.sum(change, axis=0) for each in of_bias]
        of_bias = [_updated(e, (first,), new) for e, new in zip(of_bias, sums, strict=True)]
        return (of_x, of_table, *of_bias)

    state = (ops.zeros_like(x, dtype="float32"), *so_far)
    found: tuple[Tensor, ...] = _each_part(vocab, part, state, step)
    return found


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
        """Returns the loss of each token; `__call__` weighs them."""
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
