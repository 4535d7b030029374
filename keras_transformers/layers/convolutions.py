"""Convolutions with norms, residual blocks of them, and maps at other sizes."""

from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, Index, LayerOptions, Shape, Tensor
from keras_transformers.layers.base import BaseLayer, Rematerialized
from keras_transformers.layers.checks import check_floating
from keras_transformers.layers.patches import check_map


class Depthwise(keras.layers.DepthwiseConv2D):
    """A depthwise convolution with zeros of half its kernel on every side of the grid.

    Keras's "same" padding puts more of them after the grid than before it where the stride is 2;
    published models do not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"data_format": "channels_last", **kwargs})

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        borders = [(side // 2, side // 2) for side in self.kernel_size]
        return super().call(ops.pad(x, ((0, 0), *borders, (0, 0))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, width = input_shape
        padded = (
            None if side is None else side + size // 2 * 2
            for side, size in zip(sides, self.kernel_size, strict=True)
        )
        return super().compute_output_shape((batch, *padded, width))


def resize_map(x: Tensor, rows: Index, columns: Index) -> Tensor:
    """A map at another size, bilinear, by the centres of its positions; not antialiased.

    Each axis is multiplied by a matrix of shares, so that sizes may be known in the call only and
    gradients are products of matrices, too. What PyTorch computes with `align_corners=False`.

    Args:
        x: `(batch, rows, columns, width)`, floating.
        rows, columns: Of the result.

    Returns:
        `(batch, rows, columns, width)`, of the dtype of `x`; computed in float32.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import resize_map
    >>> np.asarray(resize_map(np.array([[[[0.0], [1.0]]]], "float32"), 1, 4))[0, 0, :, 0].tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    x = ops.convert_to_tensor(x)
    _, old_rows, old_columns, _ = ops.shape(x)
    y = ops.cast(x, "float32")
    y = ops.einsum("ri,bijw->brjw", _shares(old_rows, rows), y)
    y = ops.einsum("cj,brjw->brcw", _shares(old_columns, columns), y)
    return ops.cast(y, x.dtype)


def old_positions(old: Index, new: Index) -> Tensor:
    """Where the centre of each new position lies among the old ones: float32 `(new,)`."""
    scale = ops.cast(old, "float32") / ops.cast(new, "float32")
    positions = (ops.arange(new, dtype="float32") + 0.5) * scale - 0.5
    return ops.clip(positions, 0.0, ops.cast(old, "float32") - 1.0)


def _shares(old: Index, new: Index) -> Tensor:
    """How much of each old position is in each new one: float32 `(new, old)`."""
    distances = old_positions(old, new)[:, None] - ops.arange(old, dtype="float32")
    return ops.maximum(1.0 - ops.abs(distances), 0.0)


GROUPS = 8  # of a group norm; fewer where they do not divide the width
NORMS = ("batch", "frozen", "group")


def _norm(kind: str, width: int, **kwargs: Any) -> keras.layers.Layer:
    """A norm of maps; "frozen" is a batch norm that neither learns nor measures."""
    if kind == "group":
        groups = next(number for number in range(GROUPS, 0, -1) if width % number == 0)
        return keras.layers.GroupNormalization(groups, epsilon=1e-5, **kwargs)
    made = _FrozenBatchNormalization if kind == "frozen" else keras.layers.BatchNormalization
    return made(momentum=0.9, epsilon=1e-5, **kwargs)


class _FrozenBatchNormalization(keras.layers.BatchNormalization):
    """Neither learns nor measures, whatever `trainable` is set to in what it is a part of."""

    @property
    def trainable(self) -> bool:
        return False

    @trainable.setter
    def trainable(self, value: bool) -> None:
        pass


@keras.saving.register_keras_serializable("keras_transformers")
class ConvolutionNorm(BaseLayer):
    """A convolution without bias, a norm, and an activation.

    `act(norm(W * x))` with zeros of half the kernel on every side, as published weights expect it;
    Keras's "same" padding puts more of them after the grid than before it where the stride is 2.

    Args:
        filters: Width of the output.
        kernel_size: Side of the kernel, odd.
        stride: Step of the kernel.
        norm: "batch"; "frozen", a batch norm whose statistics and weights stay as they are (for
            pretrained weights and small batches, Carion et al. 2020, section 4); or "group" (Wu &
            He 2018, https://arxiv.org/abs/1803.08494), which needs no batch.
        activation: Any Keras activation, or None.

    Call arguments:
        x: `(batch, rows, columns, width)`.
        training: Whether a batch norm measures.

    Returns:
        `(batch, ceil(rows / stride), ceil(columns / stride), filters)`.

    Raises:
        ValueError: If a size is not positive, the kernel even, the norm unknown, or `x` not of rank
            4.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConvolutionNorm
    >>> layer = ConvolutionNorm(16, kernel_size=3, stride=2, norm="group")
    >>> tuple(layer(np.ones((2, 9, 7, 3), "float32")).shape)
    (2, 5, 4, 16)
    """

    vector_arguments = ()  # images, whose integers are refused

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        stride: int = 1,
        norm: Literal["batch", "frozen", "group"] = "batch",
        activation: Activation | None = "relu",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if min(filters, kernel_size, stride) < 1 or kernel_size % 2 == 0 or norm not in NORMS:
            raise ValueError(
                "ConvolutionNorm: `filters` and `stride` must be positive, `kernel_size` odd, "
                f"`norm` one of {', '.join(NORMS)}. Received: filters={filters}, "
                f"kernel_size={kernel_size}, stride={stride}, norm={norm!r}"
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.norm = norm
        self.activation = keras.activations.get(activation)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        self.convolution = keras.layers.Conv2D(
            self.filters,
            self.kernel_size,
            self.stride,
            data_format="channels_last",
            use_bias=False,
            kernel_initializer="he_normal",
            name="convolution",
            dtype=self.dtype_policy,
        )
        self.convolution.build(x_shape)
        shape = (None, None, None, self.filters)
        self.norm_layer = _norm(self.norm, self.filters, name="norm", dtype=self.dtype_policy)
        self.norm_layer.build(shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        check_map(self, x.shape)
        check_floating(self, "x", x)
        border = self.kernel_size // 2
        if border:
            x = ops.pad(x, ((0, 0), (border, border), (border, border), (0, 0)))
        x = self.convolution(x)
        x = self.norm_layer(x) if self.norm == "group" else self.norm_layer(x, training=training)
        return ops.cast(self.activation(x), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*_strided(x_shape, self.stride), self.filters)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "norm": self.norm,
            "activation": keras.activations.serialize(self.activation),
        }


def _strided(x_shape: Shape, stride: int) -> Shape:
    batch, *grid, _ = x_shape
    return (batch, *(None if side is None else -(-side // stride) for side in grid))


@keras.saving.register_keras_serializable("keras_transformers")
class ResidualBlock(Rematerialized, BaseLayer):
    """The block of a residual network: convolutions beside a short cut.

    `relu(x + F(x))` with two 3 x 3 convolutions, or three, 1 x 1, 3 x 3, 1 x 1, around a bottleneck
    (He et al. 2016, https://arxiv.org/abs/1512.03385, section 4.1 and figure 5). The stride is that
    of the (first) 3 x 3 convolution; a short cut between different shapes is a 1 x 1 convolution.

    Args:
        filters: Width of the 3 x 3 convolutions.
        stride: Step from position to position.
        bottleneck: Whether there are three convolutions, the last four times as wide.
        norm: See `ConvolutionNorm`.

    Call arguments:
        x: `(batch, rows, columns, width)`.
        training: Whether a batch norm measures.

    Returns:
        `(batch, ceil(rows / stride), ceil(columns / stride), filters)`, or four times as wide.

    Raises:
        ValueError: As `ConvolutionNorm`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ResidualBlock
    >>> block = ResidualBlock(8, stride=2, bottleneck=True)
    >>> tuple(block(np.ones((2, 9, 7, 16), "float32")).shape)
    (2, 5, 4, 32)
    """

    vector_arguments = ()  # images, whose integers are refused

    def __init__(
        self,
        filters: int,
        stride: int = 1,
        bottleneck: bool = False,
        norm: Literal["batch", "frozen", "group"] = "batch",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride
        self.bottleneck = bottleneck
        self.norm = norm
        self.convolutions = [
            self._convolution(f"convolution_{i}", *args) for i, args in enumerate(self._sizes())
        ]
        self.short_cut: ConvolutionNorm | None = None

    def _sizes(self) -> list[tuple[int, int, int, str | None]]:
        """Width, kernel, stride and activation of every convolution."""
        filters, stride = self.filters, self.stride
        middle = (filters, 3, stride, "relu")
        if self.bottleneck:
            return [(filters, 1, 1, "relu"), middle, (4 * filters, 1, 1, None)]
        return [middle, (filters, 3, 1, None)]

    def _convolution(
        self, name: str, filters: int, kernel_size: int, stride: int, activation: Activation | None
    ) -> ConvolutionNorm:
        policy = self.dtype_policy
        return ConvolutionNorm(
            filters, kernel_size, stride, self.norm, activation, name=name, dtype=policy
        )

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        shape = tuple(x_shape)
        for convolution in self.convolutions:
            convolution.build(shape)
            shape = convolution.compute_output_shape(shape)
        if self.stride > 1 or shape[-1] != x_shape[-1]:
            self.short_cut = self._convolution("short_cut", shape[-1], 1, self.stride, None)
            self.short_cut.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        y = x
        for convolution in self.convolutions:
            y = convolution(y, training=training)
        x = x if self.short_cut is None else self.short_cut(x, training=training)
        return ops.cast(ops.relu(x + ops.cast(y, x.dtype)), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        width = self.filters * (4 if self.bottleneck else 1)
        return (*_strided(x_shape, self.stride), width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "stride": self.stride,
            "bottleneck": self.bottleneck,
            "norm": self.norm,
        }
