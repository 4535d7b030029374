"""From images, signals and volumes to tokens: patches, projected."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Array, LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import check_floating
from keras_transformers.layers.vision.patches import AXES, check_grid, cut, patch_sizes


class ToPatches(Arguments, Composite, keras.layers.Layer):
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
        """Checks the shape that the layer is built for."""
        self._channels, self._dims = x_shape[-1], len(x_shape) - 2
        return self._check(x_shape)

    def _check_input(self, x: Tensor) -> tuple[int, ...]:
        """What differs from the input that the layer was built for is refused."""
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
        return self.projection(cut(x, self._check_input(x), self._owner))

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
