"""Multi-head attention: its projections, and what they are handed to."""

import keras
from keras import ops

from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.heads import attend, swap_heads
from keras_transformers.layers.masks import causal_mask, combine_masks
from keras_transformers.layers.parts import part
from keras_transformers.layers.position_terms import PositionTerm
from keras_transformers.layers.projections import project, project_together, project_token
from keras_transformers.layers.regularization import Dropout
from keras_transformers.layers.scores import SCORES, Score


@keras.saving.register_keras_serializable("keras_transformers")
class MultiHeadAttention(Composite, keras.layers.Layer):
    """Multi-head attention; a drop-in for `keras.layers.MultiHeadAttention`.

    `head_i = softmax(X_q W_i^Q (X_k W_i^K)^T / sqrt(d_k)) X_v W_i^V`, output
    `Concat(head_1 .. head_H) W^O` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section
    3.2.2). Weights have Keras's names, shapes and order: after
    `set_weights(keras_layer.get_weights())` the output is Keras's. Unlike Keras's layer
    it gives the same result with and without scores for a query that may attend to nothing: zeros
    before the output projection.

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
        kernel_initializer: Initialiser of the four kernels.
        bias_initializer: Initialiser of the biases.
        kernel_regularizer: Regulariser of the four kernels.
        seed: Optional integer for the dropout.

    Call arguments:
        query: `(batch, queries, query_width)`.
        value: `(batch, keys, value_width)`; None attends to `query` itself.
        key: `(batch, keys, key_width)`; None means `value`.
        attention_mask: Optional bool `(queries, keys)`, `(batch, queries, keys)` or
            `(batch, heads, queries, keys)`; True = attend.
        use_causal_mask: Whether query `i` sees keys `0 .. i` only.
        attention_bias: Optional, added to the scores; shapes as for `attention_mask`.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask, query_mask, value_mask, key_mask: `(batch, length)` padding masks, filled in by Keras
            from implicit masks. Those of keys and values hide padding; a padded query's own row is
            computed like any other.

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

    input_names = ("query", "value", "key")  # what errors call them
    _refuse = refuse

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        score="scaled_dot",
        num_key_value_heads=None,
        position=None,
        output_shape=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        sizes = {"num_heads": num_heads, "num_key_value_heads": num_key_value_heads}
        sizes.update(key_dim=key_dim, value_dim=value_dim, output_shape=output_shape)
        for name, size in sizes.items():
            optional = size is None and name != "num_heads"
            if not optional and not (isinstance(size, int) and size > 0):
                self._refuse(name, "a positive integer", repr(size))
        if use_bias not in (True, False, "output"):
            self._refuse("use_bias", "True, False or 'output'", repr(use_bias))
        if num_heads % (num_key_value_heads or num_heads):
            expected = f"a divisor of `num_heads`={num_heads}"
            self._refuse("num_key_value_heads", expected, num_key_value_heads)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.score = part(self, "score", score, Score, SCORES)
        self.num_key_value_heads = num_key_value_heads
        self.position = None
        if position is not None:
            self.position = part(self, "position", position, PositionTerm)
        self._output_shape = output_shape  # Keras reserves the public name
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.seed = seed
        self.supports_masking = True
        self.attention_observer = None  # a function that is shown the weights of every call

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        shapes = (query_shape, value_shape, key_shape)
        for name, shape in zip(self.input_names, shapes, strict=True):
            if len(shape) != 3 or shape[-1] is None:
                expected = "of shape (batch, length, width) with a known width"
                self._refuse(name, expected, f"shape {tuple(shape)}")
        if self.key_dim is None and query_shape[-1] % self.num_heads:
            expected = f"a divisor of the width of `{self.input_names[0]}`, {query_shape[-1]}"
            self._refuse("num_heads", f"{expected}, unless `key_dim` is given", self.num_heads)
        self._widths = tuple(shape[-1] for shape in shapes)
        key_dim = self.key_dim or query_shape[-1] // self.num_heads
        value_dim = self.value_dim or key_dim
        heads, shared = self.num_heads, self.num_key_value_heads or self.num_heads
        self._cache_dims = {"heads": shared, "key_dim": key_dim, "value_dim": value_dim}
        equation = "abc,cde->abde"
        self.query_dense = self._projection("query", equation, (None, heads, key_dim))
        self.query_dense.build(query_shape)
        self.key_dense = self._projection("key", equation, (None, shared, key_dim))
        self.key_dense.build(key_shape)
        self.value_dense = self._projection("value", equation, (None, shared, value_dim))
        self.value_dense.build(value_shape)
        width = self._output_shape or query_shape[-1]
        self.output_dense = self._projection("attention_output", "abcd,cde->abe", (None, width))
        self.output_dense.build((*query_shape[:-1], self.num_heads, value_dim))
        query_shape = (query_shape[0], heads, query_shape[1], key_dim)
        self.score.build(query_shape, (key_shape[0], shared, key_shape[1], key_dim))
        if self.position is not None:
            self.position.build(query_shape)
        self.dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )

    def _projection(self, name, equation, output_shape):
        def fresh(initializer):  # one instance for several kernels would make them equal
            return type(initializer).from_config(initializer.get_config())

        biased = self.use_bias is True or self.use_bias == name.removeprefix("attention_")
        projection = keras.layers.EinsumDense(
            equation,
            output_shape=output_shape,
            bias_axes=equation.split("->")[1][2:] if biased else None,
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=fresh(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            name=name,
            dtype=self.dtype_policy,
        )
        projection.supports_masking = True  # or Keras warns that it loses an implicit mask
        return projection

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
        if value is None:
            value, value_mask = query, combine_masks(mask, query_mask, value_mask)
        key = value if key is None else key
        self._check_widths(query, value, key)
        padding = combine_masks(value_mask, key_mask)
        mask = self._visible(query, key, value, attention_mask, use_causal_mask, padding)
        bias = self._per_head(query, key, attention_bias, "attention_bias")
        places = [ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key)]
        query, key, value = map(swap_heads, self._project(query, key, value))
        query, key = self._prepare_query(query, places[0]), self._prepare_key(key, places[1])
        output, weights = self._attend_all(query, key, value, places, mask, bias, training)
        if self.attention_observer is not None and weights is not None:
            self.attention_observer(weights)
        output = project(self.output_dense, swap_heads(output))
        return (output, weights) if return_attention_scores else output

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

    def _visible(self, query, key, value, attention_mask, use_causal_mask, padding):
        """All masks as one that broadcasts against (batch, heads, queries, keys), or None."""
        if None not in (key.shape[1], value.shape[1]) and key.shape[1] != value.shape[1]:
            self._refuse("key", f"as long as `value`, {value.shape[1]}", f"length {key.shape[1]}")
        causal = (
            causal_mask(ops.shape(query)[1], ops.shape(key)[1]) if use_causal_mask else None
        )
        return combine_masks(
            self._per_head(query, key, attention_mask, "attention_mask"),
            causal,
            None if padding is None else self._per_head(query, key, padding[:, None], "mask"),
        )

    def _per_head(self, query, key, extra, name):
        """Gives a mask or bias of rank 2, 3 or 4 a heads axis, after checking that it fits."""
        if extra is None:
            return None
        full = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        rank = len(extra.shape)
        expected = {2: full[2:], 3: (full[0], *full[2:]), 4: full}.get(rank)
        if expected is None or any(
            None not in (have, want) and have not in (1, want)
            for have, want in zip(extra.shape, expected, strict=True)
        ):
            shape = "(queries, keys), (batch, queries, keys) or (batch, heads, queries, keys)"
            self._refuse(name, f"of shape {shape} = {full}", f"shape {tuple(extra.shape)}")
        return extra[:, None] if rank == 3 else extra

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "score": keras.saving.serialize_keras_object(self.score),
            "num_key_value_heads": self.num_key_value_heads,
            "position": keras.saving.serialize_keras_object(self.position),
            "output_shape": self._output_shape,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "seed": self.seed,
        }
