"""What the heads of some encoders do with vectors before their last layer."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import whole_number
from keras_transformers.layers.parts import Prototype, serialized


@keras.saving.register_keras_serializable("keras_transformers")
class HeadTransform(Arguments, Composite, keras.layers.Layer):
    """`norm(act(W x + b))`, the `transform` of a head: what stands before its last layer.

    ModernBERT's heads have it without a bias (Warner et al. 2024, https://arxiv.org/abs/2412.13663,
    and their code), ELECTRA's generator with as many units as its table of tokens is wide (Clark et
    al. 2020, https://arxiv.org/abs/2003.10555, section 3.2).

    Args:
        activation: `act` above.
        norm: A norm, for instance `keras.layers.LayerNormalization()`, of which a copy is made;
            None for none.
        use_bias: Whether there is `b`.
        units: Rows of `W`; by default the width of `x`.

    Call arguments:
        x: `(..., hidden_dim)`.

    Returns:
        `(..., units)`.

    Raises:
        ValueError: If `units` is not positive.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.models import ClassificationHead, HeadTransform, TextEncoder
    >>> transform = HeadTransform(norm=keras.layers.LayerNormalization(), use_bias=False)
    >>> head = ClassificationHead(3, pooling="mean", transform=transform)
    >>> model = TextEncoder.from_variant("tiny", 31, style="modern", head=head)
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)
    """

    def __init__(
        self,
        activation: Activation | None = "gelu",
        norm: Part | None = None,
        use_bias: bool = True,
        units: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self._norm = None if norm is None else Prototype(self, "norm", norm, keras.layers.Layer)
        self.use_bias = use_bias
        self.units = whole_number(self, "units", units, optional=True)

    def build(self, x_shape: Shape) -> None:
        self.dense = keras.layers.Dense(
            self.units or x_shape[-1],
            self.activation,
            use_bias=self.use_bias,
            name="dense",
            dtype=self.dtype_policy,
        )
        self.dense.build(x_shape)
        self.norm: Any = None
        if self._norm is not None:
            self.norm = self._norm.copy(self, "norm")
            self.norm.build(self.compute_output_shape(x_shape))

    def call(self, x: Tensor) -> Tensor:
        x = self.dense(x)
        return x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.units or x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "norm": serialized(None if self._norm is None else self._norm.layer),
            "use_bias": self.use_bias,
            "units": self.units,
        }
