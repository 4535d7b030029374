"""The projections of an attention: from its inputs to heads, and from the heads' output."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, Unpack, cast

import keras

from keras_transformers.annotations import Initializer, LayerOptions
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse

Projection: TypeAlias = Literal["query", "key", "value", "output"]
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value", "output")
Biased: TypeAlias = bool | Projection | Sequence[Projection]


class KernelOptions(LayerOptions, total=False):
    """What `ProjectionSettings` takes by name beside `use_bias`, as Keras's layers call it."""

    kernel_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Any
    bias_regularizer: Any
    kernel_constraint: Any
    bias_constraint: Any


class ProjectionSettings(Arguments, Composite, keras.layers.Layer):
    """What the projections of a layer are made with.

    Args:
        use_bias: Whether all have a bias, none, or those named.
        kernel_initializer, bias_initializer, ...: As in `keras.layers.EinsumDense`.

    Call arguments: None; it computes nothing.

    Returns: Nothing.
    """

    _refuse = refuse

    def __init__(
        self,
        use_bias: Biased = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(use_bias, (tuple, list)) and all(name in PROJECTIONS for name in use_bias):
            use_bias = tuple(use_bias)
        elif use_bias not in (True, False, "output"):
            expected = f"True, False, 'output', or some of {', '.join(PROJECTIONS)}"
            self._refuse("use_bias", expected, repr(use_bias))
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }
