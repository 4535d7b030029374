"""A table of positions for another grid of patches than it was made for."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_transformers.annotations import Index, Tensor


def resize_positions(
    table: Any, old_grid: Sequence[int], new_grid: Sequence[Index], antialias: bool = True
) -> Tensor:
    """Resamples a table of position embeddings from one grid of patches to another.

    Bicubic and, where the grid shrinks, antialiased: Keys's kernel (a = -0.5) widened by the factor
    of shrinking, its weights made to sum to 1 at the borders, as in Pillow, TensorFlow, and
    PyTorch's `interpolate(mode="bicubic", antialias=True)` that timm uses. Rows before the grid's
    (class token) stay as they are. The method of Dosovitskiy et al. 2021,
    https://arxiv.org/abs/2010.11929, section 3.2, for fine-tuning at another resolution.

    Args:
        table: `(prefix + patches, hidden_dim)`.
        old_grid, new_grid: Number of patches along each axis, for instance `(rows, columns)`; of
            the new grid integers or scalar tensors.
        antialias: Whether it is done so; if not, as PyTorch's `interpolate(mode="bicubic")` does
            it without further arguments: a = -0.75, of the same width whatever the grid, and at
            the borders the outermost position goes on (DINOv2).

    Returns:
        `(prefix + new patches, hidden_dim)`, float32.

    Raises:
        ValueError: If the table has fewer rows than `old_grid` patches, or the grids differ in
            rank.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import resize_positions
    >>> tuple(resize_positions(np.ones((1 + 49, 6)), (7, 7), (10, 9)).shape)
    (91, 6)
    """
    old_grid, new_grid = tuple(old_grid), tuple(new_grid)
    prefix = table.shape[0] - math.prod(old_grid)
    if prefix < 0 or len(old_grid) != len(new_grid):
        raise ValueError(
            "resize_positions: `table` must have a row for each patch of `old_grid`, and both "
            f"grids as many axes. Received: table of shape {tuple(table.shape)}, "
            f"old_grid={old_grid}, new_grid={new_grid}"
        )
    table = ops.cast(table, "float32")
    hidden_dim = table.shape[-1]
    grid = ops.reshape(table[prefix:], (*old_grid, hidden_dim))
    for axis, (old, new) in enumerate(zip(old_grid, new_grid, strict=True)):
        if not isinstance(new, int) or old != new:
            weights = _resampling(old, new) if antialias else _interpolation(old, new)
            grid = ops.tensordot(weights, grid, axes=((1,), (axis,)))
            grid = ops.moveaxis(grid, 0, axis)
    return ops.concatenate([table[:prefix], ops.reshape(grid, (-1, hidden_dim))], axis=0)


def _centers(old: int, new: Index) -> tuple[Any, Any, Any]:
    """NumPy or Keras's operations; the factor of shrinking; the new positions among the old."""
    xp: Any = np if isinstance(new, int) else ops
    if isinstance(new, int):
        scale, count = old / new, np.arange(new)
    else:  # known when the call is made; equal sizes then give the identity
        scale = old / ops.cast(new, "float64")
        count = ops.cast(ops.arange(new, dtype="int32"), "float64")
    return xp, scale, (count + 0.5) * scale


def _interpolation(old: int, new: Index) -> Tensor:
    """As `_resampling`, without antialiasing and a = -0.75."""
    xp, _, centers = _centers(old, new)
    positions = np.arange(-2, old + 2)
    distance = xp.abs(positions + 0.5 - centers[:, None])
    near = (1.25 * distance - 2.25) * distance**2 + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    weights = xp.where(distance < 1, near, xp.where(distance < 2, far, 0.0))
    nearest = np.eye(old)[np.clip(positions, 0, old - 1)]  # of each position, the old one
    return ops.cast(xp.matmul(weights, nearest), "float32")


def _resampling(old: int, new: Index) -> Tensor:
    """float32 `(new, old)`: the weight of each old position in each new one."""
    xp, scale, centers = _centers(old, new)
    distance = xp.abs(np.arange(old) + 0.5 - centers[:, None]) / xp.maximum(scale, 1.0)
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights = xp.where(distance < 1, near, xp.where(distance < 2, far, 0.0))
    return ops.cast(weights / xp.sum(weights, axis=1, keepdims=True), "float32")
