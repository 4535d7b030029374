"""A few convolutions instead of one projection, from an image to tokens."""

from typing import Unpack

import keras
from keras import ops

from keras_transformers.annotations import Array, LayerOptions, Shape, Tensor
from keras_transformers.layers.composite import frozen_like
from keras_transformers.layers.vision.patch_embedding import ToPatches
from keras_transformers.layers.vision.patches import whole


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
        x = whole(x, self._check_input(x), self._owner)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = ops.relu(norm(convolution(x)))
        rows, columns = ops.shape(x)[1:3]
        return self.projection(ops.reshape(x, (-1, rows * columns, x.shape[3])))

    def filters(self) -> Array:
        """Kernel of the first convolution, `(3, 3, c, width)`, NumPy float32."""
        return ops.convert_to_numpy(ops.cast(self.convolutions[0].kernel, "float32"))
