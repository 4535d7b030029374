"""Patches of images, signals and volumes: cut, embedded, merged; and tokens beside them."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import at_most, divides, require, same
from keras_transformers.core.types import (
    Array,
    Index,
    Initializer,
    LayerOptions,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.base import BaseLayer, frozen_like
from keras_transformers.layers.checks import check_floating, check_sequence, whole_number
from keras_transformers.layers.parts import norm_prototype

AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}


def patchify(x: Tensor, patch_size: int | Sequence[int]) -> Tensor:
    """Cuts an image (a signal, a volume) into patches and lays each of them flat.

    `(H, W, C) -> (H W / P^2, P^2 C)`, patches row by row, and inside a patch row by row with the
    channels last (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, section 3.1).

    Args:
        x: `(batch, length, c)`, `(batch, height, width, c)` or `(batch, depth, height, width, c)`.
        patch_size: Int, or one for each axis; must divide the axes.

    Returns:
        `(batch, patches, values)`, dtype of `x`.

    Raises:
        ValueError: If `x` is of another rank or the patches do not divide it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import patchify
    >>> patches = patchify(np.arange(16).reshape(1, 4, 4, 1), 2)
    >>> [int(value) for value in patches[0, 0]]  # the upper left patch
    [0, 1, 4, 5]
    """
    sizes = patch_sizes(patch_size, len(x.shape) - 2, "patchify")
    return cut(x, sizes, "patchify")


def cut(x: Tensor, sizes: Sequence[int], owner: str) -> Tensor:
    """Cuts as `patchify`, with an int for each axis; errors name `owner`."""
    return split_patches(whole(x, sizes, owner), sizes)


def split_patches(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Cuts as `patchify`, where whole patches are known to fill `x`."""
    shape = ops.shape(x)
    grid = [extent // size for extent, size in zip(shape[1:-1], sizes, strict=True)]
    parts = [side for pair in zip(grid, sizes, strict=True) for side in pair]
    x = ops.reshape(x, (-1, *parts, shape[-1]))  # (batch, rows, P, columns, P, c)
    dims = len(sizes)
    order = (0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2), 2 * dims + 1)
    return ops.reshape(ops.transpose(x, order), (-1, math.prod(grid), math.prod(sizes) * shape[-1]))


def are_known_and_fit(shape: Shape, sizes: Sequence[int]) -> bool:
    """Returns True if all axes but the batch are known, and whole patches fill them."""
    _, *extents, channels = shape
    fits = (
        isinstance(extent, int) and extent >= size and extent % size == 0
        for extent, size in zip(extents, sizes, strict=True)
    )
    return isinstance(channels, int) and all(fits)


def whole(x: Tensor, sizes: Sequence[int], owner: str) -> Tensor:
    """Returns `x` if whole patches fill it: a rest would become part of another sample.

    Extents that only the call knows are checked then.
    """
    check_grid(owner, x.shape, sizes)
    extents = ops.shape(x)[1:]
    if None in extents:
        raise ValueError(
            f"{owner}: a symbolic input must have known extents and channels outside of a layer's "
            f"call. Received: shape {tuple(x.shape)}"
        )
    fits = [
        holds
        for extent, size in zip(extents[:-1], sizes, strict=True)
        for holds in (at_most(size, extent), divides(size, extent))
    ]
    return require(x, fits, _rule(owner, sizes))


def unpatchify(patches: Tensor, patch_size: int | Sequence[int], grid: Sequence[Index]) -> Tensor:
    """Puts flat patches back together; the inverse of `patchify`.

    Args:
        patches: `(batch, patches, values)`.
        patch_size: Int, or one for each axis.
        grid: Number of patches along each axis, for instance `(rows, columns)`.

    Returns:
        `(batch, *extents, c)`, dtype of `patches`.

    Raises:
        ValueError: If `grid` does not have as many patches, or `values` is no multiple of a
            patch's positions.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import patchify, unpatchify
    >>> x = np.arange(24).reshape(1, 4, 6, 1)
    >>> bool(np.all(unpatchify(patchify(x, 2), 2, (2, 3)) == x))
    True
    """
    grid = tuple(grid)
    sizes = patch_sizes(patch_size, len(grid), "unpatchify")
    pixels, values, shape = math.prod(sizes), patches.shape[-1], ops.shape(patches)
    rule = (
        f"unpatchify: `patches` must have shape (batch, {math.prod(grid)}, c * {pixels}) for "
        f"grid={grid} and patch_size={sizes}."
    )
    patches = require(patches, [len(shape) == 3 and values is not None], rule)
    fits = [divides(pixels, values), same(shape[1], math.prod(grid))]
    patches = require(patches, fits, rule)
    dims = len(grid)
    x = ops.reshape(patches, (-1, *grid, *sizes, values // pixels))
    order = [
        axis
        for pair in zip(range(1, dims + 1), range(dims + 1, 2 * dims + 1), strict=True)
        for axis in pair
    ]
    x = ops.transpose(x, (0, *order, 2 * dims + 1))  # (batch, rows, P, columns, P, c)
    extents = [number * size for number, size in zip(grid, sizes, strict=True)]
    return ops.reshape(x, (-1, *extents, values // pixels))


def patch_sizes(patch_size: int | Sequence[int], dims: int, owner: str) -> tuple[int, ...]:
    """`patch_size` as a tuple with an int for each of `dims` axes."""
    if dims not in AXES:
        raise ValueError(
            f"{owner}: the input must have 1, 2 or 3 axes between batch and channels. "
            f"Received: {dims}"
        )
    given: Any = patch_size
    sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,) * dims
    if len(sizes) != dims or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(
            f"{owner}: `patch_size` must be a positive integer, or {dims} of them for "
            f"{AXES[dims]}. Received: {patch_size!r}"
        )
    return sizes


def check_grid(owner: str, shape: Any, sizes: Sequence[int]) -> None:
    """Raises ValueError unless whole patches fill the input, where its extents are known."""
    for extent, size in zip(shape[1:-1], sizes, strict=True):
        if isinstance(extent, int) and (extent < size or extent % size):
            problem = "smaller than a patch" if extent < size else "not a multiple of the patch"
            raise ValueError(f"{_rule(owner, sizes)} Received: shape {tuple(shape)}, {problem}")


def _rule(owner: str, sizes: Sequence[int]) -> str:
    return (
        f"{owner}: each of {AXES[len(sizes)]} must be a multiple of the patch size {sizes}; resize "
        "or pad the input."
    )


class ToPatches(BaseLayer):
    """What the layers that make tokens of an image share: sizes, checks and output shape."""

    vector_arguments = ()  # images, whose integers are refused

    use_bias = True  # of the projection

    def __init__(
        self, patch_size: int | Sequence[int], hidden_dim: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if not (isinstance(hidden_dim, int) and hidden_dim > 0):
            raise ValueError(
                f"{type(self).__name__}: `hidden_dim` must be a positive integer. "
                f"Received: {hidden_dim!r}"
            )
        self.patch_size = patch_size
        self.hidden_dim = hidden_dim

    @property
    def _owner(self) -> str:
        return f"{type(self).__name__} '{self.name}'"

    def _check(self, x_shape: Any) -> tuple[int, ...]:
        sizes = patch_sizes(self.patch_size, len(x_shape) - 2, self._owner)
        check_grid(self._owner, x_shape, sizes)
        if x_shape[-1] is None:
            raise ValueError(
                f"{self._owner}: the number of channels must be known. "
                f"Received: shape {tuple(x_shape)}"
            )
        return sizes

    def _remember(self, x_shape: Shape) -> tuple[int, ...]:
        """Checks the shape that the layer is built for, and returns the sides of a patch."""
        self._channels = x_shape[-1]
        self._dims = len(x_shape) - 2
        self._sizes = self._check(x_shape)
        return self._sizes

    def _check_input(self, x: Tensor) -> tuple[int, ...]:
        """Raises ValueError unless `x` is as the layer was built for; returns a patch's sides."""
        is_float = keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
        has_axes = len(x.shape) == self._dims + 2 and x.shape[-1] == self._channels
        if is_float and has_axes and are_known_and_fit(x.shape, self._sizes):
            return self._sizes
        return self._check_in_detail(x)

    def _check_in_detail(self, x: Tensor) -> tuple[int, ...]:
        check_floating(self, "x", x)
        if len(x.shape) != self._dims + 2 or x.shape[-1] != self._channels:
            axes = AXES[self._dims]
            raise ValueError(
                f"{self._owner}: `x` must have {self._channels} channels, as when it was built: "
                f"shape (batch, {axes}, {self._channels}). Received: shape {tuple(x.shape)}"
            )
        return self._check(x.shape)

    def _build_projection(self, values: int) -> None:
        self.projection = keras.layers.Dense(
            self.hidden_dim, use_bias=self.use_bias, name="projection", dtype=self.dtype_policy
        )
        self.projection.build((None, None, values))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        sizes = self._check(x_shape)
        extents = x_shape[1:-1]
        number = None
        if None not in extents:
            number = math.prod(e // size for e, size in zip(extents, sizes, strict=True))
        return (x_shape[0], number, self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "hidden_dim": self.hidden_dim,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class PatchEmbedding(ToPatches):
    """Linear projection of patches: an image, a signal or a volume becomes tokens.

    `x_p E + b` with the patches of `patchify` and `E: (P^2 C, D)` (Dosovitskiy et al. 2021,
    https://arxiv.org/abs/2010.11929, eq. 1). A convolution with kernel and stride P computes the
    same. One matrix product needs no convolution of the backend, in any number of dimensions, can
    be quantised like any dense layer, and is as quick or a little slower (forward and backward with
    XLA on two cores of an AMD EPYC 7003: 7.8 to 7.7 ms for 128 images of 32 pixels and P = 4,
    D = 192; 57 to 55 ms for 16 of 224 pixels and P = 16, D = 768; 19 to 16 ms with D = 192).
    Positions are not its business.

    Args:
        patch_size: Int, or one for each axis; must divide the input's axes.
        hidden_dim: Width of a token (D).
        use_bias: Whether there is the bias `b`; CLIP's has none.

    Call arguments:
        x: `(batch, length, c)`, `(batch, height, width, c)` or `(batch, depth, height, width, c)`,
            floating.

    Returns:
        `(batch, patches, hidden_dim)`.

    Raises:
        ValueError: If a size is not positive, `x` is of another rank, has not the channels the
            layer was built with, or is not filled by whole patches.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PatchEmbedding
    >>> tuple(PatchEmbedding(patch_size=4, hidden_dim=6)(np.ones((2, 28, 28, 1))).shape)
    (2, 49, 6)
    """

    def __init__(
        self,
        patch_size: int | Sequence[int],
        hidden_dim: int,
        use_bias: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(patch_size, hidden_dim, **kwargs)
        self.use_bias = use_bias

    def build(self, x_shape: Shape) -> None:
        self._build_projection(math.prod(self._remember(x_shape)) * x_shape[-1])

    def call(self, x: Tensor) -> Tensor:
        sizes = self._check_input(x)
        if not are_known_and_fit(x.shape, sizes):
            x = whole(x, sizes, self._owner)
        return self.projection(split_patches(x, sizes))

    def filters(self) -> Array:
        """The projection as filters over pixels, `(*patch, c, hidden_dim)`, NumPy float32."""
        sizes = patch_sizes(self.patch_size, self._dims, self._owner)
        kernel = ops.convert_to_numpy(ops.cast(self.projection.kernel, "float32"))
        filters = kernel.reshape(*sizes, -1, self.hidden_dim)
        return filters[..., : self._channels, :]  # of shifted patches those of the image itself

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "use_bias": self.use_bias}


@keras.saving.register_keras_serializable("keras_transformers")
class ShiftedPatchEmbedding(PatchEmbedding):
    """Patches that also see their surroundings: the image and its four half-patch shifts.

    `LN(patchify([x; x shifted by P/2 to each of four diagonals])) E + b` (shifted patch
    tokenization, Lee et al. 2021, https://arxiv.org/abs/2112.13492, section 3.1): five times the
    channels, for small data sets on which a plain ViT lacks locality.

    Args:
        patch_size: Even int; must divide height and width.
        hidden_dim: Width of a token.
        use_bias: Whether there is the bias `b`.

    Call arguments:
        x: `(batch, height, width, c)`, floating.

    Returns:
        `(batch, patches, hidden_dim)`.

    Raises:
        ValueError: As `PatchEmbedding`; if `x` is not of rank 4 or `patch_size` odd.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ShiftedPatchEmbedding
    >>> layer = ShiftedPatchEmbedding(patch_size=4, hidden_dim=6)
    >>> tuple(layer(np.ones((2, 28, 28, 1))).shape)
    (2, 49, 6)
    """

    def build(self, x_shape: Shape) -> None:
        sizes = self._remember(x_shape)
        if len(x_shape) != 4 or any(size % 2 for size in sizes):
            raise ValueError(
                f"{self._owner}: `x` must have shape (batch, height, width, c) and `patch_size` "
                f"must be even. Received: shape {tuple(x_shape)}, patch_size={self.patch_size}"
            )
        values = 5 * math.prod(sizes) * x_shape[-1]
        self.norm = keras.layers.LayerNormalization(
            epsilon=1e-6, name="norm", dtype=self.dtype_policy
        )
        self.norm.build((None, None, values))
        self._build_projection(values)

    def call(self, x: Tensor) -> Tensor:
        sizes = self._check_input(x)
        down, right = (size // 2 for size in sizes)
        padded = ops.pad(x, ((0, 0), (down, down), (right, right), (0, 0)))
        height, width = ops.shape(x)[1:3]
        shifts = [
            padded[:, top : top + height, left : left + width]
            for top in (0, 2 * down)
            for left in (0, 2 * right)
        ]
        patches = cut(ops.concatenate([x, *shifts], axis=-1), sizes, self._owner)
        return self.projection(self.norm(patches))


@keras.saving.register_keras_serializable("keras_transformers")
class ConvolutionalStem(ToPatches):
    """A few convolutions instead of one projection: tokens of overlapping, non-linear patches.

    Convolutions of 3 x 3 tokens, each followed by a norm and ReLU, halve height and width until a
    position stands for a patch, doubling the width on the way to `hidden_dim`; a 1 x 1 convolution
    ends them (Xiao et al. 2021, "Early convolutions help transformers see better",
    https://arxiv.org/abs/2106.14881, section 4). The norm is a layer norm, not the paper's batch
    norm, so that training and inference compute the same.

    Args:
        patch_size: A power of two; must divide height and width.
        hidden_dim: Width of a token.

    Call arguments:
        x: `(batch, height, width, c)`, floating.

    Returns:
        `(batch, patches, hidden_dim)`.

    Raises:
        ValueError: If `patch_size` is no power of two above 1, or `x` is not of rank 4 or not
            filled by whole patches.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConvolutionalStem
    >>> layer = ConvolutionalStem(patch_size=4, hidden_dim=32)
    >>> tuple(layer(np.ones((2, 28, 28, 1), "float32")).shape)
    (2, 49, 32)
    """

    def __init__(self, patch_size: int, hidden_dim: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(patch_size, hidden_dim, **kwargs)
        halvings = int(patch_size).bit_length() - 1 if isinstance(patch_size, int) else 0
        if halvings < 1 or patch_size != 2**halvings:
            raise ValueError(
                "ConvolutionalStem: `patch_size` must be a power of two above 1. "
                f"Received: {patch_size!r}"
            )

    def build(self, x_shape: Shape) -> None:
        sizes = self._remember(x_shape)
        if len(x_shape) != 4:
            raise ValueError(
                f"{self._owner}: `x` must have shape (batch, height, width, c). "
                f"Received: shape {tuple(x_shape)}"
            )
        halvings = sizes[0].bit_length() - 1
        policy = self.dtype_policy
        self.convolutions, self.norms = [], []
        shape = (None, None, None, x_shape[-1])
        for i in range(halvings):
            width = max(self.hidden_dim >> (halvings - 1 - i), 1)
            convolution = keras.layers.Conv2D(
                width,
                3,
                2,
                "same",
                "channels_last",
                use_bias=False,
                name=f"convolution_{i}",
                dtype=policy,
            )
            convolution.build(shape)
            shape = (None, None, None, width)
            norm = keras.layers.LayerNormalization(epsilon=1e-6, name=f"norm_{i}", dtype=policy)
            norm.build(shape)
            self.convolutions.append(frozen_like(self, convolution))
            self.norms.append(frozen_like(self, norm))
        self._build_projection(shape[-1])

    def call(self, x: Tensor) -> Tensor:
        sizes = self._check_input(x)
        if not are_known_and_fit(x.shape, sizes):
            x = whole(x, sizes, self._owner)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = ops.relu(norm(convolution(x)))
        rows, columns = ops.shape(x)[1:3]
        return self.projection(ops.reshape(x, (-1, rows * columns, x.shape[3])))

    def filters(self) -> Array:
        """Kernel of the first convolution, `(3, 3, c, width)`, NumPy float32."""
        return ops.convert_to_numpy(ops.cast(self.convolutions[0].kernel, "float32"))


@keras.saving.register_keras_serializable("keras_transformers")
class ClassToken(BaseLayer):
    """Puts one learned token in front of a sequence; its output stands for the whole.

    `[x_class; x_1; ...; x_N]` (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3;
    Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, eq. 1). An implicit Keras mask gets
    one more position.

    Args:
        initializer: Initialiser of the token.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, 1 + length, hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassToken
    >>> tuple(ClassToken()(np.ones((2, 5, 8), "float32")).shape)
    (2, 6, 8)
    """

    def __init__(self, initializer: Initializer = "zeros", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.token = self.add_weight(
            name="class_token", shape=(1, 1, x_shape[-1]), initializer=self.initializer
        )

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        token = ops.cast(self.token, x.dtype)
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        if previous_mask is None:
            return None
        return ops.pad(previous_mask, ((0, 0), (1, 0)), constant_values=True)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + 1, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class RegisterTokens(BaseLayer):
    """Puts learned tokens into a sequence, for a model to keep there what it needs.

    `[x_class; r_1; ...; r_n; x_1; ...; x_N]` (Darcet et al. 2024, "Vision Transformers Need
    Registers", https://arxiv.org/abs/2309.16588, section 2.2). They have no positions.

    Args:
        number: How many, `n` above.
        after: Behind how many tokens of the sequence they stand.
        initializer: Initialiser of the tokens.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, length + number, hidden_dim)`.

    Raises:
        ValueError: If `number` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RegisterTokens
    >>> tuple(RegisterTokens(4)(np.ones((2, 5, 8), "float32")).shape)
    (2, 9, 8)
    """

    def __init__(
        self,
        number: int,
        after: int = 1,
        initializer: Initializer = "truncated_normal",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.number = whole_number(self, "number", number)
        self.after = whole_number(self, "after", after, least=0)
        self.initializer = keras.initializers.get(initializer)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.tokens = self.add_weight(
            name="register_tokens",
            shape=(1, self.number, x_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        tokens = ops.cast(self.tokens, x.dtype)
        tokens = ops.broadcast_to(tokens, (ops.shape(x)[0], self.number, x.shape[-1]))
        return ops.concatenate([x[:, : self.after], tokens, x[:, self.after :]], axis=1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + self.number, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "number": self.number,
            "after": self.after,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class OverlappingPatchEmbedding(BaseLayer):
    """Linear projection of patches that overlap, from an image or a grid of tokens to another.

    A convolution with zeros of half the kernel's width around the image, and optionally a layer
    norm: the entrance to the stages of PVT (Wang et al. 2022, "PVT v2", section 3.2,
    https://arxiv.org/abs/2106.13797) and of MViT (Li et al. 2022, https://arxiv.org/abs/2112.01526).

    Args:
        hidden_dim: Width of a token.
        kernel_size: Side of a patch; odd.
        stride: Distance of the middles of neighbouring patches.
        use_norm: Whether a layer norm follows.
        norm_epsilon: Epsilon of it.

    Call arguments:
        x: `(batch, height, width, channels)`, floating.

    Returns:
        `(batch, ceil(height / stride), ceil(width / stride), hidden_dim)`.

    Raises:
        ValueError: If a size is not positive, `kernel_size` is even, or `x` is not of rank 4.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import OverlappingPatchEmbedding
    >>> layer = OverlappingPatchEmbedding(hidden_dim=6, kernel_size=7, stride=4)
    >>> tuple(layer(np.ones((2, 29, 32, 3), "float32")).shape)
    (2, 8, 8, 6)
    """

    vector_arguments = ()  # images, whose integers are refused

    def __init__(
        self,
        hidden_dim: int,
        kernel_size: int = 3,
        stride: int = 2,
        use_norm: bool = True,
        norm_epsilon: float = 1e-6,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        sizes = {"hidden_dim": hidden_dim, "kernel_size": kernel_size, "stride": stride}
        for name, size in sizes.items():
            even = name == "kernel_size" and isinstance(size, int) and size % 2 == 0
            if not (isinstance(size, int) and size > 0) or even:
                kind = "an odd" if name == "kernel_size" else "a"
                raise ValueError(
                    f"OverlappingPatchEmbedding: `{name}` must be {kind} positive integer. "
                    f"Received: {size!r}"
                )
        self.hidden_dim = hidden_dim
        self.kernel_size = kernel_size
        self.stride = stride
        self.use_norm = use_norm
        self.norm_epsilon = norm_epsilon

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        self.projection = keras.layers.Conv2D(
            self.hidden_dim,
            self.kernel_size,
            self.stride,
            data_format="channels_last",
            name="projection",
            dtype=self.dtype_policy,
        )
        self.projection.build((None, None, None, x_shape[-1]))
        self.norm = None
        if self.use_norm:
            self.norm = keras.layers.LayerNormalization(
                epsilon=self.norm_epsilon, name="norm", dtype=self.dtype_policy
            )
            self.norm.build((None, None, None, self.hidden_dim))

    def call(self, x: Tensor) -> Tensor:
        check_map(self, x.shape)
        check_floating(self, "x", x)
        border = (self.kernel_size // 2,) * 2
        x = self.projection(ops.pad(x, ((0, 0), border, border, (0, 0))))
        return ops.cast(x if self.norm is None else self.norm(x), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        check_map(self, x_shape)
        batch, *grid, _ = x_shape
        sides = (None if side is None else -(-side // self.stride) for side in grid)
        return (batch, *sides, self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "use_norm": self.use_norm,
            "norm_epsilon": self.norm_epsilon,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class PatchMerging(BaseLayer):
    """Joins each 2 x 2 neighbours to one token: half the rows and columns, twice the width.

    `LN([x_00; x_10; x_01; x_11]) W`, from 4 D to 2 D (Liu et al. 2021,
    https://arxiv.org/abs/2103.14030, section 3.1), the first index that of the row; in its second
    version `LN([..] W)` (Liu et al. 2022, https://arxiv.org/abs/2111.09883, section 3.1). An odd
    last row or column is joined with zeros.

    Args:
        norm_first: Whether the norm comes before the projection.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-5)`; copied.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.

    Returns:
        `(batch, ceil(rows / 2), ceil(columns / 2), 2 * hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 4 with a known width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PatchMerging
    >>> tuple(PatchMerging()(np.ones((2, 7, 6, 5), "float32")).shape)
    (2, 4, 3, 10)
    """

    def __init__(
        self, norm_first: bool = True, norm: Part | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.norm_first = norm_first
        if norm is None:
            norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self._norm = norm_prototype(self, norm)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        width = x_shape[-1]
        self.norm = self._norm.copy(self, "norm")
        self.norm.build((None, None, (4 if self.norm_first else 2) * width))
        self.projection = keras.layers.Dense(
            2 * width, use_bias=False, name="projection", dtype=self.dtype_policy
        )
        self.projection.build((None, None, 4 * width))

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        check_map(self, x.shape)
        rows, columns = ops.shape(x)[1:3]
        x = pad_map(x, rows % 2, columns % 2)
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        x = ops.concatenate(parts, axis=-1)
        x = self.projection(self.norm(x)) if self.norm_first else self.norm(self.projection(x))
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        check_map(self, x_shape)
        batch, *grid, width = x_shape
        half = (None if side is None else (side + 1) // 2 for side in grid)
        return (batch, *half, 2 * width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "norm_first": self.norm_first,
            "norm": self._norm.serialized(),
        }


def check_map(layer: Any, x_shape: Shape) -> None:
    """Raises ValueError unless `x` is `(batch, rows, columns, hidden_dim)` of known width."""
    if len(x_shape) != 4 or x_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}': `x` must have shape (batch, rows, columns, "
            f"hidden_dim) with a known width. Received: shape {tuple(x_shape)}"
        )


def pad_map(x: Tensor, rows: Index, columns: Index) -> Tensor:
    """Adds so many rows and columns of zeros at the lower and the right border."""
    none = (isinstance(side, int) and side == 0 for side in (rows, columns))
    return x if all(none) else ops.pad(x, ((0, 0), (0, rows), (0, columns), (0, 0)))
