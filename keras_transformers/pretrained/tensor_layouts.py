"""How published tensors lie in memory: conversions between theirs and ours.

A layout has `their_shape(shape)`, the published shape of a weight of ours with that `shape`,
`ours(tensor, shape)`, which makes our weight, and `theirs(weight)`, which makes the tensor.
"""

from typing import Protocol

import numpy as np

from keras_transformers.annotations import Array


class Layout(Protocol):
    """How a published tensor holds a weight of ours."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array: ...
    def theirs(self, weight: Array) -> Array: ...


class AsIs:
    """A tensor as it is, or with an axis of 1 in front (`lead`)."""

    def __init__(self, lead: int = 0) -> None:
        self.lead = lead

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) * self.lead + tuple(shape)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.reshape(shape)

    def theirs(self, weight: Array) -> Array:
        return weight.reshape(self.their_shape(weight.shape))


class Matrix:
    """A kernel of ours, whose first `inputs` axes are what goes in, as a matrix.

    PyTorch's linear layers have what comes out first; with `straight` (GPT-2) what goes in.
    """

    def __init__(self, inputs: int = 1, straight: bool = False) -> None:
        self.inputs, self.straight = inputs, straight

    def _flat(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return int(np.prod(shape[: self.inputs])), int(np.prod(shape[self.inputs :]))

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._flat(shape)[:: 1 if self.straight else -1]

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return (tensor if self.straight else tensor.T).reshape(shape)

    def theirs(self, weight: Array) -> Array:
        flat = weight.reshape(self._flat(weight.shape))
        return flat if self.straight else flat.T


class Flat:
    """A bias of heads as one vector."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (int(np.prod(shape)),)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.reshape(shape)

    def theirs(self, weight: Array) -> Array:
        return weight.reshape(-1)


class Convolution:
    """`(height, width, in, out)` as PyTorch's `(out, in, height, width)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[3], shape[2], shape[0], shape[1])

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 1, 0)

    def theirs(self, weight: Array) -> Array:
        return weight.transpose(3, 2, 0, 1)


class Depthwise:
    """`(height, width, features, 1)` as PyTorch's `(features, 1, height, width)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[2:], *shape[:2])

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 0, 1)

    def theirs(self, weight: Array) -> Array:
        return weight.transpose(2, 3, 0, 1)


class PatchConvolution:
    """The kernel of a patch embedding, `(side * side * channels, width)`, as a convolution."""

    def __init__(self, side: int) -> None:
        self.side = side

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[1], shape[0] // self.side**2, self.side, self.side)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 1, 0).reshape(shape)

    def theirs(self, weight: Array) -> Array:
        weight = weight.reshape(self.side, self.side, -1, weight.shape[1])
        return weight.transpose(3, 2, 0, 1)


class FusedPart:
    """One of several equal parts of a published tensor: the query's, key's or value's of a QKV.

    Args:
        number: Which it is, from 0.
        layout: How it lies there by itself.
        parts: How many there are.
        axis: The axis along which they are put together.
    """

    def __init__(self, number: int, layout: Layout, parts: int = 3, axis: int = -1) -> None:
        self.number, self.layout, self.parts, self.axis = number, layout, parts, axis

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        whole = list(self.layout.their_shape(shape))
        whole[self.axis] *= self.parts
        return tuple(whole)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        part = np.split(tensor, self.parts, axis=self.axis)[self.number]
        return self.layout.ours(part, shape)

    def theirs(self, weight: Array) -> Array:
        return self.layout.theirs(weight)


class Stacked:
    """One of several tensors of these numbers of rows that lie as one, along the first axis.

    Args:
        number: Which of them it is.
        rows: Of each, their numbers of rows.
        layout: How it lies by itself.
    """

    axis = 0

    def __init__(self, number: int, rows: tuple[int, ...], layout: Layout) -> None:
        self.number, self.rows, self.layout = number, rows, layout

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        _, *rest = self.layout.their_shape(shape)
        return (sum(self.rows), *rest)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        start = sum(self.rows[: self.number])
        return self.layout.ours(tensor[start : start + self.rows[self.number]], shape)

    def theirs(self, weight: Array) -> Array:
        return self.layout.theirs(weight)


class Pointwise:
    """A dense layer's kernel as a convolution of single positions, `(out, in, 1, 1)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[1], shape[0], 1, 1)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return LINEAR.ours(tensor[:, :, 0, 0], shape)

    def theirs(self, weight: Array) -> Array:
        return LINEAR.theirs(weight)[:, :, None, None]


AS_IS, FLAT, LINEAR, OUTPUT, CONVOLUTION = AsIs(), Flat(), Matrix(), Matrix(2), Convolution()
DEPTHWISE = Depthwise()
