"""Attention from one sequence to another."""

import keras

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.given_masks import given_padding
from keras_transformers.layers.heads import swap_heads
from keras_transformers.layers.masks import hide_padding, key_mask
from keras_transformers.layers.positions import with_positions
from keras_transformers.layers.projections import project_token


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
        attention_bias: Optional, added to the scores.
        positions: Optional, `(length, hidden_dim)` or `(batch, length, hidden_dim)`, added to what
            queries are made of.
        context_positions: The same for `context`, added to what keys are made of, not to the
            values (Carion et al. 2020, https://arxiv.org/abs/2005.12872, section A.3).
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        context_mask: `(batch, context_length)` padding mask; filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, context_length)` on
        request.

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

    def build(self, x_shape, context_shape):
        if self.position is not None:
            expected = "None, for places in two sequences have no common origin"
            self._refuse("position", expected, type(self.position).__name__)
        super().build(x_shape, context_shape)

    def call(
        self,
        x,
        context,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        context_positions=None,
        return_attention_scores=False,
        training=None,
        context_mask=None,
    ):
        return super().call(
            with_positions(self, "positions", x, positions),
            context,
            with_positions(self, "context_positions", context, context_positions),
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            value_mask=context_mask,
        )

    def compute_output_shape(self, x_shape, context_shape=None):
        return super().compute_output_shape(x_shape)

    def project_context(self, context, context_mask=None):
        """Keys and values of `context`, computed once for all steps and beams of `step`.

        `context_mask` is that of the steps; it need not be given where padding holds numbers that
        are finite.

        They take `batch * context_length * key_value_heads * (key_dim + value_dim)` numbers of the
        compute dtype.

        Returns:
            `{"key": (batch, key_value_heads, context_length, key_dim), "value": likewise}`.
        """
        padding = given_padding(self, context, context_mask=context_mask)
        context = hide_padding(context, padding)
        key, value = swap_heads(self.key_dense(context)), swap_heads(self.value_dense(context))
        return {"key": self._prepare_key(key, None), "value": value}

    def step(self, x, cache, context_mask=None):
        """Attends from one token of each of several sequences that share a context.

        Args:
            x: `(batch, beams, hidden_dim)`.
            cache: From `project_context`.
            context_mask: Optional bool `(batch, context_length)`.

        Returns:
            `(batch, beams, hidden_dim)` and the weights `(batch, heads, beams, context_length)`.
        """
        query = self._prepare_query(swap_heads(project_token(self.query_dense, x)), None)
        mask = None if context_mask is None else key_mask(context_mask)[:, None]
        return self._step(query, cache["key"], cache["value"], None, mask)
