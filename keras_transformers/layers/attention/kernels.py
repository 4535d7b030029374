"""The kernels of attention without weights: plain, fused, and blockwise.

All three give the same output. The plain kernel computes the scores and weights of all pairs.
Keras's `ops.dot_product_attention` calls a kernel of the device. The blockwise kernel is our own,
in `keras.ops`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import KERNELS, custom_gradient, on_accelerator
from keras_transformers.core.types import Array, Index, Tensor
from keras_transformers.layers import regularization
from keras_transformers.layers.attention.scores import (
    product,
    regroup,
    softmax_of_visible,
    swap_heads,
)
from keras_transformers.layers.masks import causal_mask, combine_masks
from keras_transformers.layers.positions.biases import AttentionPositionEncoding

# Pairs of one head from which on blocks are quicker than all pairs at once. Forward and backward of
# 4 heads of width 64 under XLA, milliseconds plain / blockwise: 16 x 256 tokens 17.2 / 20.0,
# 1 x 512 4.8 / 3.8, 8 x 512 34.3 / 31.5, 1 x 1,024 20.9 / 16.0 (two cores of an AMD EPYC with
# AVX-512, freed memory kept).
LEAST_PAIRS = 512 * 512
# And cuDNN's kernel. Forward and backward of a self-attention layer of 12 heads of width 64 in
# bfloat16, batch x tokens, milliseconds plain / kernel: 512 x 64 1.73 / 1.93, 256 x 128 1.99 /
# 1.59, 128 x 256 2.39 / 1.65, 32 x 512 1.72 / 0.99, 8 x 1,024 1.53 / 0.64; with a mask of padding
# 1.89 / 1.88, 2.09 / 1.78, 2.58 / 1.90, 1.98 / 1.20, 1.59 / 0.81 (NVIDIA H100, JAX 0.11).
LEAST_PAIRS_OF_CUDNN = 128 * 128

Way = Literal["plain", "kernel", "blockwise"]


def way_of(layer: Any, query: Tensor, key: Tensor, training: bool | None) -> Way:
    """How an attention layer computes a call of which nobody wants the weights.

    "plain" where scores or values are more than products and biases of positions, in programs for
    TensorFlow's own kernels, and where lengths are short or unknown. "kernel" on PyTorch, and on
    JAX with a GPU in half precision for the heads that cuDNN takes; not on a TPU, as Keras 3.15
    there takes the mask of the first batch element for all, and a causal one where there is none.
    No kernel has our dropout.

    Args:
        layer: A `MultiHeadAttention`.
        query, key: `(batch, length, width)`.
        training: Whether dropout acts.
    """
    lengths = (query.shape[1], key.shape[1])
    known = all(isinstance(length, int) for length in lengths)  # no int where JAX exports
    if not known or KERNELS.get() is not None:
        return "plain"
    if not layer.score.is_product or not _is_simple(layer.position):
        return "plain"
    backend, pairs = keras.backend.backend(), lengths[0] * lengths[1]
    kernel = not (training and layer.dropout) and _has_kernel(layer)
    if pairs < (LEAST_PAIRS_OF_CUDNN if kernel and backend == "jax" else LEAST_PAIRS):
        return "plain"
    if kernel:
        return "kernel"
    return "blockwise" if backend in ("tensorflow", "jax", "torch") else "plain"


def _is_simple(position: Any) -> bool:
    """Whether positions change queries and keys, or add a bias to each distance, and no more."""
    kind = type(position)
    if position is None:
        return True
    if kind.values is not AttentionPositionEncoding.values:
        return False
    biased = kind.bias is not AttentionPositionEncoding.bias
    return not biased or (position.relative and position.shareable)


def _has_kernel(layer: Any) -> bool:
    """Whether Keras finds a fused kernel that is right, for the heads of a built layer."""
    backend = keras.backend.backend()
    if backend == "torch":
        return True
    if backend != "jax" or layer.compute_dtype not in ("float16", "bfloat16"):
        return False
    _, key_dim, value_dim = layer.head_dims
    if key_dim != value_dim or key_dim % 8 or key_dim > 128:
        return False  # Keras would make all weights, and not say so
    return any(device.startswith(("gpu", "cuda")) for device in keras.distribution.list_devices())


def attend_without_weights(
    layer: Any, way: Way, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    bias: Tensor | None, causal: bool, training: bool | None = None
) -> Tensor:  # fmt: skip
    """`MultiHeadAttention.attend` the "kernel" or the "blockwise" way.

    Args:
        layer, way: Whose attention it is, and what `way_of` says.
        query, key, value, mask, bias, training: As `attend` takes them.
        causal: Whether query `i` sees keys `0 .. i` only, of those in `mask`.

    Returns:
        `(batch, heads, queries, value_dim)`.
    """
    queries, keys, by_distance = query.shape[2], key.shape[2], None
    if layer.position is not None and way == "kernel":
        term = layer.position.bias(query, *(ops.arange(n, dtype="int32") for n in (queries, keys)))
        bias = term if bias is None else bias if term is None else ops.add(bias, term)
    elif layer.position is not None:
        # One query behind all others, so that no position is negative.
        last = ops.full((1,), queries - 1, "int32")
        term = layer.position.bias(query, last, ops.arange(queries + keys - 1, dtype="int32"))
        if term is not None:
            by_distance = ops.reshape(term, (-1, queries + keys - 1))  # (heads or 1, distances)
    if way == "kernel":
        return _kernel(query, key, value, mask, bias, causal)
    seed = None
    if training and layer.dropout:
        seed = layer.dropout_layer.seed_generator.next()
    pairs = Pairs(mask, bias, by_distance, layer.dropout, seed)
    return blockwise_attention(query, key, value, causal, pairs)


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
) -> Tensor:
    """Keras's `ops.dot_product_attention`, with zeros for queries that may attend to nothing."""
    heads, shared = query.shape[1], key.shape[1]
    torch = keras.backend.backend() == "torch"
    if shared == 1 < heads and torch:
        key, value = (ops.repeat(x, heads, axis=1) for x in (key, value))  # Keras does from 2 on
    queries, keys, visible, seen = query.shape[2], key.shape[2], mask, None
    if bias is not None:
        bias = ops.cast(bias, query.dtype)
        visible = bias > -math.inf if mask is None else ops.logical_and(mask, bias > -math.inf)
    if not torch and (queries % 2 or keys % 2):
        # JAX has no gradient of cuDNN's kernel at odd lengths. No query sees the key that is added.
        # An axis of size one, of a mask or a bias, is left to be broadcast.
        query, key, value = (_evened(x, (-2,)) for x in (query, key, value))
        bias = None if bias is None else _evened(bias, (-2, -1), 2)
        visible = None if visible is None else _evened(visible, (-2, -1), 2)
        if visible is not None or not causal or queries > keys:
            more = ops.arange(key.shape[2]) < keys
            visible = more if visible is None else ops.logical_and(visible, more)
    if visible is not None:
        shape = (query.shape[2], key.shape[2])
        visible = ops.logical_and(visible, ops.ones(shape, "bool"))
        for _ in range(4 - len(visible.shape)):
            visible = visible[None]
        reached = ops.logical_and(visible, causal_mask(*shape)) if causal else visible
        seen = ops.any(reached, axis=-1, keepdims=True)
        if torch:  # takes a mask or the flag, not both; else the flag halves what is computed
            visible, causal = reached, False
    if bias is not None:  # Keras takes a bias or a mask on PyTorch, not both
        hidden = -4e4 if keras.backend.standardize_dtype(query.dtype) == "float16" else -1e38
        bias, visible = ops.where(visible, bias, ops.cast(hidden, query.dtype)), None
    query, key, value = (swap_heads(x) for x in (query, key, value))
    y = ops.dot_product_attention(
        query, key, value, bias=bias, mask=visible, scale=1.0, is_causal=causal
    )
    y = swap_heads(y)  # (batch, heads, queries, value_dim)
    y = y if seen is None else ops.where(seen, y, ops.zeros((), y.dtype))
    return y[:, :, :queries]


def _evened(x: Tensor, axes: tuple[int, ...], least: int = 1) -> Tensor:
    """`x` with one zero more on each of the axes whose size is odd and `least` or more."""
    widths = [(0, 0)] * len(x.shape)
    for axis in axes:
        widths[axis] = (0, x.shape[axis] % 2 if x.shape[axis] >= least else 0)
    return ops.pad(x, widths)


# Heads, and scores of them, of one block: 4 MiB in float32, the third of which a core has in its
# caches. With 512 queries and keys in 4 heads the products of XLA on a CPU run at 320 to 415
# GFLOP/s, with 256 at 150 to 325 (two cores of an AMD EPYC with AVX-512).
HEADS, SCORES = 4, 2**20


class PairBlock(NamedTuple):
    """A block of pairs: the row of folded arrays, its first query and its first key."""

    row: Index
    query: Index
    key: Index


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A cut of `(batch, heads, queries, keys)`.

    Arrays are folded to `(rows, together, heads, length, dim)`, where a block is of one row. On a
    CPU a row is a few heads of one batch element, so that a block fits into the caches whatever the
    batch. On accelerators, and where devices share the batch, all of it is together in one row.

    Attributes:
        heads, shared: Number of heads of queries; of keys and values.
        queries, keys: The two lengths.
        causal: Whether query `i` sees keys `0 .. i` only; blocks that it does not see are left out.
    """

    heads: int
    shared: int
    queries: int
    keys: int
    causal: bool

    @functools.cached_property
    def whole(self) -> bool:
        """Whether the batch and all heads are together in one row."""
        if keras.backend.backend() == "torch" or keras.distribution.distribution() is not None:
            return True  # PyTorch's loop is Python's, and has few turns so
        return on_accelerator()

    @functools.cached_property
    def sharing(self) -> int:
        """Heads of queries in a block that share one of keys."""
        group = self.heads // self.shared
        return group if self.whole else _divisor(group, HEADS)

    @functools.cached_property
    def key_heads(self) -> int:
        """Heads of keys in a block."""
        if self.whole:
            return self.shared
        return (
            1
            if self.sharing < self.heads // self.shared
            else _divisor(self.shared, max(HEADS // self.sharing, 1))
        )

    @property
    def query_heads(self) -> int:
        """Heads of queries in a block."""
        return self.key_heads * self.sharing

    @property
    def rows_of_example(self) -> int:
        """Rows that the heads of one batch element make."""
        return self.heads // self.query_heads

    @functools.cached_property
    def query_size(self) -> int:
        return self._size(self.queries)

    @functools.cached_property
    def key_size(self) -> int:
        return self._size(self.keys)

    def _size(self, length: int) -> int:
        """Of equal blocks, as near as can be to the best size; a multiple of 8 if several."""
        best = math.sqrt(SCORES / min(self.query_heads, HEADS))
        number = max(round(length / best), 1)
        return length if number == 1 else -(-length // (8 * number)) * 8

    @functools.cached_property
    def starts(self) -> Array:
        """int32 `(blocks, 2)`: the first query and key of every block of a row."""
        queries = range(0, self.queries, self.query_size)
        keys = range(0, self.keys, self.key_size)
        seen = [(i, j) for i in queries for j in keys if not self.causal or j < i + self.query_size]
        return np.array(seen, "int32")

    def block(self, number: Any) -> PairBlock:
        """The `number`-th of all blocks of all rows."""
        start = ops.take(ops.convert_to_tensor(self.starts), number % len(self.starts), axis=0)
        return PairBlock(number // len(self.starts), start[0], start[1])

    def fold(self, x: Tensor, heads: int, size: int) -> Tensor:
        """`(batch, all heads, length, dim)` -> `(rows, together, heads, whole blocks, dim)`."""
        return self._padded(self.fold_heads(x, heads), size, 1)

    def fold_heads(self, x: Tensor, heads: int) -> Tensor:
        if self.whole:
            return x[None]
        return ops.reshape(x, (-1, 1, 1 if x.shape[1] == 1 else heads, *x.shape[2:]))

    def unfold(self, y: Tensor, length: int) -> Tensor:
        """What `fold` made of queries, as it was."""
        y = y[:, :, :, :length]
        return y[0] if self.whole else ops.reshape(y, (-1, self.heads, length, y.shape[-1]))

    def unfolded(self, x: Tensor, like: Tensor, offset: int = 0) -> Tensor:
        """Returns what a fold made, of which the last axis begins at `offset`, as `like` is."""
        shape = ops.shape(like)
        length, dim = (1, *like.shape)[-2:]
        x = x[:, :, :, :length, offset : offset + dim]
        return ops.reshape(x, shape)

    def fold_pairs(self, x: Tensor) -> tuple[Tensor, tuple[bool, bool]]:
        """A mask or bias, each axis of which may be 1, and whether batch and heads are not."""
        for _ in range(4 - len(x.shape)):
            x = x[None]
        by = (x.shape[0] != 1, x.shape[1] != 1)
        sizes = [
            1 if length == 1 else size
            for length, size in zip(x.shape[2:], (self.query_size, self.key_size), strict=True)
        ]
        return self._padded(self.fold_heads(x, self.query_heads), *sizes), by

    def fold_distances(self, x: Tensor) -> tuple[Tensor, tuple[bool, bool]]:
        """`(heads or 1, queries + keys - 1)`, with distances of all whole blocks."""
        ends = (-self.queries % self.query_size, -self.keys % self.key_size)
        x = ops.pad(x, ((0, 0), ends)) if any(ends) else x
        return self.fold_heads(x[None, :, None], self.query_heads), (False, x.shape[0] != 1)

    @staticmethod
    def _padded(x: Tensor, *sizes: int) -> Tensor:
        """`x` with its last two axes made multiples of sizes, by zeros or False."""
        ends = [-length % size for length, size in zip(x.shape[3:], sizes, strict=True)]
        return ops.pad(x, [(0, 0)] * 3 + [(0, end) for end in ends]) if any(ends) else x

    def first_distance(self, block: PairBlock) -> Index:
        """Where the distances of a block begin in what `fold_distances` made."""
        zero = -(-self.queries // self.query_size) * self.query_size - 1
        return block.key - block.query + (zero - self.query_size + 1)

    def row_of_key(self, row: Index) -> Index:
        """Row of keys and values that a row of queries is compared with."""
        return row // (self.heads // self.shared // self.sharing)

    def row_of_pairs(self, row: Any, by: tuple[bool, bool]) -> Index:
        """Row of what `fold_pairs` made."""
        number = self.rows_of_example
        if by[0]:
            return row if by[1] else row // number
        return row % number if by[1] else 0


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`."""
    return max(i for i in range(1, most + 1) if number % i == 0)


def cut(x: Tensor, start: tuple[Index, ...], sizes: tuple[int | None, ...]) -> Tensor:
    """The part of a folded array in one row, from `start` on: `(together, heads, ...)`.

    Args:
        x: `(rows, together, heads, a, b)`.
        start: Row, and where to begin along the last two axes.
        sizes: How many of each of them; None for all.
    """
    shape = ops.shape(x)
    ends = [size or whole for size, whole in zip(sizes, shape[3:], strict=True)]
    return ops.slice(x, (start[0], 0, 0, *start[1:]), (1, *shape[1:3], *ends))[0]


def put(x: Tensor, start: tuple[Index, ...], new: Tensor) -> Tensor:
    """`x` with that part replaced."""
    return ops.slice_update(x, (start[0], 0, 0, *start[1:]), new[None])


def add(x: Tensor, start: tuple[Index, ...], more: Tensor) -> Tensor:
    """`x` with something added to that part."""
    return put(x, start, cut(x, start, tuple(more.shape[2:])) + more)


# Below every score, and finite: a row that has seen nothing yet makes no NaN.
LEAST = float(np.finfo("float32").min)


class Pairs(NamedTuple):
    """What concerns pairs, beside queries and keys.

    Attributes:
        mask: Bool that broadcasts against `(batch, heads, queries, keys)`; True = attend.
        bias: Added to the scores, broadcasts likewise.
        by_distance: Added to the scores, `(heads or 1, queries + keys - 1)`: of every distance
            between key and query, `-(queries - 1) .. keys - 1`.
        rate, seed: Of the dropout on weights, and two integers if there is any.
    """

    mask: Tensor | None = None
    bias: Tensor | None = None
    by_distance: Tensor | None = None
    rate: float = 0.0
    seed: Tensor | None = None


NOTHING = Pairs()


def blockwise_attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool = False, pairs: Pairs = NOTHING
) -> Tensor:
    """`softmax(Q K^T + bias) V` of several heads, in blocks; lengths must be known.

    The softmax is in float32. A query that may attend to nothing gets zeros, and gives none of its
    gradient. Dropout has the masks that `Dropout` would have for all weights at once.

    Args:
        query: `(batch, heads, queries, key_dim)`, scaled.
        key: `(batch, key_value_heads, keys, key_dim)`; `heads` is a multiple of these.
        value: `(batch, key_value_heads, keys, value_dim)`.
        causal: Whether query `i` sees keys `0 .. i` only.
        pairs: Mask, biases and dropout.

    Returns:
        `(batch, heads, queries, value_dim)`, in the dtype of `query`.
    """
    heads, shared, queries, keys = query.shape[1], key.shape[1], query.shape[2], key.shape[2]
    tensors = {"query": query, "key": key, "value": value}
    optional = {"mask": pairs.mask, "bias": pairs.bias, "by_distance": pairs.by_distance}
    tensors |= {name: x for name, x in optional.items() if x is not None}
    if pairs.seed is not None and pairs.rate:
        tensors["seed"] = pairs.seed
    blocks = Blocks(heads, shared, queries, keys, causal)
    precise = keras.backend.result_type(query.dtype, "float32")
    attention = _Attention(blocks, list(tensors), pairs.rate, precise)
    derived = custom_gradient(attention.output, attention.gradients, attention.plain)
    return derived(*tensors.values())


class _Attention:
    """Attention of named tensors, in blocks; its gradients; and the same of all pairs at once."""

    def __init__(self, blocks: Blocks, names: list[str], rate: float, precise: str) -> None:
        self.blocks, self.names = blocks, names
        self.rate, self.precise = rate, precise
        self.by: dict[str, tuple[bool, bool]] = {}  # see `Blocks.fold_pairs`

    def output(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the output, and of each row the logarithm of the sum of its exponentials."""
        given = self._folded(tensors)
        y, log_sum = self._forward(given)
        y = ops.cast(y, given["query"].dtype)
        return self.blocks.unfold(y, self.blocks.queries), log_sum

    def gradients(
        self, tensors: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor], upstream: Tensor
    ) -> list[Tensor | None]:
        """Returns the gradients by queries, keys, values and biases; None by the others."""
        blocks, given = self.blocks, self._folded(tensors)
        y, upstream = (
            blocks.fold(x, blocks.query_heads, blocks.query_size) for x in (outputs[0], upstream)
        )
        changes = self._backward(given, y, outputs[1], upstream)
        return [
            blocks.unfolded(changes[name], x, *self._offsets(name)) if name in changes else None
            for name, x in zip(self.names, tensors, strict=True)
        ]

    def plain(self, *tensors: Tensor) -> Tensor:
        """Returns the output, computed of all pairs at once; derivatives of higher order use it."""
        given, blocks = dict(zip(self.names, tensors, strict=True)), self.blocks
        scores = ops.cast(product(given["query"], given["key"], transposed=True), self.precise)
        bias, lengths = given.get("bias"), (blocks.queries, blocks.keys)
        if "by_distance" in given:
            distances = np.arange(blocks.keys) - np.arange(blocks.queries)[:, None]
            term = ops.take(given["by_distance"], distances + blocks.queries - 1, axis=-1)
            bias = term if bias is None else term + ops.cast(bias, term.dtype)
        mask = causal_mask(*lengths) if blocks.causal else None
        weights = softmax_of_visible(scores, combine_masks(mask, given.get("mask")), bias)
        if "seed" in given:
            # The same masks as in blocks, see `_dropped`.
            batch, heads = ops.shape(weights)[:2]
            head = ops.reshape(ops.arange(batch * heads, dtype="int32"), (-1, heads, 1, 1))
            query = head * blocks.queries + ops.arange(blocks.queries, dtype="int32")[:, None]
            index = query * blocks.keys + ops.arange(blocks.keys, dtype="int32")
            size = ops.cast(batch * heads, "int32") * blocks.queries * blocks.keys
            is_kept = regularization.kept_at(index, size, self.rate, given["seed"])
            weights = ops.where(is_kept, weights * (1 / (1 - self.rate)), 0.0)
        y = product(ops.cast(weights, given["value"].dtype), given["value"])
        return ops.cast(y, given["query"].dtype)

    def _folded(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns the tensors by name, as `Blocks` folds them."""
        blocks, given = self.blocks, dict(zip(self.names, tensors, strict=True))
        given["query"] = blocks.fold(given["query"], blocks.query_heads, blocks.query_size)
        for name in ("key", "value"):
            given[name] = blocks.fold(given[name], blocks.key_heads, blocks.key_size)
        for name in ("mask", "bias"):
            if name in given:
                given[name], self.by[name] = blocks.fold_pairs(given[name])
        if "by_distance" in given:
            given["by_distance"], by = blocks.fold_distances(given["by_distance"])
            self.by["by_distance"] = by
        return given

    def _offsets(self, name: str) -> tuple[int, ...]:
        """Returns how many entries `fold_distances` put in front."""
        return (-self.blocks.queries % self.blocks.query_size,) if name == "by_distance" else ()

    def _forward(self, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Output, and logarithm of the sum of each row's exponentials, in float32."""
        rows, together, heads, length, _ = ops.shape(given["query"])
        value, size = given["value"], self.blocks.query_size

        def step(number: Index, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            block = self.blocks.block(number)
            start = (block.row, block.query, 0)
            y, most, total = (cut(x, start, (size, None)) for x in state)
            scores = self._scores(given, block)  # (together, heads, queries, keys)
            larger = ops.maximum(most, ops.max(scores, axis=-1, keepdims=True))
            weights, shrink = ops.exp(scores - larger), ops.exp(most - larger)
            total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
            dropped = ops.cast(self._dropped(given, weights, block), value.dtype)
            more = product(dropped, self._of_key(value, block))
            new = (y * shrink + ops.cast(more, self.precise), larger, total)
            return tuple(put(x, start, each) for x, each in zip(state, new, strict=True))

        column = (rows, together, heads, length, 1)
        state = (
            ops.zeros((*column[:4], value.shape[-1]), self.precise),
            ops.full(column, LEAST, self.precise),
            ops.zeros(column, self.precise),
        )
        y, most, total = ops.fori_loop(0, rows * len(self.blocks.starts), step, state)
        seen = total > 0
        total = ops.where(seen, total, 1.0)
        return y / total, ops.where(seen, most + ops.log(total), 0.0)

    def _backward(
        self, given: dict[str, Tensor], y: Tensor, log_sum: Tensor, upstream: Tensor
    ) -> dict[str, Tensor]:
        """Gradients by name of the argument.

        Those of keys and values are summed up with tokens as columns: on a CPU the product of a
        few columns with the weights runs at 345 GFLOP/s, that of the transposed weights with them
        at 128 (4 heads, 512 x 512, two cores of an AMD EPYC with AVX-512).
        """
        blocks, query, key, value = self.blocks, given["query"], given["key"], given["value"]
        size = (blocks.query_size, None)
        wide = ops.cast(upstream, self.precise) * ops.cast(y, self.precise)
        delta = ops.sum(wide, axis=-1, keepdims=True)

        def step(number: Index, state: dict[str, Tensor]) -> dict[str, Tensor]:
            block = blocks.block(number)
            start = (block.row, block.query, 0)
            key_start = (blocks.row_of_key(block.row), 0, block.key)
            q, g = cut(query, start, size), cut(upstream, start, size)
            weights = ops.exp(self._scores(given, block) - cut(log_sum, start, size))
            by_weight = product(g, self._of_key(value, block), transposed=True)
            by_weight = self._dropped(given, ops.cast(by_weight, self.precise), block)
            by_score = weights * (by_weight - cut(delta, start, size))
            dropped = ops.cast(self._dropped(given, weights, block), value.dtype)
            state = self._with_bias_gradients(state, by_score, block)
            by_score = ops.cast(by_score, query.dtype)
            new = dict(state)
            by_query = product(by_score, self._of_key(key, block))
            new["query"] = add(state["query"], start, ops.cast(by_query, self.precise))
            for name, x, pairs in (("key", q, by_score), ("value", g, dropped)):
                columns = ops.cast(self._columns(x, pairs), self.precise)
                new[name] = add(state[name], key_start, columns)
            return new

        state = {"query": ops.zeros(ops.shape(query), self.precise)}
        for name in ("key", "value"):
            rows, together, heads, length, dim = ops.shape(given[name])
            state[name] = ops.zeros((rows, together, heads, dim, length), self.precise)
        for name in ("bias", "by_distance"):
            if name in given:
                state[name] = ops.zeros(ops.shape(given[name]), self.precise)
        number = ops.shape(query)[0] * len(blocks.starts)
        state = ops.fori_loop(0, number, step, state)
        for name in ("key", "value"):
            state[name] = ops.swapaxes(state[name], 3, 4)
        return {name: ops.cast(x, given[name].dtype) for name, x in state.items()}

    def _scores(self, given: dict[str, Tensor], block: PairBlock) -> Tensor:
        """Scores of a block in float32, minus infinity where a query does not see a key."""
        blocks, row = self.blocks, block.row
        query = cut(given["query"], (row, block.query, 0), (blocks.query_size, None))
        scores = product(query, self._of_key(given["key"], block), transposed=True)
        scores, visible = ops.cast(scores, self.precise), []
        if "by_distance" in given:
            scores = scores + self._of_distances(given, block)
        if "bias" in given:
            bias = ops.cast(self._of_pairs(given, "bias", block), self.precise)
            scores = scores + bias
            visible.append(bias > -math.inf)
        if "mask" in given:
            visible.append(self._of_pairs(given, "mask", block))
        queries = block.query + ops.arange(blocks.query_size, dtype="int32")
        keys = block.key + ops.arange(blocks.key_size, dtype="int32")
        if blocks.causal:
            visible.append(queries[:, None] >= keys)
        if blocks.keys % blocks.key_size:
            visible.append(keys < blocks.keys)
        for mask in visible:
            scores = ops.where(mask, scores, -math.inf)
        return scores

    def _of_key(self, x: Tensor, block: PairBlock) -> Tensor:
        """Keys or values of a block."""
        start = (self.blocks.row_of_key(block.row), block.key, 0)
        return cut(x, start, (self.blocks.key_size, None))

    def _of_pairs(self, given: dict[str, Tensor], name: str, block: PairBlock) -> Tensor:
        """Mask or bias of a block."""
        start, sizes = self._place(given[name], name, block)
        return cut(given[name], start, sizes)

    def _place(self, x: Tensor, name: str, block: PairBlock) -> tuple[Any, tuple[int, int]]:
        """Where the part of a mask or bias for a block begins, and its two sizes."""
        row = self.blocks.row_of_pairs(block.row, self.by[name])
        if name == "by_distance":
            distances = self.blocks.query_size + self.blocks.key_size - 1
            return (row, 0, self.blocks.first_distance(block)), (1, distances)
        query, queries = (0, 1) if x.shape[3] == 1 else (block.query, self.blocks.query_size)
        key, keys = (0, 1) if x.shape[4] == 1 else (block.key, self.blocks.key_size)
        return (row, query, key), (queries, keys)

    def _of_distances(self, given: dict[str, Tensor], block: PairBlock) -> Tensor:
        """Biases of a block, constant along its diagonals: each row is the one above, shifted."""
        queries, keys = self.blocks.query_size, self.blocks.key_size
        x = self._of_pairs(given, "by_distance", block)  # (together, heads, 1, distances)
        lead, distances = ops.shape(x)[:2], queries + keys - 1
        x = ops.pad(ops.cast(x, self.precise), ((0, 0), (0, 0), (0, 0), (0, 1)))
        x = ops.reshape(ops.repeat(x, queries, axis=2), (*lead, queries * (distances + 1)))
        x = ops.reshape(x[:, :, : queries * distances], (*lead, queries, distances))
        return x[:, :, :, queries - 1 :]

    def _to_distances(self, pairs: Tensor) -> Tensor:
        """Sums along the diagonals of a block, `(together, heads, 1, distances)`."""
        queries, keys = self.blocks.query_size, self.blocks.key_size
        lead, distances = ops.shape(pairs)[:2], queries + keys - 1
        x = ops.pad(pairs, ((0, 0), (0, 0), (0, 0), (queries - 1, 0)))
        x = ops.reshape(x, (*lead, queries * distances))
        x = ops.reshape(ops.pad(x, ((0, 0), (0, 0), (0, queries))), (*lead, queries, -1))
        return ops.sum(x, axis=2, keepdims=True)[:, :, :, :distances]

    def _with_bias_gradients(
        self, state: dict[str, Tensor], by_score: Tensor, block: PairBlock
    ) -> dict[str, Tensor]:
        """The sums so far with what the gradients by the scores of a block add to biases'."""
        state = dict(state)
        for name in self.by:
            if name in state:
                more = self._to_distances(by_score) if name == "by_distance" else by_score
                ones = [axis for axis in range(4) if state[name].shape[axis + 1] == 1]
                more = ops.sum(more, axis=ones, keepdims=True) if ones else more
                start, _ = self._place(state[name], name, block)
                state[name] = add(state[name], start, more)
        return state

    def _dropped(self, given: dict[str, Tensor], x: Tensor, block: PairBlock) -> Tensor:
        """Weights after dropout, or the gradients by them; the same masks whenever it is asked."""
        if "seed" not in given:
            return x
        blocks = self.blocks
        together, heads = ops.shape(x)[:2]
        element = block.row * together + ops.arange(together, dtype="int32")
        head = element[:, None] * heads + ops.arange(heads, dtype="int32")
        query = block.query + ops.arange(blocks.query_size, dtype="int32")
        key = block.key + ops.arange(blocks.key_size, dtype="int32")
        # As in `(batch, heads, queries, keys)`.
        index = (head[:, :, None] * blocks.queries + query)[..., None] * blocks.keys + key
        size = ops.shape(given["query"])[0] * together * heads
        size = ops.cast(size, "int32") * blocks.queries * blocks.keys
        kept = regularization.kept_at(index, size, self.rate, given["seed"])
        return ops.where(kept, x * (1 / (1 - self.rate)), 0.0)

    def _columns(self, x: Tensor, pairs: Tensor) -> Tensor:
        """`x^T pairs`, `(together, key_heads, dim, keys)`, summed over heads that share a key."""
        heads = self.blocks.key_heads
        if heads != self.blocks.query_heads:
            x, pairs = regroup(x, heads), regroup(pairs, heads)
        return ops.matmul(ops.swapaxes(x, 2, 3), pairs)
