"""Multi-head attention: its arguments, its projections and its configuration."""

from typing import Any, Self, Unpack

from keras_transformers.annotations import Part, Shape
from keras_transformers.layers.attention.keras_attention import our_arguments
from keras_transformers.layers.attention.learned_scores import SCORES, GivenScore
from keras_transformers.layers.attention.projection_settings import (
    Biased,
    KernelOptions,
    ProjectionSettings,
)
from keras_transformers.layers.attention.scores import Score
from keras_transformers.layers.errors import rate, whole_number
from keras_transformers.layers.parts import part, serialized
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.regularization import Dropout


class ProjectionOptions(KernelOptions, total=False):
    """What `MultiHeadAttention` takes by name for its projections."""

    key_dim: int | None
    value_dim: int | None
    use_bias: Biased
    output_shape: int | None
    seed: int | None


class AttentionOptions(ProjectionOptions, total=False):
    """And for its weights."""

    dropout: float
    score: GivenScore
    num_key_value_heads: int | None
    position: Part | None


class AttentionSettings(ProjectionSettings):
    """What `MultiHeadAttention` is made of; it computes nothing.

    Attributes:
        input_names: What errors call the inputs.
        head_dims: Once built, number of heads of keys and values, and width of a key and a value.
    """

    input_names = ("query", "value", "key")

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: Biased = True,
        score: GivenScore = "scaled_dot",
        num_key_value_heads: int | None = None,
        position: Part | None = None,
        output_shape: int | None = None,
        seed: int | None = None,
        **kwargs: Unpack[KernelOptions],
    ) -> None:
        super().__init__(use_bias, **kwargs)
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
        self.seed = seed
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
        }
