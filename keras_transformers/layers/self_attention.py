"""Attention of a sequence to itself, in both directions or to the past only."""

import keras
from keras import ops

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.cache import (
    empty_cache,
    fill_cache,
    read_cache,
    room,
    visible_slots,
    write_cache,
)
from keras_transformers.layers.given_masks import given_padding
from keras_transformers.layers.heads import swap_heads
from keras_transformers.layers.positions import with_positions
from keras_transformers.layers.projections import project, project_token


@keras.saving.register_keras_serializable("keras_transformers")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself.

    Queries, keys and values are projections of the same `x` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.2.3).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool `(batch, length, length)`; True = attend. See
            `MultiHeadAttention`.
        attention_bias: Optional, added to the scores.
        positions: Optional, `(length, hidden_dim)` or `(batch, length, hidden_dim)`, added to what
            queries and keys are made of, not to the values (Carion et al. 2020,
            https://arxiv.org/abs/2005.12872, section A.3).
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, length)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SelfAttention
    >>> tuple(SelfAttention(num_heads=2)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    causal = False
    input_names = ("x", "x", "x")

    def build(self, x_shape):
        super().build(x_shape)

    def call(
        self,
        x,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        return_attention_scores=False,
        training=None,
        mask=None,
        x_mask=None,
    ):
        if self.position is not None:
            x = self.position.fits(x, self.causal)
        placed = with_positions(self, "positions", x, positions)
        mask = given_padding(self, x, mask=mask, x_mask=x_mask)
        return super().call(
            placed,
            x,
            placed,
            attention_mask=attention_mask,
            use_causal_mask=self.causal,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            value_mask=mask,
        )

    def compute_output_shape(self, x_shape):
        return super().compute_output_shape(x_shape)


@keras.saving.register_keras_serializable("keras_transformers")
class CausalSelfAttention(SelfAttention):
    """Self-attention in which no token sees a later one, with a key/value cache for decoding.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.3 (the decoder's).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x, attention_mask, attention_bias, return_attention_scores, training: See `SelfAttention`.

    Returns:
        `(batch, length, hidden_dim)`, and the weights on request.

    Raises:
        ValueError: As `MultiHeadAttention`.

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

    def start_cache(self, batch, beams, max_length):
        """Empty keys and values for `beams` sequences of each batch element.

        They take `batch * beams * max_length * key_value_heads * (key_dim + value_dim)` numbers of
        the compute dtype.

        Returns:
            `{"key": (batch, key_value_heads, max_length * beams, key_dim), "value": likewise}`;
            with several beams the last two axes of the keys are swapped.
        """
        return empty_cache(batch, beams, max_length, dtype=self.compute_dtype, **self._cache_dims)

    def step(self, x, cache, index, visible=None):
        """Attends from the token at position `index` to itself and those before it.

        Args:
            x: `(batch, beams, hidden_dim)`, one token of every sequence.
            cache: From `start_cache`, filled by the steps before.
            index: Position of the token, an int or a scalar tensor.
            visible: Bool `(batch or 1, beams, max_length * beams)` from `cache.visible_slots`; by
                default every beam sees its own slot.

        Returns:
            `(batch, beams, hidden_dim)` and the cache with this token in it.
        """
        beams = x.shape[1]
        here = ops.broadcast_to(ops.cast(index, "int32"), (beams,))
        query, key, value = (
            swap_heads(project_token(dense, x))
            for dense in (self.query_dense, self.key_dense, self.value_dense)
        )
        cache = write_cache(cache, self._prepare_key(key, here), value, index)
        if visible is None:
            visible = visible_slots(index, room(cache, beams), beams)
        first, keys, values, visible = self._past(index, *read_cache(cache, beams), visible)
        places = (here, first + ops.arange(ops.shape(values)[2], dtype="int32") // beams)
        query = self._prepare_query(query, here)
        return self._step(query, keys, values, places, visible[:, None])[0], cache

    def prefill(self, x, cache, beams):
        """Attends between the first tokens of every sequence, and puts them into the cache.

        Args:
            x: `(batch, length, hidden_dim)`, tokens that all beams begin with.
            cache: From `start_cache`.
            beams: The number it was started with.

        Returns:
            `(batch, length, hidden_dim)` and the cache with these tokens in it.
        """
        here = ops.arange(ops.shape(x)[1], dtype="int32")
        query, key, value = map(swap_heads, self._project(x, x, x))
        query, key = self._prepare_query(query, here), self._prepare_key(key, here)
        mask = self._visible(x, x, x, None, True, None)
        output, _ = self._attend_all(query, key, value, (here, here), mask, None, False)
        return project(self.output_dense, swap_heads(output)), fill_cache(cache, key, value, beams)

    def _past(self, index, keys, values, visible):
        """The part of the cache that a step reads, and the position it starts at."""
        return 0, keys, values, visible
