"""Multi-head attention."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import MaybeWeights, Tensor
from keras_transformers.layers.attention.hooks import AttentionHooks
from keras_transformers.layers.masks import (
    combine_masks,
    given_padding,
    given_pairs,
    hidden_from_all,
    hide_padding,
)
from keras_transformers.layers.projections import project, project_each, swap_heads
from keras_transformers.layers.traced import Traced


@keras.saving.register_keras_serializable("keras_transformers")
class MultiHeadAttention(Traced, AttentionHooks):
    """Multi-head attention; a drop-in for `keras.layers.MultiHeadAttention` on sequences.

    `head_i = softmax(X_q W_i^Q (X_k W_i^K)^T / sqrt(d_k)) X_v W_i^V`, output
    `Concat(head_1 .. head_H) W^O` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section
    3.2.2). Weights have Keras's names, shapes and order: after
    `set_weights(keras_layer.get_weights())` the output is Keras's, and `from_config` takes the
    configuration of Keras's layer. What differs: inputs are of rank 3 and the output has one axis
    of features, so that there is no `attention_axes`, nor are there `sliding_window`, `use_gate`
    and `flash_attention`; arguments after `use_bias` are given by name; a query that may attend to
    nothing gives zeros before the output projection, with and without scores; a padded query is one
    of zeros, which Keras lets attend to nothing.

    A subclass overrides what differs: `prepare_query`, `prepare_key`, `make_mask` or `attend`.

    Args:
        num_heads: Number of heads (H).
        key_dim: Width of a query and a key in one head; by default the query's width / `num_heads`.
        value_dim: Width of a value in one head; by default `key_dim`.
        dropout: Rate on the attention weights.
        use_bias: Whether the four projections have biases; or which of them, "output" or a tuple of
            some of "query", "key", "value" and "output".
        score: How well a query and a key match: "scaled_dot", "dot", "general", "additive", or a
            `Score`.
        num_key_value_heads: Number of heads of keys and values, which divides `num_heads`; as many
            by default, 1 for multi-query attention (Shazeer 2019, https://arxiv.org/abs/1911.02150),
            between for grouped queries (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
        position: How positions enter the scores: an `AttentionPositionEncoding`, for instance
            `RotaryEmbedding()`, or None.
        output_shape: Width of the output; by default that of the query.
        kernel_initializer, kernel_regularizer, kernel_constraint: Of the four kernels.
        bias_initializer, bias_regularizer, bias_constraint: Of the biases.
        seed: Optional integer for the dropout.

    Call arguments:
        query: `(batch, queries, query_width)`.
        value: `(batch, keys, value_width)`; None attends to `query` itself.
        key: `(batch, keys, key_width)`; None means `value`.
        attention_mask: Optional bool `(queries, keys)`, `(batch, queries, keys)` or
            `(batch, heads, queries, keys)`; True = attend. A key that it hides from all queries,
            `(batch, 1, keys)`, changes nothing whatever it holds; one that it hides from some must
            be finite. Two axes that could be (batch, keys) as well are refused.
        use_causal_mask: Whether query `i` sees keys `0 .. i` only.
        attention_bias: Optional, added to the scores; shapes as for `attention_mask`.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask, query_mask, value_mask, key_mask: `(batch, length)` padding masks, filled in by Keras
            from implicit masks. What stands at padding changes nothing, NaN and infinity neither.

    Returns:
        `(batch, queries, output width)`; with `return_attention_scores`, also the weights (before
        dropout) `(batch, heads, queries, keys)`.

    Raises:
        ValueError: If sizes are not positive, `num_heads` does not divide the width where `key_dim`
            is None, an input is not of rank 3, keys and values differ in length, or a mask does not
            fit.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import MultiHeadAttention
    >>> x, context = np.ones((2, 5, 12), "float32"), np.ones((2, 7, 8), "float32")
    >>> output, weights = MultiHeadAttention(num_heads=3)(
    ...     x, context, return_attention_scores=True)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 5, 12), (2, 3, 5, 7))
    """

    def call(
        self, query: Tensor, value: Tensor | None = None, key: Tensor | None = None,
        attention_mask: Tensor | None = None, use_causal_mask: bool = False,
        attention_bias: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, query_mask: Tensor | None = None,
        value_mask: Tensor | None = None, key_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        masks, itself = (mask, query_mask, value_mask, key_mask), value is None
        value = query if value is None else value
        key = value if key is None else key
        for name, x, width in zip(self.input_names, (query, value, key), self._widths, strict=True):
            if len(x.shape) != 3 or x.shape[-1] not in (None, width):
                expected = f"of shape (batch, length, {width})"
                self._refuse(name, expected, f"shape {tuple(x.shape)}")
        if key.shape[1] != value.shape[1]:
            self._check_lengths(value.shape[1], key.shape[1])
        padding = pairs = seen = None
        if any(each is not None for each in masks):
            query, value, key, padding = self._without_padding(query, value, key, itself, *masks)
        full = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        if attention_mask is not None:
            pairs = given_pairs(self, "attention_mask", attention_mask, full)
            seen = hidden_from_all(pairs)
        if attention_bias is not None:
            attention_bias = given_pairs(self, "attention_bias", attention_bias, full, False)
        inputs = (query, key)
        positions = [ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key)]
        if query is key is value:
            parts = project(query, self.query_dense, self.key_dense, self.value_dense)
        else:
            denses = (self.query_dense, self.key_dense, self.value_dense)
            parts = project_each((query, key, value), denses)
        query, key, value = map(swap_heads, parts)  # (batch, heads, length, dim)
        if seen is not None:
            key, value = (ops.where(seen, x, ops.zeros((), x.dtype)) for x in (key, value))
        query, key = self.prepare_query(query, positions[0]), self.prepare_key(key, positions[1])
        wanted = return_attention_scores or self.attention_observer is not None
        y, weights = self.attend_to(
            inputs, (query, key, value), pairs, padding, use_causal_mask, attention_bias, positions,
            training, wanted
        )  # fmt: skip
        if self.attention_observer is not None and weights is not None:
            self.attention_observer(weights)
        (y,) = project(swap_heads(y), self.output_dense)  # (batch, queries, output width)
        return (y, weights) if return_attention_scores else y

    def _without_padding(
        self, query: Tensor, value: Tensor, key: Tensor, itself: bool, mask: Tensor | None,
        query_mask: Tensor | None, value_mask: Tensor | None, key_mask: Tensor | None
    ) -> tuple[Any, ...]:  # fmt: skip
        """Inputs with zeros at padding, and the keys' padding; what was one tensor stays one."""
        of_query = given_padding(self, query, mask=mask, query_mask=query_mask)
        masks = {f"{self.input_names[1]}_mask": value_mask, "key_mask": key_mask}
        padding = given_padding(self, value, **masks)
        if itself:
            padding = of_query = combine_masks(of_query, padding)
        elif query is value or query is key:
            of_query = padding
        hidden = {id(query): hide_padding(query, of_query)}
        for x in (value, key):
            if id(x) not in hidden:
                hidden[id(x)] = hide_padding(x, padding)
        return *(hidden[id(x)] for x in (query, value, key)), padding
