"""Multi-head attention: what its projections are handed to."""

import keras
from keras import ops

from keras_transformers.layers.attention_settings import AttentionSettings
from keras_transformers.layers.given_masks import given_padding, given_pairs, hidden_from_all
from keras_transformers.layers.heads import attend, swap_heads
from keras_transformers.layers.masks import causal_mask, combine_masks, hide_padding
from keras_transformers.layers.projections import project, project_together, project_token
from keras_transformers.layers.traced import Traced


@keras.saving.register_keras_serializable("keras_transformers")
class MultiHeadAttention(Traced, AttentionSettings):
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

    Args:
        num_heads: Number of heads (H).
        key_dim: Width of a query and a key in one head; by default the query's width / `num_heads`.
        value_dim: Width of a value in one head; by default `key_dim`.
        dropout: Rate on the attention weights.
        use_bias: Whether the four projections have biases; "output" for the last alone.
        score: How well a query and a key match: "scaled_dot", "dot", "general", "additive", or a
            `Score`.
        num_key_value_heads: Number of heads of keys and values, which divides `num_heads`; as many
            by default, 1 for multi-query attention (Shazeer 2019, https://arxiv.org/abs/1911.02150),
            between for grouped queries (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
        position: What the scores owe to positions: a `PositionTerm`, for instance
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
        self,
        query,
        value=None,
        key=None,
        attention_mask=None,
        use_causal_mask=False,
        attention_bias=None,
        return_attention_scores=False,
        training=None,
        mask=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
    ):
        itself, value = value is None, query if value is None else value
        key = value if key is None else key
        self._check_widths(query, value, key)
        masks = {f"{self.input_names[1]}_mask": value_mask, "key_mask": key_mask}
        padding = given_padding(self, value, **masks)
        of_query = given_padding(self, query, mask=mask, query_mask=query_mask)
        if itself:
            padding = of_query = combine_masks(of_query, padding)
        elif query is value or query is key:  # one tensor stays one, for its projections
            of_query = padding
        full = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        pairs = given_pairs(self, "attention_mask", attention_mask, full)
        bias = given_pairs(self, "attention_bias", attention_bias, full, is_mask=False)
        mask = self._visible(query, key, value, pairs, use_causal_mask, padding)
        query, key, value = _hidden((query, of_query), (key, padding), (value, padding))
        places = [ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key)]
        query, key, value = map(swap_heads, self._project(query, key, value))
        seen = hidden_from_all(pairs)
        if seen is not None:
            key, value = (ops.where(seen, x, ops.zeros((), x.dtype)) for x in (key, value))
        query, key = self._prepare_query(query, places[0]), self._prepare_key(key, places[1])
        output, weights = self._attend_all(query, key, value, places, mask, bias, training)
        if self.attention_observer is not None and weights is not None:
            self.attention_observer(weights)
        output = project(self.output_dense, swap_heads(output))
        return (output, weights) if return_attention_scores else output

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        if value_shape is not None:
            key_shape = value_shape if key_shape is None else key_shape
            self._check_shapes(query_shape, value_shape, key_shape)
        return (*query_shape[:-1], self._output_shape or query_shape[-1])

    def _prepare_query(self, query, positions):
        """A query `(batch, heads, length, key_dim)` as it is compared."""
        if self.position is not None:
            query = self.position.transform(query, positions)
        return self.score.prepare_query(query)

    def _prepare_key(self, key, positions):
        """A key `(batch, key_value_heads, length, key_dim)` as it is compared, and cached."""
        if self.position is not None:
            key = self.position.transform(key, positions)
        return self.score.prepare_key(key)

    def _attend_all(self, query, key, value, places, mask, bias, training):
        """`_attend` of a call; of blocks of it where a layer sees less than everything."""
        return self._attend(query, key, value, places, mask, bias, training)

    def _attend(self, query, key, value, places, mask, bias=None, training=False):
        """Output and weights, `(batch, heads, queries, ...)`, of what was prepared.

        `places` are the positions of the queries and of the keys.
        """
        values = None
        if self.position is not None:
            term = self.position.bias(query, *places)
            bias = term if bias is None else bias if term is None else ops.add(bias, term)

            def values(weights):
                return self.position.values(weights, *places)

        def dropout(weights):
            return self.dropout_layer(weights, training=training)

        return attend(query, key, value, self.score.compare, mask, bias, dropout, values)

    def _step(self, query, key, value, places, mask):
        """Output `(batch, beams, width)` and weights, of one token's query for every beam."""
        output, weights = self._attend(query, key, value, places, mask)
        return project_token(self.output_dense, swap_heads(output)), weights

    def _project(self, query, key, value):
        """Queries, keys and values, those of the same input together."""
        if query is key and key is value:
            return project_together([self.query_dense, self.key_dense, self.value_dense], query)
        if query is key:  # of tokens with their positions, and the value without
            both = project_together([self.query_dense, self.key_dense], query)
            return *both, project(self.value_dense, value)
        query = project(self.query_dense, query)
        if key is value:
            return query, *project_together([self.key_dense, self.value_dense], key)
        return query, project(self.key_dense, key), project(self.value_dense, value)

    def _check_widths(self, *inputs):
        for name, x, width in zip(self.input_names, inputs, self._widths, strict=True):
            if len(x.shape) != 3 or x.shape[-1] not in (None, width):
                self._refuse(name, f"of shape (batch, length, {width})", f"shape {tuple(x.shape)}")

    def _visible(self, query, key, value, pairs, use_causal_mask, padding):
        """All masks as one that broadcasts against (batch, heads, queries, keys), or None."""
        self._check_lengths(value.shape[1], key.shape[1])
        causal = (
            causal_mask(ops.shape(query)[1], ops.shape(key)[1]) if use_causal_mask else None
        )
        if padding is not None:
            padding = ops.expand_dims(padding, (1, 2))  # LiteRT has no `[:, None, None]` of a mask
        return combine_masks(pairs, causal, padding)


def _hidden(*inputs):
    """`hide_padding` of pairs of a tensor and its mask; what was one tensor stays one."""
    hidden = {}
    for x, mask in inputs:
        if id(x) not in hidden:
            hidden[id(x)] = hide_padding(x, mask)
    return [hidden[id(x)] for x, _ in inputs]
