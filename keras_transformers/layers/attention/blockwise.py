"""Exact attention that never holds the scores of all pairs.

Scores are computed for a block of queries and a block of keys at a time. The softmax of a row is
kept as its largest score and its sum so far (Rabe & Staats 2021, https://arxiv.org/abs/2112.05682;
Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 1), and the gradient computes the
weights of each block again from the logarithm of that sum. Memory is `O(length)` instead of
`O(length^2)`, for 7 products in place of 6.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.gradients import custom_gradient
from keras_transformers.layers import regularization
from keras_transformers.layers.attention.blocks import Block, Blocks, add, cut, put
from keras_transformers.layers.attention.scores import product, regroup, softmax_of_visible
from keras_transformers.layers.masks import causal_mask, combine_masks

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
    for name in ("mask", "bias", "by_distance"):
        if getattr(pairs, name) is not None:
            tensors[name] = getattr(pairs, name)
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

    def _scores(self, given: dict[str, Tensor], block: Block) -> Tensor:
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

    def _of_key(self, x: Tensor, block: Block) -> Tensor:
        """Keys or values of a block."""
        start = (self.blocks.row_of_key(block.row), block.key, 0)
        return cut(x, start, (self.blocks.key_size, None))

    def _of_pairs(self, given: dict[str, Tensor], name: str, block: Block) -> Tensor:
        """Mask or bias of a block."""
        start, sizes = self._place(given[name], name, block)
        return cut(given[name], start, sizes)

    def _place(self, x: Tensor, name: str, block: Block) -> tuple[Any, tuple[int, int]]:
        """Where the part of a mask or bias for a block begins, and its two sizes."""
        row = self.blocks.row_of_pairs(block.row, self.by[name])
        if name == "by_distance":
            distances = self.blocks.query_size + self.blocks.key_size - 1
            return (row, 0, self.blocks.first_distance(block)), (1, distances)
        query, queries = (0, 1) if x.shape[3] == 1 else (block.query, self.blocks.query_size)
        key, keys = (0, 1) if x.shape[4] == 1 else (block.key, self.blocks.key_size)
        return (row, query, key), (queries, keys)

    def _of_distances(self, given: dict[str, Tensor], block: Block) -> Tensor:
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
        self, state: dict[str, Tensor], by_score: Tensor, block: Block
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

    def _dropped(self, given: dict[str, Tensor], x: Tensor, block: Block) -> Tensor:
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
