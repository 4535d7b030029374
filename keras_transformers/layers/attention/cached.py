"""Causal self-attention, also token by token with a cache.

A cache is two arrays for each layer, `(batch, heads, max_length * beams, dim)`. The heads come
first, as the products need them. Then come the positions in order, with a slot for every beam at
each position. A token stays in the slot it was written to. When a search moves its beams, nothing
is copied: `visible_slots` says where the past of each beam lies.

The arrays can have fewer bits than the compute dtype (`cache_in`). With 8 bits there is a scale
for the key and for the value of each token and head, in two more arrays.
"""

from collections.abc import Callable
from typing import Any, TypeGuard, cast

import keras
from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.core.backend import KERNELS
from keras_transformers.core.types import Cache, Index, Tensor
from keras_transformers.layers.attention.multi_head import (
    AttentionMasks,
    MultiHeadAttention,
    SelfAttention,
)
from keras_transformers.layers.attention.scores import project, project_token, swap_heads
from keras_transformers.layers.positions.biases import AttentionPositionEncoding

SCALE = "_scale"  # behind the name of what it belongs to


def in_columns(beams: int) -> bool:
    """Whether keys are columns, `(batch, heads, dim, max_length * beams)`."""
    return beams > 1 and KERNELS.get() is None


def cache_in(cache: Cache, beams: int, dtype: str) -> Cache:
    """An empty cache like this one whose keys and values are held in another type.

    Args:
        cache: From `start_cache`, `{"key": ..., "value": ...}`.
        beams: The number it was started with.
        dtype: A floating-point type; or "int8", with a float32 scale for each key and value.
    """
    held = {name: ops.cast(x, dtype) for name, x in cache.items()}
    if dtype == "int8":
        key, value = cache["key"], cache["value"]
        held["key" + SCALE] = ops.cast(
            key[:, :, :1] if in_columns(beams) else key[..., :1], "float32"
        )
        held["value" + SCALE] = ops.cast(value[..., :1], "float32")
    return held


def entries_of(cache: Cache, key: Tensor, value: Tensor) -> Cache:
    """New keys and values `(batch, heads, tokens, dim)` as the cache holds them, in rows."""
    if "key" + SCALE not in cache:
        new = {"key": key, "value": value}
        return {name: ops.cast(x, cache[name].dtype) for name, x in new.items()}
    held = {}
    for name, x in (("key", key), ("value", value)):
        held[name], scale = abs_max_quantize(ops.cast(x, "float32"), axis=-1)
        held[name + SCALE] = 1 / scale
    return held


def update_cache(
    cache: Cache, key: Tensor, value: Tensor, index: Index, dtype: str
) -> tuple[Cache, Tensor, Tensor]:
    """Puts one token of every beam into the cache.

    Args:
        cache: From `start_cache`.
        key, value: `(batch, heads, beams, dim)`.
        index: Position of the token.
        dtype: The type to compute in.

    Returns:
        The cache with the token in it, and its keys and values `(batch, heads, positions, dim)`.
    """
    beams, kernels = key.shape[2], KERNELS.get()
    has_columns = beams > 1 and kernels is None  # of keys
    has_scales = "key" + SCALE in cache
    if has_scales:
        new = entries_of(cache, key, value)
    else:
        new = {"key": ops.cast(key, cache["key"].dtype)}
        new["value"] = ops.cast(value, cache["value"].dtype)
    filled = {}
    for name, x in new.items():
        if kernels is not None:
            filled[name] = kernels.update_slice(cache[name], index * beams, x)
        elif has_columns and name.startswith("key"):
            start = (0, 0, 0, index * beams)
            filled[name] = ops.slice_update(cache[name], start, ops.swapaxes(x, 2, 3))
        else:
            filled[name] = ops.slice_update(cache[name], (0, 0, index * beams, 0), x)
    if has_scales:
        return filled, *read_cache(filled, beams, dtype)
    keys = ops.cast(filled["key"], dtype)
    values = ops.cast(filled["value"], dtype)
    return filled, ops.swapaxes(keys, 2, 3) if has_columns else keys, values


def fill_cache(cache: Cache, key: Tensor, value: Tensor, beams: int) -> Cache:
    """Puts the first tokens of sequences, `(batch, heads, length, dim)`, into all beams' slots."""
    filled = {}
    for name, new in entries_of(cache, key, value).items():
        new, axis = ops.repeat(new, beams, axis=2) if beams > 1 else new, 2
        rest = cache[name][:, :, ops.shape(new)[2] :]
        if in_columns(beams) and name.startswith("key"):
            rest, axis = cache[name][..., ops.shape(new)[2] :], 3
            new = ops.swapaxes(new, 2, 3)
        filled[name] = ops.concatenate([new, rest], axis=axis)
    return filled


def read_cache(cache: Cache, beams: int, dtype: str) -> tuple[Tensor, Tensor]:
    """Keys and values, both `(batch, heads, positions, dim)`, in the type to compute in."""
    key, value = (ops.cast(cache[name], dtype) for name in ("key", "value"))
    if "key" + SCALE in cache:
        key = key * ops.cast(cache["key" + SCALE], dtype)
        value = value * ops.cast(cache["value" + SCALE], dtype)
    return (ops.swapaxes(key, 2, 3) if in_columns(beams) else key), value


def visible_slots(index: Index, cache: Cache, beams: int, slots: Tensor | None = None) -> Tensor:
    """Which positions of the cache each beam may attend to at position `index`.

    Args:
        index: Position of the newest token, an int or a scalar tensor.
        cache: From `start_cache`, for `max_length` positions.
        beams: Number of beams, and of slots for a position.
        slots: Integers `(batch, beams, max_length or more)`, the slot in which each position of a
            beam's past lies; None where every beam has kept its own.

    Returns:
        Bool `(batch or 1, beams, max_length * beams)`.
    """
    max_length = ops.shape(cache["value"])[2] // beams
    past = ops.arange(max_length) <= index
    slots = ops.arange(beams)[None, :, None] if slots is None else slots[..., :max_length]
    own = ops.equal(slots[..., None], ops.arange(beams, dtype=slots.dtype))
    visible = ops.logical_and(own, past[:, None])
    batch = -1 if visible.shape[0] is None else visible.shape[0]
    return ops.reshape(visible, (batch, beams, max_length * beams if batch == -1 else -1))


FEW = 16  # rows up to which each is written by itself, in place


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


@keras.saving.register_keras_serializable("keras_transformers")
class CausalSelfAttention(SelfAttention):
    """Self-attention in which no token sees a later one, with a key/value cache for decoding.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.3 (the decoder's).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments: Those of `SelfAttention`.

    Returns: `(batch, length, hidden_dim)`, and the weights on request.

    Example: token by token gives what the whole sequence gives.
    >>> import numpy as np
    >>> from keras_transformers.layers import CausalSelfAttention
    >>> layer, x = CausalSelfAttention(num_heads=2), np.random.rand(1, 3, 8).astype("float32")
    >>> whole = layer(x)
    >>> cache = layer.start_cache(batch=1, beams=1, max_length=3)
    >>> for i in range(3):
    ...     y, cache = layer.step(x[:, i : i + 1], cache, i)
    >>> bool(np.allclose(y[:, 0], whole[:, 2], atol=1e-5))
    True
    """

    causal = True

    def start_cache(self, batch: Any, beams: int, max_length: Index) -> Cache:
        """Empty keys and values for `beams` sequences of each batch element.

        They take `batch * beams * max_length * key_value_heads * (key_dim + value_dim)` numbers of
        the compute dtype: `{"key": (batch, key_value_heads, max_length * beams, key_dim), "value":
        likewise}`. The keys of several beams are columns, their last two axes swapped: that way
        round the product of a few queries with them is quicker on a CPU (a step of four beams by
        7 %), and that of a single query slower (a step of one by 15 %). See `attention.cache`.
        """
        heads, key_dim, value_dim = self.head_dims
        positions = beams * max_length
        key_shape = (key_dim, positions) if in_columns(beams) else (positions, key_dim)
        return {
            "key": ops.zeros((batch, heads, *key_shape), self.compute_dtype),
            "value": ops.zeros((batch, heads, positions, value_dim), self.compute_dtype),
        }

    def step(
        self, x: Tensor, cache: Cache, index: Index, visible: Tensor | None = None,
        attention_bias: Tensor | None = None
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        """Attends from the token at position `index` to itself and those before it.

        Args:
            x: `(batch, beams, hidden_dim)`, one token of every sequence.
            cache: From `start_cache`, filled by the steps before.
            index: Position of the token, an int or a scalar tensor; `(batch,)` for a `step_block`.
            visible: From `visible_slots`; by default every beam sees its own slot.
            attention_bias: Optional, added to the scores `(batch, heads, beams, positions)`.

        Returns:
            `(batch, beams, hidden_dim)` and the cache with this token in it.
        """
        if len(getattr(index, "shape", ())) == 1:
            return self.step_block(x, cache, cast(Tensor, index), visible, attention_bias)
        beams = x.shape[1]
        here = ops.broadcast_to(ops.cast(index, "int32"), (beams,))
        query, key, value = (
            swap_heads(project_token(dense, x))  # (batch, heads, beams, dim)
            for dense in (self.query_dense, self.key_dense, self.value_dense)
        )
        query, key = self.prepare_query(query, here), self.prepare_key(key, here)
        cache, key, value = update_cache(cache, key, value, index, self.compute_dtype)
        if visible is None:
            visible = visible_slots(index, cache, beams)
        y = self.attend_past(query, key, value, visible, attention_bias, index)
        return project_token(self.output_dense, swap_heads(y)), cache

    def attend_past(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, bias: Tensor | None,
        index: Index
    ) -> Tensor:  # fmt: skip
        """A hook: `attend` of a step, to what is in the cache.

        Args:
            query: `(batch, heads, beams, key_dim)`, prepared, all of position `index`.
            key, value: `(batch, key_value_heads, max_length * beams, ...)`, the beams of a position
                one after the other.
            visible: Bool `(batch or 1, beams, max_length * beams)`.
            bias: Added to the scores, or None; see `step`.
            index: Position of the token, an int or a scalar tensor.

        Returns:
            `(batch, heads, beams, value_dim)`.
        """
        beams = visible.shape[1]
        here = ops.broadcast_to(ops.cast(index, "int32"), (beams,))
        positions = (here, ops.arange(ops.shape(value)[2], dtype="int32") // beams)
        return self.attend(query, key, value, visible[:, None], bias, positions)[0]

    def prefill(self, x: Tensor, cache: Cache, beams: int) -> tuple[Tensor, Cache]:
        """Attends between the first tokens of every sequence, and puts them into the cache.

        Args:
            x: `(batch, length, hidden_dim)`, tokens that all beams begin with.
            cache: From `start_cache`.
            beams: The number it was started with.

        Returns:
            `(batch, length, hidden_dim)` and the cache with these tokens in it.
        """
        here = ops.arange(ops.shape(x)[1], dtype="int32")
        denses = (self.query_dense, self.key_dense, self.value_dense)
        query, key, value = project(x, *denses, heads_first=True)  # (batch, heads, length, dim)
        query, key = self.prepare_query(query, here), self.prepare_key(key, here)
        heads = (query, key, value)
        y: Any = self.attend_heads((x, x), heads, AttentionMasks(causal=True), (here, here))
        return y, fill_cache(cache, key, value, beams)

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
