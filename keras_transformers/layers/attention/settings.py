"""Multi-head attention: its arguments, its projections and its configuration."""

from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack, cast

import keras

from keras_transformers.annotations import Initializer, LayerOptions, Part, Shape
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.attention.keras_attention import our_arguments
from keras_transformers.layers.attention.learned_scores import SCORES, GivenScore
from keras_transformers.layers.attention.scores import Score
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate, refuse, whole_number
from keras_transformers.layers.parts import part, serialized
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.regularization import Dropout

Projection: TypeAlias = Literal["query", "key", "value", "output"]
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value", "output")


class ProjectionOptions(LayerOptions, total=False):
    """What `MultiHeadAttention` takes by name for its projections."""

    key_dim: int | None
    value_dim: int | None
    use_bias: bool | Projection | Sequence[Projection]
    output_shape: int | None
    kernel_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Any
    bias_regularizer: Any
    kernel_constraint: Any
    bias_constraint: Any
    seed: int | None


class AttentionOptions(ProjectionOptions, total=False):
    """And for its weights."""

    dropout: float
    score: GivenScore
    num_key_value_heads: int | None
    position: Part | None


class AttentionSettings(Arguments, Composite, keras.layers.Layer):
    """What `MultiHeadAttention` is made of; it computes nothing.

    Attributes:
        input_names: What errors call the inputs.
        head_dims: Once built, number of heads of keys and values, and width of a key and a value.
    """

    input_names = ("query", "value", "key")
    _refuse = refuse

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool | Projection | Sequence[Projection] = True,
        score: GivenScore = "scaled_dot",
        num_key_value_heads: int | None = None,
        position: Part | None = None,
        output_shape: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Any = None,
        seed: int | None = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.key_dim = whole_number(self, "key_dim", key_dim, optional=True)
        self.value_dim = whole_number(self, "value_dim", value_dim, optional=True)
        self.dropout = rate(self, "dropout", dropout)
        if isinstance(use_bias, (tuple, list)) and all(name in PROJECTIONS for name in use_bias):
            use_bias = tuple(use_bias)
        elif use_bias not in (True, False, "output"):
            expected = f"True, False, 'output', or some of {', '.join(PROJECTIONS)}"
            self._refuse("use_bias", expected, repr(use_bias))
        self.use_bias = use_bias
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
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.seed = seed
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.supports_masking = True
        self.attention_observer = None  # a function that is shown the weights of every call

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
            "use_bias": self.use_bias,
            "score": serialized(self.score),
            "num_key_value_heads": self.num_key_value_heads,
            "position": serialized(self.position),
            "output_shape": self._output_shape,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "seed": self.seed,
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }
