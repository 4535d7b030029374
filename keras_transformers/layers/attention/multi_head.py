"""Multi-head attention: from several inputs, of a sequence to itself, and to a context.

A call reads from top to bottom: hide padding, project and split the heads, prepare queries and keys
(norms, positions, scale), attend, merge the heads, project.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias, Unpack, cast

import keras
from keras import ops

from keras_transformers.core.backend import KERNELS
from keras_transformers.core.types import (
    Cache,
    Initializer,
    LayerOptions,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention import kernels
from keras_transformers.layers.attention.kernels import Way
from keras_transformers.layers.attention.scores import (
    SCORES,
    GivenScore,
    Score,
    product,
    project,
    project_token,
    regroup,
    softmax_of_visible,
    swap_heads,
)
from keras_transformers.layers.base import BaseLayer, ReadByBuild, output_spec_of_call
from keras_transformers.layers.checks import rate, refuse, whole_number
from keras_transformers.layers.masks import (
    combine_masks,
    given_padding,
    given_pairs,
    hide_padding,
    hide_unseen,
)
from keras_transformers.layers.parts import part, serialized
from keras_transformers.layers.positions.biases import AttentionPositionEncoding
from keras_transformers.layers.positions.sequence import with_positions
from keras_transformers.layers.regularization import Dropout

# What Keras's layer can do and ours cannot, and the values of those arguments that ask for nothing.
NOT_HERE = {
    "attention_axes": (None, 1, [1], (1,)),
    "sliding_window": (None,),
    "flash_attention": (None, False),
    "use_gate": (None, False),
}


def our_arguments(cls: type, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a `keras.layers.MultiHeadAttention` as `cls` takes it.

    Raises:
        ValueError: If it asks for something that an attention of `cls` cannot do.
    """
    config, unknown = dict(config), dict(NOT_HERE)
    if "attention_axes" in config:  # Keras's, whose regulariser is of each projection's output
        unknown["activity_regularizer"] = (None,)
    for name, harmless in unknown.items():
        value = config.pop(name, None)
        if value not in harmless:
            raise ValueError(
                f"{cls.__name__}.from_config: `{name}` must be {harmless[0]}. Received: {value!r}"
            )
    return config


Projection: TypeAlias = Literal["query", "key", "value", "output"]
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value", "output")
Biased: TypeAlias = bool | Projection | Sequence[Projection]


class KernelOptions(LayerOptions, total=False):
    """Keyword arguments of the four kernels and biases, named as in Keras's layers."""

    kernel_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Any
    bias_regularizer: Any
    kernel_constraint: Any
    bias_constraint: Any


class ProjectionOptions(KernelOptions, total=False):
    """Keyword arguments of the projections."""

    key_dim: int | None
    value_dim: int | None
    use_bias: Biased
    output_shape: int | None
    seed: int | None


class AttentionOptions(ProjectionOptions, total=False):
    """Keyword arguments of the projections and of the attention weights."""

    dropout: float
    score: GivenScore
    num_key_value_heads: int | None
    position: Part | None


class AttentionMasks(NamedTuple):
    """The masks of a call, and the bias that is added to its scores.

    Args:
        padding: Bool `(batch, keys)`, True = real token; or None.
        mask: The caller's `attention_mask`, `(queries, keys)` or `(batch, heads, queries, keys)`,
            axes of which may be 1; or None.
        bias: The caller's `attention_bias`; or None.
        causal: Whether query `i` sees keys `0 .. i` only.
    """

    padding: Tensor | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False


@keras.saving.register_keras_serializable("keras_transformers")
class MultiHeadAttention(BaseLayer):
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

    A subclass overrides the methods that differ: `prepare_query`, `prepare_key`, `make_mask` or
    `attend`.

    Attributes:
        input_names: Names of the inputs in error messages.
        head_dims: Once built, the number of heads of keys and values, and the dimensions of a key
            and a value.

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

    dropout: Any = ReadByBuild()

    compute_output_spec = output_spec_of_call

    _refuse = refuse
    input_names = ("query", "value", "key")

    def __init__(
        self, num_heads: int, key_dim: int | None = None, value_dim: int | None = None,
        dropout: float = 0.0, use_bias: Biased = True, score: GivenScore = "scaled_dot",
        num_key_value_heads: int | None = None, position: Part | None = None,
        output_shape: int | None = None, seed: int | None = None, **kwargs: Unpack[KernelOptions]
    ) -> None:  # fmt: skip
        options: dict[str, Any] = {**kwargs}
        kernel_initializer = options.pop("kernel_initializer", "glorot_uniform")
        bias_initializer = options.pop("bias_initializer", "zeros")
        kernel_regularizer = options.pop("kernel_regularizer", None)
        bias_regularizer = options.pop("bias_regularizer", None)
        kernel_constraint = options.pop("kernel_constraint", None)
        bias_constraint = options.pop("bias_constraint", None)
        super().__init__(**options)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        if isinstance(use_bias, (tuple, list)) and all(name in PROJECTIONS for name in use_bias):
            use_bias = tuple(use_bias)
        elif use_bias not in (True, False, "output"):
            expected = f"True, False, 'output', or some of {', '.join(PROJECTIONS)}"
            self._refuse("use_bias", expected, repr(use_bias))
        self.use_bias = use_bias
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.key_dim = whole_number(self, "key_dim", key_dim, optional=True)
        self.value_dim = whole_number(self, "value_dim", value_dim, optional=True)
        self.dropout = rate(self, "dropout", dropout)
        if score is None or isinstance(score, (int, tuple, list)):
            hint = "; `output_shape`, Keras's sixth argument, is given by name"
            self._refuse("score", f"one of {', '.join(SCORES)}, or a Score{hint}", repr(score))
        self.score = part(self, "score", score, Score, SCORES)
        shared = whole_number(self, "num_key_value_heads", num_key_value_heads, optional=True)
        if self.num_heads % (shared or self.num_heads):
            self._refuse("num_key_value_heads", f"a divisor of `num_heads`={num_heads}", shared)
        self.num_key_value_heads = shared
        self.position = None
        if position is not None:
            self.position = part(self, "position", position, AttentionPositionEncoding)
        if isinstance(output_shape, (tuple, list)) and len(output_shape) == 1:
            output_shape = output_shape[0]  # as Keras's configuration has it
        # Keras reserves the public name.
        self._output_shape = whole_number(self, "output_shape", output_shape, optional=True)
        self.seed = None if seed is None else int(seed)
        self.supports_masking = True
        self.attention_observer = None  # a function that is shown the weights of every call
        self.attention_change = None  # a function of the weights, whose result is attended with

    def build(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        shapes = (query_shape, value_shape, key_shape)
        self._check_shapes(*shapes)
        if self.key_dim is None and query_shape[-1] % self.num_heads:
            expected = f"a divisor of the width of `{self.input_names[0]}`, {query_shape[-1]}"
            self._refuse("num_heads", f"{expected}, unless `key_dim` is given", self.num_heads)
        self._widths = tuple(shape[-1] for shape in shapes)
        key_dim = self.key_dim or query_shape[-1] // self.num_heads
        value_dim = self.value_dim or key_dim
        heads, shared = self.num_heads, self.num_key_value_heads or self.num_heads
        self.head_dims = (shared, key_dim, value_dim)
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
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _projection(self, name: str, equation: str, output_shape: Any) -> keras.layers.Layer:
        # One instance for several kernels would make them equal.
        def fresh(initializer: Any) -> Any:
            return type(initializer).from_config(initializer.get_config())

        name_of_bias, biased = name.removeprefix("attention_"), cast(Any, self.use_bias)
        if biased not in (True, False):
            biased = name_of_bias == biased if isinstance(biased, str) else name_of_bias in biased
        projection = keras.layers.EinsumDense(
            equation,
            output_shape=output_shape,
            bias_axes=equation.split("->")[1][2:] if biased else None,
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=fresh(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            name=name,
            dtype=self.dtype_policy,
        )
        projection.supports_masking = True  # or Keras warns that it loses an implicit mask
        return projection

    def call(
        self, query: Tensor, value: Tensor | None = None, key: Tensor | None = None,
        attention_mask: Tensor | None = None, use_causal_mask: bool = False,
        attention_bias: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, query_mask: Tensor | None = None,
        value_mask: Tensor | None = None, key_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        itself = value is None
        query = ops.cast(query, self.compute_dtype)
        value = query if value is None or value is query else ops.cast(value, self.compute_dtype)
        key = value if key is None or key is value else ops.cast(key, self.compute_dtype)
        self._check_inputs(query, value, key)
        paddings = (mask, query_mask, value_mask, key_mask)
        padding = None
        if any(each is not None for each in paddings):
            inputs = (query, value, key, itself)
            query, value, key, padding = self._without_padding(*inputs, *paddings)
        masks = AttentionMasks(padding, causal=use_causal_mask)
        if attention_mask is not None or attention_bias is not None:
            masks = self._with_masks(masks, attention_mask, attention_bias, query, key)

        inputs = (query, key)
        positions = [ops.arange(ops.shape(x)[1], dtype="int32") for x in inputs]
        if query is key is value:
            denses = (self.query_dense, self.key_dense, self.value_dense)
            query, key, value = project(query, *denses, heads_first=True)
        else:
            (query,) = project(query, self.query_dense, heads_first=True)
            if key is value:
                key, value = project(key, self.key_dense, self.value_dense, heads_first=True)
            else:
                (key,) = project(key, self.key_dense, heads_first=True)
                (value,) = project(value, self.value_dense, heads_first=True)
        if masks.mask is not None and masks.mask.shape[-2] == 1:
            key, value = hide_unseen(masks.mask, key, value)
        query = self.prepare_query(query, positions[0])
        key = self.prepare_key(key, positions[1])
        heads = (query, key, value)  # (batch, heads, length, dim)
        return self.attend_heads(inputs, heads, masks, positions, return_attention_scores, training)

    def _check_inputs(self, query: Tensor, value: Tensor, key: Tensor) -> None:
        """Raises ValueError unless the inputs have the widths that the layer was built for."""
        inputs = (query, value, key)
        for name, x, width in zip(self.input_names, inputs, self._widths, strict=True):
            if len(x.shape) != 3 or x.shape[-1] not in (None, width):
                expected = f"of shape (batch, length, {width})"
                self._refuse(name, expected, f"shape {tuple(x.shape)}")
        self._check_lengths(value.shape[1], key.shape[1])

    def _padding(self, x: Tensor, **masks: Tensor | None) -> Any:
        """Returns the padding mask of `x`, bool `(batch, length)`, after checking that it fits."""
        padding: Any = next(mask for mask in masks.values() if mask is not None)
        others = [mask for mask in masks.values() if mask is not None and mask is not padding]
        if not others and getattr(padding, "dtype", None) is not None:
            is_bool = keras.backend.standardize_dtype(padding.dtype) == "bool"
            if is_bool and padding.shape == x.shape[:-1]:
                return padding
        return given_padding(self, x, **masks)

    def _with_masks(
        self, masks: AttentionMasks, mask: Any, bias: Any, query: Tensor, key: Tensor
    ) -> AttentionMasks:
        """Adds the caller's mask and bias of pairs of tokens, after checking that they fit."""
        full = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        fits = hasattr(mask, "dtype") and tuple(mask.shape) == (full[0], *full[2:])
        if fits and keras.backend.standardize_dtype(mask.dtype) == "bool":
            mask = mask[:, None]  # (batch, 1, queries, keys)
        else:
            mask = given_pairs(self, "attention_mask", mask, full)
        if bias is not None and tuple(bias.shape) not in (full, (1, *full[1:])):
            bias = given_pairs(self, "attention_bias", bias, full, False)
        return masks._replace(mask=mask, bias=bias)

    def _without_padding(
        self, query: Tensor, value: Tensor, key: Tensor, itself: bool, mask: Tensor | None,
        query_mask: Tensor | None, value_mask: Tensor | None, key_mask: Tensor | None
    ) -> tuple[Any, ...]:  # fmt: skip
        """Returns inputs with zeros at padding, and the keys' padding; one tensor stays one."""
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

    def prepare_query(self, query: Tensor, positions: Tensor | None) -> Tensor:
        """Returns queries as they are compared. A subclass may override it.

        Args:
            query: `(batch, heads, queries, key_dim)`.
            positions: int32 `(queries,)`; None in cross-attention token by token.

        Returns:
            Same shape.
        """
        if self.score.normalizes:
            query = self.score.normalize_query(query)
        if self.position is not None:
            query = self.position.transform(query, positions)
        return self.score.prepare_query(query)

    def prepare_key(self, key: Tensor, positions: Tensor | None) -> Tensor:
        """Returns keys `(batch, key_value_heads, keys, key_dim)` as they are compared and cached.

        A subclass may override it.
        """
        if self.score.normalizes:
            key = self.score.normalize_key(key)
        if self.position is not None:
            key = self.position.transform(key, positions)
        return self.score.prepare_key(key) if self.score.changes_keys else key

    def make_mask(
        self, query: Tensor, key: Tensor, attention_mask: Tensor | None, padding: Tensor | None,
        causal: bool
    ) -> Tensor | None:  # fmt: skip
        """Returns which keys each query may attend to. A subclass may override it.

        Args:
            query, key: The inputs, `(batch, queries, width)` and `(batch, keys, width)`.
            attention_mask: The caller's, bool `(queries, keys)` or `(batch, heads, queries, keys)`,
                axes of which may be 1; or None.
            padding: Bool `(batch, keys)`, True = real token; or None.
            causal: Whether query `i` sees keys `0 .. i` only.

        Returns:
            What `attend` takes as `mask`: bool that broadcasts against `(batch, heads, queries,
            keys)`, or None for everything.
        """
        mask = attention_mask
        if causal:
            queries = ops.expand_dims(ops.arange(ops.shape(query)[1], dtype="int32"), 1)
            not_later = queries >= ops.arange(ops.shape(key)[1], dtype="int32")
            mask = not_later if mask is None else ops.logical_and(mask, not_later)
        if padding is not None:
            real = ops.expand_dims(padding, (1, 2))  # LiteRT has no `[:, None, None]` here
            mask = real if mask is None else ops.logical_and(mask, real)
        return mask

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None,
        positions: Sequence[Tensor], training: bool | None = None
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attends, from prepared queries, keys and values. A subclass may override it.

        Args:
            query: `(batch, heads, queries, key_dim)`.
            key: `(batch, key_value_heads, keys, key_dim)`.
            value: `(batch, key_value_heads, keys, value_dim)`.
            mask: From `make_mask`, or None.
            bias: Added to the scores `(batch, heads, queries, keys)`, against which it broadcasts;
                or None.
            positions: Those of the queries and of the keys, int32 vectors.
            training: Whether dropout acts.

        Returns:
            `(batch, heads, queries, value_dim)`, and the weights before dropout `(batch, heads,
            queries, keys)`, or None where there are none.
        """
        if self.position is not None:
            term = self.position.bias(query, *positions)
            if term is not None:
                bias = term if bias is None else ops.add(bias, term)
        if self.score.is_product:
            scores = product(query, key, transposed=True)  # `prepare_query` has scaled them
        else:
            heads, shared = query.shape[1], key.shape[1]
            scores = self.score.compare(query if heads == shared else regroup(query, shared), key)
            scores = scores if heads == shared else regroup(scores, heads)
        weights = ops.cast(softmax_of_visible(scores, mask, bias), query.dtype)
        if self.attention_change is not None:
            weights = self.attention_change(weights)
        dropped = self.dropout_layer(weights, training=True) if training else weights
        y = product(dropped, value)  # (batch, heads, queries, value_dim)
        if self.position is not None:
            term = self.position.values(dropped, *positions)
            y = y if term is None else y + term
        return y, weights

    def attend_heads(
        self, inputs: tuple[Tensor, Tensor], heads: tuple[Tensor, Tensor, Tensor],
        masks: AttentionMasks, positions: Sequence[Tensor] = (),
        return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:  # fmt: skip
        """Attends by one of the kernels, merges the heads and projects them.

        The plain kernel, `attend`, computes the weights of all masks. It is taken for short inputs,
        if somebody wants the weights, and if `attend` is overridden. Otherwise `way_of` chooses.

        Args:
            inputs: `query` and `key` of the call, `(batch, length, width)`.
            heads: Queries, keys and values as `attend` takes them.
            masks: The masks and the bias.
            positions, training: As `attend` takes them.
            return_attention_scores: Whether to return the weights too.

        Returns:
            `(batch, queries, output width)`, and on request the weights `(batch, heads, queries,
            keys)`.
        """
        kind = type(self)
        own_mask = kind.make_mask is not MultiHeadAttention.make_mask
        own_attend = kind.attend is not MultiHeadAttention.attend
        is_watched = self.attention_observer is not None or self.attention_change is not None
        needs_weights = return_attention_scores or is_watched or own_attend
        way: Way = "plain"
        if not needs_weights:
            queries, keys = inputs[0].shape[1], inputs[1].shape[1]
            is_known = isinstance(queries, int) and isinstance(keys, int)  # not where JAX exports
            if is_known and queries * keys >= kernels.LEAST_PAIRS_OF_CUDNN:  # the least limit
                way = kernels.way_of(self, *inputs, training)

        # The other kernels leave out blocks of later keys, so they take a flag instead of a mask.
        causal_by_mask = masks.causal and (way == "plain" or own_mask)
        mask = None
        if own_mask or causal_by_mask or masks.mask is not None or masks.padding is not None:
            mask = self.make_mask(*inputs, masks.mask, masks.padding, causal_by_mask)
        if way == "plain":
            y, weights = self.attend(*heads, mask, masks.bias, positions, training)
        else:
            causal, weights = masks.causal and not causal_by_mask, None
            y = kernels.attend_without_weights(
                self, way, *heads, mask, masks.bias, causal, training
            )
        if self.attention_observer is not None and weights is not None:
            self.attention_observer(weights)
        y = swap_heads(y) if KERNELS.get() is not None else ops.transpose(y, (0, 2, 1, 3))
        (y,) = project(y, self.output_dense)  # (batch, queries, output width)
        return (y, weights) if return_attention_scores else y

    def _check_shapes(self, *shapes: Any) -> None:
        """Raises ValueError unless inputs of these shapes can attend to one another."""
        for name, shape in zip(self.input_names, shapes, strict=True):
            if len(shape) != 3 or shape[-1] is None:
                expected = "of shape (batch, length, width) with a known width"
                self._refuse(name, expected, f"shape {tuple(shape)}")
        self._check_lengths(shapes[1][1], shapes[2][1])

    def _check_lengths(self, values: Any, keys: Any) -> None:
        if None not in (values, keys) and values != keys:
            _, value, key = self.input_names
            self._refuse(key, f"as long as `{value}`, {values}", f"length {keys}")

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> Shape:
        if value_shape is not None:
            key_shape = value_shape if key_shape is None else key_shape
            self._check_shapes(query_shape, value_shape, key_shape)
        return (*query_shape[:-1], self._output_shape or query_shape[-1])

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """From a configuration of this class, or of Keras's layer."""
        return super().from_config(our_arguments(cls, config))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "score": serialized(self.score),
            "num_key_value_heads": self.num_key_value_heads,
            "position": serialized(self.position),
            "output_shape": self._output_shape,
            "seed": self.seed,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself (Vaswani et al. 2017, section 3.2.3).

    Source: https://arxiv.org/abs/1706.03762.

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

    takes_mask = True

    causal = False
    input_names = ("x", "x", "x")

    def build(self, x_shape: Shape) -> None:
        super().build(x_shape)

    def call(
        self, x: Tensor, attention_mask: Tensor | None = None, attention_bias: Tensor | None = None,
        positions: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        if tuple(x.shape[2:]) != self._widths[:1]:
            self._check_inputs(x, x, x)
        if self.position is not None:
            x = self.position.fits(x, self.causal)
        placed = x if positions is None else with_positions(self, "positions", x, positions)
        padding = None
        if mask is not None or x_mask is not None:
            padding = self._padding(x, mask=mask, x_mask=x_mask)
            real, zero = ops.expand_dims(padding, -1), ops.zeros((), x.dtype)
            hidden = ops.where(real, x, zero)
            placed = hidden if placed is x else ops.where(real, placed, zero)
            x = hidden
        masks = AttentionMasks(padding, causal=self.causal)
        if attention_mask is not None or attention_bias is not None:
            masks = self._with_masks(masks, attention_mask, attention_bias, x, x)

        here = ops.arange(ops.shape(x)[1], dtype="int32")
        if placed is x:
            denses = (self.query_dense, self.key_dense, self.value_dense)
            query, key, value = project(x, *denses, heads_first=True)  # (batch, heads, length, dim)
        else:
            query, key = project(placed, self.query_dense, self.key_dense, heads_first=True)
            (value,) = project(x, self.value_dense, heads_first=True)
        if masks.mask is not None and masks.mask.shape[-2] == 1:
            key, value = hide_unseen(masks.mask, key, value)
        query, key = self.prepare_query(query, here), self.prepare_key(key, here)
        inputs, heads = (x, x), (query, key, value)
        options = (return_attention_scores, training)
        return self.attend_heads(inputs, heads, masks, (here, here), *options)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return super().compute_output_shape(x_shape)


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
        x = ops.cast(x, self.compute_dtype)
        context = x if context is x else ops.cast(context, self.compute_dtype)
        if tuple(x.shape[2:]) != self._widths[:1] or tuple(context.shape[2:]) != self._widths[1:2]:
            self._check_inputs(x, context, context)
        key_input = context
        if context_positions is not None:
            key_input = with_positions(self, "context_positions", context, context_positions)
        padding = None
        if context_mask is not None:
            padding = self._padding(context, context_mask=context_mask)
            real, zero = ops.expand_dims(padding, -1), ops.zeros((), x.dtype)
            hidden = ops.where(real, context, zero)
            key_input = hidden if key_input is context else ops.where(real, key_input, zero)
            x = hidden if x is context else x
            context = hidden
        query_input = x
        if positions is not None:
            query_input = with_positions(self, "positions", x, positions)
        masks = AttentionMasks(padding)
        if attention_mask is not None or attention_bias is not None:
            masks = self._with_masks(masks, attention_mask, attention_bias, x, context)

        (query,) = project(query_input, self.query_dense, heads_first=True)
        if key_input is context:
            key, value = project(context, self.key_dense, self.value_dense, heads_first=True)
        else:
            (key,) = project(key_input, self.key_dense, heads_first=True)
            (value,) = project(context, self.value_dense, heads_first=True)
        if masks.mask is not None and masks.mask.shape[-2] == 1:
            key, value = hide_unseen(masks.mask, key, value)
        here, there = (ops.arange(ops.shape(each)[1], dtype="int32") for each in (x, context))
        query, key = self.prepare_query(query, here), self.prepare_key(key, there)
        inputs, heads = (x, context), (query, key, value)  # (batch, heads, length, dim)
        options = (return_attention_scores, training)
        return self.attend_heads(inputs, heads, masks, (here, there), *options)

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
