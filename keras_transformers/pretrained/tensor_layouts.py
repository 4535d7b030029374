"""How published tensors lie in memory: conversions between theirs and ours.

A layout has `their_shape(shape)`, the published shape of a weight of ours with that `shape`,
`ours(tensor, shape)`, which makes our weight, and `theirs(weight)`, which makes the tensor.
"""

import numpy as np


class AsIs:
    """A tensor as it is, or with an axis of 1 in front (`lead`)."""

    def __init__(self, lead=0):
        self.lead = lead

    def their_shape(self, shape):
        return (1,) * self.lead + tuple(shape)

    def ours(self, tensor, shape):
        return tensor.reshape(shape)

    def theirs(self, weight):
        return weight.reshape(self.their_shape(weight.shape))


class Matrix:
    """A kernel of ours, whose first `inputs` axes are what goes in, as a matrix.

    PyTorch's linear layers have what comes out first; with `straight` (GPT-2) what goes in.
    """

    def __init__(self, inputs=1, straight=False):
        self.inputs, self.straight = inputs, straight

    def _flat(self, shape):
        return int(np.prod(shape[: self.inputs])), int(np.prod(shape[self.inputs :]))

    def their_shape(self, shape):
        return self._flat(shape)[:: 1 if self.straight else -1]

    def ours(self, tensor, shape):
        return (tensor if self.straight else tensor.T).reshape(shape)

    def theirs(self, weight):
        flat = weight.reshape(self._flat(weight.shape))
        return flat if self.straight else flat.T


class Flat:
    """A bias of heads as one vector."""

    def their_shape(self, shape):
        return (int(np.prod(shape)),)

    def ours(self, tensor, shape):
        return tensor.reshape(shape)

    def theirs(self, weight):
        return weight.reshape(-1)


class Convolution:
    """`(height, width, in, out)` as PyTorch's `(out, in, height, width)`."""

    def their_shape(self, shape):
        return (shape[3], shape[2], shape[0], shape[1])

    def ours(self, tensor, shape):
        return tensor.transpose(2, 3, 1, 0)

    def theirs(self, weight):
        return weight.transpose(3, 2, 0, 1)


class PatchConvolution:
    """The kernel of a patch embedding, `(side * side * channels, width)`, as a convolution."""

    def __init__(self, side):
        self.side = side

    def their_shape(self, shape):
        return (shape[1], shape[0] // self.side**2, self.side, self.side)

    def ours(self, tensor, shape):
        return tensor.transpose(2, 3, 1, 0).reshape(shape)

    def theirs(self, weight):
        weight = weight.reshape(self.side, self.side, -1, weight.shape[1])
        return weight.transpose(3, 2, 0, 1)


class FusedPart:
    """The query's, key's or value's part (0, 1 or 2) of a fused QKV, along its last axis."""

    def __init__(self, number, layout):
        self.number, self.layout = number, layout

    def their_shape(self, shape):
        *first, last = self.layout.their_shape(shape)
        return (*first, 3 * last)

    def ours(self, tensor, shape):
        return self.layout.ours(np.split(tensor, 3, axis=-1)[self.number], shape)

    def theirs(self, weight):
        return self.layout.theirs(weight)


AS_IS, FLAT, LINEAR, OUTPUT, CONVOLUTION = AsIs(), Flat(), Matrix(), Matrix(2), Convolution()
