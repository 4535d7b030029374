"""Several tokens of each sequence in one step of a decoder, every sequence at its own position.

What speculative decoding checks a draft with: the tokens see one another, causally, and what the
cache holds of those before them.
"""

from collections.abc import Callable
from typing import Any, TypeGuard

from keras import ops

from keras_transformers.annotations import Cache, Index, Tensor
from keras_transformers.layers.attention.cache import entries_of, read_cache
from keras_transformers.layers.attention.multi_head import MultiHeadAttention
from keras_transformers.layers.attention.self_attention import SelfAttention
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.projections import project_token, swap_heads

FEW = 16  # rows up to which each is written by itself, in place


class BlockSteps(SelfAttention):
    """The block step of `CausalSelfAttention`."""

    def step_block(
        self, x: Tensor, cache: Cache, index: Tensor, visible: Tensor | None = None,
        attention_bias: Tensor | None = None
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """Attends from several tokens of every sequence to themselves and those before them.

        Args:
            x: `(batch, length, hidden_dim)`, the tokens from position `index` on.
            cache: From `start_cache` of one beam, filled up to `index`, with room for these.
            index: Integers `(batch,)`.
            visible: Bool `(batch, length, max_length)` from `visible_to_block`, the default.
            attention_bias: Optional, added to the scores `(batch, heads, length, max_length)`.

        Returns:
            `(batch, length, hidden_dim)` and the cache with these tokens in it.
        """
        query, key, value = (
            swap_heads(project_token(dense, x))  # (batch, heads, length, dim)
            for dense in (self.query_dense, self.key_dense, self.value_dense)
        )
        query = _by_position(self.prepare_query, query, index)
        key = _by_position(self.prepare_key, key, index)
        cache = write_block(cache, key, value, index)
        if visible is None:
            visible = visible_to_block(index, cache, x.shape[1])
        key, value = read_cache(cache, 1, self.compute_dtype)
        y = self.attend_block(query, key, value, visible, attention_bias, index)
        return project_token(self.output_dense, swap_heads(y)), cache

    def attend_block(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, bias: Tensor | None,
        index: Tensor
    ) -> Tensor:  # fmt: skip
        """A hook: `attend` of a block step, to what is in the cache.

        Args:
            query: `(batch, heads, length, key_dim)`, prepared, from position `index` on.
            key, value: `(batch, key_value_heads, max_length, ...)`.
            visible: Bool `(batch, length, max_length)`.
            bias: Added to the scores, or None; see `step_block`.
            index: Integers `(batch,)`.

        Returns:
            `(batch, heads, length, value_dim)`.
        """
        plain = type(self).attend is MultiHeadAttention.attend and not _compares(self.position)
        if plain:  # positions change nothing any more, so rows may have different ones
            return self.attend(query, key, value, visible[:, None], bias, (index, index))[0]
        return attend_rows(self.attend, query, key, value, visible, bias, index)


def block_positions(index: Tensor, length: int, most: int | None = None) -> Tensor:
    """Positions of the tokens of a block, int32 `(batch, length)`, all below `most`."""
    positions = ops.cast(index, "int32")[:, None] + ops.arange(length, dtype="int32")
    return positions if most is None else ops.minimum(positions, most - 1)


def is_block(index: Index) -> TypeGuard[Tensor]:
    """Whether `index` is that of a block step, `(batch,)`, and not that of one token of all."""
    return len(getattr(index, "shape", ())) == 1


def visible_to_block(index: Tensor, cache: Cache, length: int) -> Tensor:
    """Which positions of the cache each token may attend to: bool `(batch, length, max_length)`."""
    past = ops.arange(ops.shape(cache["value"])[2], dtype="int32")
    return past <= block_positions(index, length)[..., None]


def write_block(cache: Cache, key: Tensor, value: Tensor, index: Tensor) -> Cache:
    """Puts tokens `(batch, heads, length, dim)` at the positions from `index` `(batch,)` on."""
    new = entries_of(cache, key, value)
    return {name: _written(cache[name], x, index) for name, x in new.items()}


def _written(x: Tensor, new: Tensor, index: Tensor) -> Tensor:
    batch, length, index = new.shape[0], new.shape[2], ops.cast(index, "int32")
    if batch is not None and batch <= FEW:
        for row in range(batch):
            x = ops.slice_update(x, (row, 0, index[row], 0), new[row : row + 1])
        return x
    past = ops.arange(ops.shape(x)[2], dtype="int32") - index[:, None]
    for token in range(length):  # one pass over the cache, when compiled
        here = ops.equal(past, token)[:, None, :, None]
        x = ops.where(here, new[:, :, token : token + 1], x)
    return x


def attend_rows(
    attend: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, visible: Tensor,
    bias: Tensor | None, index: Tensor
) -> Tensor:  # fmt: skip
    """`attend` of one row after the other, for it takes one vector of positions for all rows."""
    past = ops.arange(ops.shape(value)[2], dtype="int32")
    positions = block_positions(index, query.shape[2])
    outputs = []
    for row in range(query.shape[0]):
        here = slice(row, row + 1)
        of_row = None if bias is None else bias[here]
        parts = (query[here], key[here], value[here], visible[here, None], of_row)
        outputs.append(attend(*parts, (positions[row], past))[0])
    return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=0)


def _compares(position: AttentionPositionEncoding | None) -> bool:
    """Whether a term does more than to turn queries and keys, before they are compared."""
    if position is None:
        return False
    kind, base = type(position), AttentionPositionEncoding
    return kind.bias is not base.bias or kind.values is not base.values


def _by_position(prepare: Callable[[Tensor, Tensor], Tensor], x: Tensor, index: Tensor) -> Tensor:
    """`prepare` of `(batch, heads, length, dim)`, the tokens of all rows as those of one."""
    batch, heads, length, dim = x.shape
    positions = ops.reshape(block_positions(index, length), (-1,))
    x = ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (1, heads, -1, dim))
    x = ops.reshape(prepare(x, positions), (heads, -1, length, dim))
    return ops.transpose(x, (1, 0, 2, 3))  # (batch, heads, length, dim)
