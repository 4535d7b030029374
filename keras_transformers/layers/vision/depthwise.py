"""Convolutions of each feature by itself, on a grid."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Shape, Tensor


class Depthwise(keras.layers.DepthwiseConv2D):
    """A depthwise convolution with zeros of half its kernel on every side of the grid.

    Keras's "same" padding puts more of them after the grid than before it where the stride is 2;
    published models do not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"data_format": "channels_last", **kwargs})

    def call(self, x: Tensor) -> Tensor:
        borders = [(side // 2, side // 2) for side in self.kernel_size]
        return super().call(ops.pad(x, ((0, 0), *borders, (0, 0))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, width = input_shape
        padded = (
            None if side is None else side + size // 2 * 2
            for side, size in zip(sides, self.kernel_size, strict=True)
        )
        return super().compute_output_shape((batch, *padded, width))
