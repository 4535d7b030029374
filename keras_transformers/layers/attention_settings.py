"""Multi-head attention: its arguments, its projections and its configuration."""

import keras

from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate, refuse, whole_number
from keras_transformers.layers.keras_attention import our_arguments
from keras_transformers.layers.parts import part, serialized
from keras_transformers.layers.position_terms import PositionTerm
from keras_transformers.layers.regularization import Dropout
from keras_transformers.layers.scores import SCORES, Score


class AttentionSettings(Arguments, Composite, keras.layers.Layer):
    """What `MultiHeadAttention` is made of; it computes nothing."""

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
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.key_dim = whole_number(self, "key_dim", key_dim, optional=True)
        self.value_dim = whole_number(self, "value_dim", value_dim, optional=True)
        self.dropout = rate(self, "dropout", dropout)
        if use_bias not in (True, False, "output"):
            self._refuse("use_bias", "True, False or 'output'", repr(use_bias))
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
            self.position = part(self, "position", position, PositionTerm)
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

    def build(self, query_shape, value_shape=None, key_shape=None):
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

    def _check_shapes(self, *shapes):
        """Raises ValueError unless inputs of these shapes can attend to one another."""
        for name, shape in zip(self.input_names, shapes, strict=True):
            if len(shape) != 3 or shape[-1] is None:
                expected = "of shape (batch, length, width) with a known width"
                self._refuse(name, expected, f"shape {tuple(shape)}")
        self._check_lengths(shapes[1][1], shapes[2][1])

    def _check_lengths(self, values, keys):
        if None not in (values, keys) and values != keys:
            _, value, key = self.input_names
            self._refuse(key, f"as long as `{value}`, {values}", f"length {keys}")

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
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            name=name,
            dtype=self.dtype_policy,
        )
        projection.supports_masking = True  # or Keras warns that it loses an implicit mask
        return projection

    @classmethod
    def from_config(cls, config):
        """From a configuration of this class, or of Keras's layer."""
        return super().from_config(our_arguments(cls, config))

    def get_config(self):
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
