"""Tokens of patches that overlap, on a grid."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import check_floating
from keras_transformers.layers.vision.patch_merging import check_map


@keras.saving.register_keras_serializable("keras_transformers")
class OverlappingPatchEmbedding(Arguments, Composite, keras.layers.Layer):
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
