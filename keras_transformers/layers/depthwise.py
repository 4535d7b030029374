"""Convolutions of each feature by itself, on a grid."""

import keras
from keras import ops


class Depthwise(keras.layers.DepthwiseConv2D):
    """A depthwise convolution with zeros of half its kernel on every side of the grid.

    Keras's "same" padding puts more of them after the grid than before it where the stride is 2;
    published models do not.
    """

    def call(self, x):
        borders = [(side // 2, side // 2) for side in self.kernel_size]
        return super().call(ops.pad(x, ((0, 0), *borders, (0, 0))))
