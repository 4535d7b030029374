"""The attentions of a decoder, to its past and to a context, token by token.

What a decoder has seen lies in arrays of `attention.cache`, two a layer or, in 8 bits, four.
"""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Cache, Index, MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.block_step import BlockSteps, is_block
from keras_transformers.layers.attention.cache import (
    fill_cache,
    in_columns,
    read_cache,
    visible_slots,
    write_cache,
)
from keras_transformers.layers.attention.multi_head import MultiHeadAttention
from keras_transformers.layers.masks import given_padding, hide_padding
from keras_transformers.layers.positions.sequence import with_positions
from keras_transformers.layers.projections import project, project_token, swap_heads


@keras.saving.register_keras_serializable("keras_transformers")
class CausalSelfAttention(BlockSteps):
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
        if is_block(index):
            return self.step_block(x, cache, index, visible, attention_bias)
        beams = x.shape[1]
        here = ops.broadcast_to(ops.cast(index, "int32"), (beams,))
        query, key, value = (
            swap_heads(project_token(dense, x))  # (batch, heads, beams, dim)
            for dense in (self.query_dense, self.key_dense, self.value_dense)
        )
        query, key = self.prepare_query(query, here), self.prepare_key(key, here)
        cache = write_cache(cache, key, value, index)
        if visible is None:
            visible = visible_slots(index, cache, beams)
        key, value = read_cache(cache, beams, self.compute_dtype)
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
        parts = project(x, self.query_dense, self.key_dense, self.value_dense)
        query, key, value = map(swap_heads, parts)  # (batch, heads, length, dim)
        query, key = self.prepare_query(query, here), self.prepare_key(key, here)
        y, _ = self.attend_to((x, x), (query, key, value), None, None, True, None, (here, here))
        (y,) = project(swap_heads(y), self.output_dense)  # (batch, length, output width)
        return y, fill_cache(cache, key, value, beams)


@keras.saving.register_keras_serializable("keras_transformers")
class CrossAttention(MultiHeadAttention):
    """Multi-head attention from one sequence to another, of any length and width.

    Queries come from `x`, keys and values from `context` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.2.3: encoder-decoder attention).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`.
        attention_mask: Optional bool `(batch, length, context_length)`; True = attend.
        attention_bias, return_attention_scores, training: See `SelfAttention`.
        positions: Optional, `(length, hidden_dim)` or `(batch, length, hidden_dim)`, added to what
            queries are made of.
        context_positions: The same for `context`, added to what keys are made of, not to the
            values (Carion et al. 2020, https://arxiv.org/abs/2005.12872, section A.3).
        context_mask: `(batch, context_length)` padding mask; filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, on request with weights `(batch, heads, length, keys)`.

    Raises:
        ValueError: As `MultiHeadAttention`, and for a `position`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import CrossAttention
    >>> x, context = np.ones((2, 5, 12), "float32"), np.ones((2, 7, 20), "float32")
    >>> tuple(CrossAttention(num_heads=3)(x, context).shape)
    (2, 5, 12)
    """

    input_names = ("x", "context", "context")

    def build(self, x_shape: Shape, context_shape: Shape) -> None:
        if self.position is not None:
            expected = "None, for positions in two sequences have no common origin"
            self._refuse("position", expected, type(self.position).__name__)
        super().build(x_shape, context_shape)

    def call(
        self, x: Tensor, context: Tensor, attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None, positions: Tensor | None = None,
        context_positions: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, context_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        query, key = x, context
        if positions is not None:
            query = with_positions(self, "positions", x, positions)
        if context_positions is not None:
            key = with_positions(self, "context_positions", context, context_positions)
        return super().call(
            query,
            context,
            key,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            value_mask=context_mask,
        )

    def compute_output_shape(self, x_shape: Shape, context_shape: Shape | None = None) -> Shape:
        return super().compute_output_shape(x_shape)

    def project_context(self, context: Tensor, context_mask: Tensor | None = None) -> Cache:
        """Keys and values of `context`, computed once for all steps and beams of `step`.

        They take `batch * context_length * key_value_heads * (key_dim + value_dim)` numbers of the
        compute dtype. `context_mask` is that of the steps; it need not be given where padding holds
        numbers that are finite.

        Returns:
            `{"key": (batch, key_value_heads, context_length, key_dim), "value": likewise}`.
        """
        context = hide_padding(context, given_padding(self, context, context_mask=context_mask))
        key, value = self.key_dense(context), self.value_dense(context)
        key, value = swap_heads(key), swap_heads(value)  # (batch, heads, context_length, dim)
        return {"key": self.prepare_key(key, None), "value": value}

    def step(
        self, x: Tensor, cache: Cache, context_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from one token of each of several sequences that share a context.

        Args:
            x: `(batch, beams, hidden_dim)`.
            cache, context_mask: From `project_context`; optional bool `(batch, context_length)`.

        Returns:
            `(batch, beams, hidden_dim)` and the weights `(batch, heads, beams, context_length)`.
        """
        query = self.prepare_query(swap_heads(project_token(self.query_dense, x)), None)
        mask = None if context_mask is None else ops.expand_dims(context_mask, (1, 2))
        y, weights = self.attend(query, cache["key"], cache["value"], mask, None, ())
        return project_token(self.output_dense, swap_heads(y)), weights
