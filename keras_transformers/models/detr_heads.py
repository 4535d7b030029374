"""What DETR makes classes and boxes of: networks on top of every query."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.composite import Composite


class Network(Composite, keras.layers.Layer):
    """Layers in turn: `keras.Sequential` that follows a dtype policy."""

    def __init__(
        self, layers: Sequence[keras.layers.Layer], **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.layers = layers

    def build(self, shape: Shape) -> None:
        for layer in self.layers:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def compute_output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.layers[-1].units)


def network(units: int, width: int, hidden: int, name: str, dtype: Any, **kwargs: Any) -> Network:
    """`hidden` layers of `width` with ReLU, and one of `units`, which `kwargs` are of."""
    layers = [
        keras.layers.Dense(width, "relu", name=f"hidden_{i}", dtype=dtype) for i in range(hidden)
    ]
    layers.append(keras.layers.Dense(units, name="output", dtype=dtype, **kwargs))
    return Network(layers, name=name, dtype=dtype)


class Heads(Composite, keras.layers.Layer):
    """The logits of classes and the box of every token.

    Args:
        num_classes: Number of classes.
        focal: Whether each class has a sigmoid of its own. Without, there is a softmax over the
            classes and one more, the last, "no object".
        width: Width of the box's network.
        moved: Whether boxes are added to others, so that they start at zero.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        Logits `(batch, length, classes)`, and boxes before the sigmoid, `(batch, length, 4)`,
        float32.
    """

    def __init__(
        self, num_classes: int, focal: bool, width: int, moved: bool, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.focal = focal
        # Few queries stand for something: with a sigmoid for each class, start from 1 in 100.
        bias = keras.initializers.Constant(-4.6 if focal else 0.0)
        self.class_head = keras.layers.Dense(
            num_classes + (not focal),
            bias_initializer=bias,
            name="class_head",
            dtype=self.dtype_policy,
        )
        kernel = keras.initializers.RandomNormal(stddev=1e-3) if moved else "glorot_uniform"
        self.box_head = network(
            4, width, 2, "box_head", self.dtype_policy, kernel_initializer=kernel
        )

    def build(self, shape: Shape) -> None:
        self.class_head.build(shape)
        self.box_head.build(shape)

    def call(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.class_head(x), ops.cast(self.box_head(x), "float32")

    def compute_output_shape(self, shape: Shape) -> tuple[Shape, Shape]:
        return (*shape[:-1], self.class_head.units), (*shape[:-1], 4)

    def sureness(self, logits: Tensor) -> Tensor:
        """How sure logits are that there is an object: `(..., classes)` -> `(...)`, float32."""
        logits = ops.cast(logits, "float32")
        if self.focal:
            return ops.max(logits, axis=-1)
        return -ops.log_softmax(logits, axis=-1)[..., -1]
