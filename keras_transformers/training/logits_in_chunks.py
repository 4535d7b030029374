"""Cross-entropy of logits that exist for a chunk of positions at a time, and its gradients."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.annotations import Tensor

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
