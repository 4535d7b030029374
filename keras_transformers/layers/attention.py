"""Attention as pure functions, and the layers that own its projections."""

import math

import keras
from keras import ops

from keras_transformers.layers.cache import (
    attend_cache,
    empty_cache,
    fold_heads,
    visible_slots,
    write_cache,
)
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    key_mask,
    masked_softmax,
)
from keras_transformers.layers.projections import project, project_together, project_token
from keras_transformers.layers.regularization import Dropout


def dot_product_attention(query, key, value, mask=None, bias=None, dropout=None):
    """Scaled dot-product attention of several heads.

    `softmax(Q K^T / sqrt(d_k) + bias) V` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762,
    eq. 1), with the scores' softmax in float32. A bias of minus infinity is a mask.

    Args:
        query: `(batch, queries, heads, key_dim)`.
        key: `(batch, keys, heads, key_dim)`.
        value: `(batch, keys, heads, value_dim)`.
        mask: Optional bool that broadcasts against `(batch, heads, queries, keys)`; True = attend.
        bias: Optional, added to the scores; broadcasts likewise.
        dropout: Optional function applied to the weights before they meet the values.

    Returns:
        The output `(batch, queries, heads, value_dim)` and the weights
        `(batch, heads, queries, keys)`, both in the dtype of `query`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import dot_product_attention
    >>> x = ops.ones((2, 5, 3, 4))
    >>> output, weights = dot_product_attention(x, x, x)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 5, 3, 4), (2, 3, 5, 5))
    """
    scale = 1 / math.sqrt(query.shape[-1])
    scores = ops.einsum("bqhd,bkhd->bhqk", query * ops.cast(scale, query.dtype), key)
    if bias is not None:
        bias = ops.cast(bias, scores.dtype)
        mask = combine_masks(mask, bias > -math.inf)
        scores = scores + bias
    weights = ops.cast(masked_softmax(scores, mask), query.dtype)
    dropped = weights if dropout is None else dropout(weights)
    return ops.einsum("bhqk,bkhd->bqhd", dropped, value), weights


@keras.saving.register_keras_serializable("keras_transformers")
class MultiHeadAttention(keras.layers.Layer):
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
        use_bias: Whether the four projections have biases.
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

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        for name, size in {**sizes, "output_shape": output_shape}.items():
            optional = size is None and name != "num_heads"
            if not optional and not (isinstance(size, int) and size > 0):
                self._refuse(name, "a positive integer", repr(size))
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self._output_shape = output_shape  # Keras reserves the public name
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.seed = seed
        self.supports_masking = True
        self.attention_observer = None  # a function that is shown the weights of every call

    def _refuse(self, argument, expected, received):
        raise ValueError(
            f"{type(self).__name__} '{self.name}': `{argument}` must be {expected}. "
            f"Received: {received}"
        )

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
        self._head_dims = {"key": key_dim, "value": value_dim}
        heads = (None, self.num_heads)
        self.query_dense = self._projection("query", "abc,cde->abde", (*heads, key_dim))
        self.query_dense.build(query_shape)
        self.key_dense = self._projection("key", "abc,cde->abde", (*heads, key_dim))
        self.key_dense.build(key_shape)
        self.value_dense = self._projection("value", "abc,cde->abde", (*heads, value_dim))
        self.value_dense.build(value_shape)
        width = self._output_shape or query_shape[-1]
        self.output_dense = self._projection("attention_output", "abcd,cde->abe", (None, width))
        self.output_dense.build((*query_shape[:-1], self.num_heads, value_dim))
        self.dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )

    def _projection(self, name, equation, output_shape):
        def fresh(initializer):  # one instance for several kernels would make them equal
            return type(initializer).from_config(initializer.get_config())

        projection = keras.layers.EinsumDense(
            equation,
            output_shape=output_shape,
            bias_axes=equation.split("->")[1][2:] if self.use_bias else None,
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
        visible = self._visible(query, key, value, attention_mask, use_causal_mask, padding)
        output, weights = dot_product_attention(
            *self._project(query, key, value),
            visible,
            self._per_head(query, key, attention_bias, "attention_bias"),
            lambda weights: self.dropout_layer(weights, training=training),
        )
        if self.attention_observer is not None:
            self.attention_observer(weights)
        output = project(self.output_dense, output)
        return (output, weights) if return_attention_scores else output

    def _project(self, query, key, value):
        """Queries, keys and values, those of the same input together."""
        if query is key and key is value:
            return project_together([self.query_dense, self.key_dense, self.value_dense], query)
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
            "output_shape": self._output_shape,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself.

    Queries, keys and values are projections of the same `x` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.2.3).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool `(batch, length, length)`; True = attend.
        attention_bias: Optional, added to the scores.
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
        return_attention_scores=False,
        training=None,
        mask=None,
        x_mask=None,
    ):
        return super().call(
            x,
            attention_mask=attention_mask,
            use_causal_mask=self.causal,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            query_mask=combine_masks(mask, x_mask),
        )


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

        They take `batch * beams * max_length * heads * (key_dim + value_dim)` numbers of the
        compute dtype.

        Returns:
            `{"key": (batch * heads, max_length * beams, key_dim), "value": likewise}`; with several
            beams the keys are `(batch * heads, key_dim, max_length * beams)`.
        """
        key_dim, value_dim = self._head_dims["key"], self._head_dims["value"]
        rows, dtype = batch * self.num_heads, self.compute_dtype
        return empty_cache(rows, beams, max_length, key_dim, value_dim, dtype)

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
        if visible is None:
            visible = visible_slots(index, cache["value"].shape[1] // beams, beams)
        key, value = project_token(self.key_dense, x), project_token(self.value_dense, x)
        cache = write_cache(cache, key, value, index)
        query = project_token(self.query_dense, x)
        output, _ = attend_cache(query, cache, visible, key_columns=beams > 1)
        return project_token(self.output_dense, output), cache


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
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        context_mask: `(batch, context_length)` padding mask; filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, context_length)` on
        request.

    Raises:
        ValueError: As `MultiHeadAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import CrossAttention
    >>> x, context = np.ones((2, 5, 12), "float32"), np.ones((2, 7, 20), "float32")
    >>> tuple(CrossAttention(num_heads=3)(x, context).shape)
    (2, 5, 12)
    """

    input_names = ("x", "context", "context")

    def build(self, x_shape, context_shape):
        super().build(x_shape, context_shape)

    def call(
        self,
        x,
        context,
        attention_mask=None,
        attention_bias=None,
        return_attention_scores=False,
        training=None,
        context_mask=None,
    ):
        return super().call(
            x,
            context,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            value_mask=context_mask,
        )

    def project_context(self, context):
        """Keys and values of `context`, computed once for all steps and beams of `step`.

        They take `batch * context_length * heads * (key_dim + value_dim)` numbers of the compute
        dtype.

        Returns:
            `{"key": (batch * heads, context_length, key_dim), "value": likewise}`.
        """
        return {
            "key": fold_heads(self.key_dense(context)),
            "value": fold_heads(self.value_dense(context)),
        }

    def step(self, x, cache, context_mask=None):
        """Attends from one token of each of several sequences that share a context.

        Args:
            x: `(batch, beams, hidden_dim)`.
            cache: From `project_context`.
            context_mask: Optional bool `(batch, context_length)`.

        Returns:
            `(batch, beams, hidden_dim)` and the weights `(batch, heads, beams, context_length)`.
        """
        query = project_token(self.query_dense, x)
        output, weights = attend_cache(query, cache, key_mask(context_mask))
        return project_token(self.output_dense, output), weights
