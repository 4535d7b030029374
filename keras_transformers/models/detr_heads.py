"""What DETR makes classes and boxes of: networks on top of every query."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.composite import Composite


class _Network(Composite, keras.layers.Layer):
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


def network(units: int, width: int, hidden: int, name: str, dtype: Any, **kwargs: Any) -> _Network:
    """`hidden` layers of `width` with ReLU, and one of `units`, which `kwargs` are of."""
    layers = [
        keras.layers.Dense(width, "relu", name=f"hidden_{i}", dtype=dtype) for i in range(hidden)
    ]
    layers.append(keras.layers.Dense(units, name="output", dtype=dtype, **kwargs))
    return _Network(layers, name=name, dtype=dtype)


def class_head(num_classes: int, focal: bool, name: str, dtype: Any) -> keras.layers.Dense:
    """Logits of each class, and without `focal` of one more, "no object"."""
    # Few queries stand for something: with a sigmoid for each class, start from 1 in 100.
    bias = keras.initializers.Constant(-4.6 if focal else 0.0)
    units = num_classes + (not focal)
    return keras.layers.Dense(units, bias_initializer=bias, name=name, dtype=dtype)


def box_head(width: int, moved: bool, name: str, dtype: Any) -> _Network:
    """Four numbers of a box; where boxes are `moved`, they start where they were."""
    kernel = keras.initializers.RandomNormal(stddev=1e-3) if moved else "glorot_uniform"
    return network(4, width, 2, name, dtype, kernel_initializer=kernel)
