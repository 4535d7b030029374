"""How the pairs of queries and keys are cut into blocks that fit into a processor's cache."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformers.accelerators import on_accelerator
from keras_transformers.annotations import Array, Index, Tensor

# Heads, and scores of them, of one block: 4 MiB in float32, the third of which a core has in its
# caches. With 512 queries and keys in 4 heads the products of XLA on a CPU run at 320 to 415
# GFLOP/s, with 256 at 150 to 325 (two cores of an AMD EPYC with AVX-512).
HEADS, SCORES = 4, 2**20


class Block(NamedTuple):
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

    def block(self, number: Any) -> Block:
        """The `number`-th of all blocks of all rows."""
        start = ops.take(ops.convert_to_tensor(self.starts), number % len(self.starts), axis=0)
        return Block(number // len(self.starts), start[0], start[1])

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

    def first_distance(self, block: Block) -> Index:
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
