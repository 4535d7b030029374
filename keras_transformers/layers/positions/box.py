"""Positions of positions in images of different sizes, and of boxes: sinusoids of coordinates."""

import math

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers.positions.sequence import sinusoidal_encoding


def relative_coordinates(mask: Tensor) -> Tensor:
    """Where the positions of padded grids lie in their images, as shares of the images' sides.

    The lower and the right border of a position: `cumsum(mask) / sum(mask)` along each axis, in
    (0, 1] (Carion et al. 2020, https://arxiv.org/abs/2005.12872, as its authors compute it).

    Args:
        mask: Bool `(batch, rows, columns)`; True = the position belongs to the image.

    Returns:
        float32 `(batch, rows, columns, 2)`, vertical and horizontal; anything at padding.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import relative_coordinates
    >>> mask = np.array([[[True, True, False], [False, False, False]]])
    >>> np.asarray(relative_coordinates(mask))[0, 0, :2].round(3).tolist()
    [[1.0, 0.5], [1.0, 1.0]]
    """
    present = ops.cast(mask, "float32")
    shares = []
    for axis in (1, 2):
        reached = ops.cumsum(present, axis=axis)
        extent = ops.max(reached, axis=axis, keepdims=True)
        shares.append(reached / ops.maximum(extent, 1.0))
    return ops.stack(shares, axis=-1)


def sinusoidal_coordinates(
    coordinates: Tensor, hidden_dim: int, max_wavelength: float = 10000.0
) -> Tensor:
    """Sinusoidal encodings of coordinates in [0, 1], side by side.

    `[PE(2 pi c_1); PE(2 pi c_2); ...]` with `sinusoidal_encoding`, an equal share of the features
    for each (Carion et al. 2020, https://arxiv.org/abs/2005.12872, appendix A.4; for boxes, Liu et
    al. 2022, https://arxiv.org/abs/2201.12329, section 4.2). Computed in float32.

    Args:
        coordinates: `(..., n)`, for instance from `relative_coordinates` or of boxes.
        hidden_dim: D; must be a multiple of `2 n`.
        max_wavelength: As for `sinusoidal_encoding`; small for few positions (20 in that paper).

    Returns:
        float32 `(..., hidden_dim)`.

    Raises:
        ValueError: If `hidden_dim` cannot be shared out.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import sinusoidal_coordinates
    >>> tuple(sinusoidal_coordinates(np.zeros((3, 5, 4)), hidden_dim=16).shape)
    (3, 5, 16)
    """
    number = coordinates.shape[-1]
    if hidden_dim % (2 * number):
        raise ValueError(
            f"sinusoidal_coordinates: `hidden_dim` must be a multiple of {2 * number}, a sine and "
            f"a cosine for each of {number} coordinates. Received: {hidden_dim}"
        )
    angles = 2 * math.pi * ops.cast(coordinates, "float32")
    table = sinusoidal_encoding(angles, hidden_dim // number, max_wavelength)  # (..., n, D / n)
    return ops.reshape(table, (*ops.shape(table)[:-2], hidden_dim))
