"""Positions on a grid: learned tables, sinusoids, boxes, and tables at other sizes."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import require, same
from keras_transformers.core.types import Index, Initializer, LayerOptions, Mixin, Shape, Tensor
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import named
from keras_transformers.layers.positions.sequence import PositionEmbedding, sinusoidal_encoding


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


def fills_grid(
    layer: keras.layers.Layer, x: Tensor, grid: Sequence[Index], prefix_tokens: int
) -> Tensor:
    """Returns `x` if it has as many tokens as the grid has positions, and the prefix."""
    known = all(isinstance(side, int) for side in grid)
    length = prefix_tokens + math.prod(grid)
    expected = f"{length} tokens for grid={grid} and" if known else "rows * columns tokens and"
    rule = f"{named(layer, 'x')} must have {expected} prefix_tokens={prefix_tokens}."
    return require(x, [same(ops.shape(x)[1], length)], rule)


class GridTable(Mixin):
    """What layers share whose only weight, `table`, has rows for the positions of a `grid`.

    Weights saved with one grid load into a layer with another, resized. A layer has `_rows(grid)`,
    the number of rows for a grid, and `_resized(table, grid)`, those for its own.
    """

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        store["grid"] = np.array(self.grid)

    def load_own_variables(self, store: Any) -> None:
        self.assign_resized(store["0"], tuple(int(side) for side in store["grid"]))

    def assign_resized(self, table: Any, grid: Sequence[int]) -> None:
        """Takes over a table that was made for `grid`."""
        table = np.asarray(table)
        expected = (self._rows(grid), self.table.shape[1])
        if table.shape != expected:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': the table for grid={grid} must have shape "
                f"{expected}. Received: shape {table.shape}"
            )
        self.table.assign(table if tuple(grid) == self.grid else self._resized(table, grid))


@keras.saving.register_keras_serializable("keras_transformers")
class GridPositionEmbedding(GridTable, PositionEmbedding):
    """A `PositionEmbedding` for patches of an image, which can be resized.

    Adds `E_pos: (prefix + patches, D)` (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929,
    eq. 1). Weights saved with one grid load into a layer with another: the table is resized by
    `resize_positions`, and so it is for a call with another `grid`.

    Args:
        grid: Number of patches along each axis, for instance `(rows, columns)`.
        prefix_tokens: Number of tokens before the patches (1 for a class token).
        initializer: Initialiser of the table.
        antialias: See `resize_positions`.

    Call arguments:
        x: `(batch, prefix + patches, hidden_dim)`.
        grid: Optional grid of `x`, where it is not the layer's own; integers, or scalar tensors
            where only the call knows it.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If a size is not positive, or the length of `x` is not that of the grid.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import GridPositionEmbedding
    >>> layer = GridPositionEmbedding(grid=(7, 7), prefix_tokens=1)
    >>> tuple(layer(np.zeros((2, 50, 8), "float32")).shape)
    (2, 50, 8)
    >>> tuple(layer(np.zeros((2, 101, 8), "float32"), grid=(10, 10)).shape)
    (2, 101, 8)
    """

    def __init__(
        self, grid: Sequence[int], prefix_tokens: int = 0,
        initializer: Initializer = "truncated_normal", antialias: bool = True,
        **kwargs: Unpack[LayerOptions]
    ) -> None:  # fmt: skip
        grid = tuple(grid)
        if not grid or min(grid) < 1 or prefix_tokens < 0:
            raise ValueError(
                "GridPositionEmbedding: `grid` must hold positive integers and `prefix_tokens` "
                f"not be negative. Received: grid={grid}, prefix_tokens={prefix_tokens}"
            )
        super().__init__(prefix_tokens + math.prod(grid), initializer, **kwargs)
        self.grid = grid
        self.prefix_tokens = prefix_tokens
        self.antialias = antialias

    def call(self, x: Tensor, grid: Sequence[Index] | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        grid = self.grid if grid is None else tuple(grid)
        length = x.shape[1]
        is_own = all(isinstance(side, int) for side in grid) and grid == self.grid
        if not (is_own and isinstance(length, int) and length == self.table.shape[0]):
            x = fills_grid(self, x, grid, self.prefix_tokens)
        table = self.table
        if not is_own:
            table = resize_positions(table, self.grid, grid, self.antialias)
        return x + ops.cast(table, x.dtype)

    def _rows(self, grid: Sequence[int]) -> int:
        return self.prefix_tokens + math.prod(grid)

    def _resized(self, table: Any, grid: Sequence[int]) -> Any:
        return resize_positions(table, grid, self.grid, self.antialias)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("max_length", "first_position", "norm"):
            del config[name]
        own = {"grid": list(self.grid), "prefix_tokens": self.prefix_tokens}
        return {**config, **own, "antialias": self.antialias}


def sinusoidal_grid(
    grid: Sequence[Index], hidden_dim: int, max_wavelength: float = 10000.0
) -> Tensor:
    """Sinusoidal encodings of the positions of a grid, the axes side by side.

    Each axis gets an equal share of the features, the first axis (rows) the first share:
    `[PE(row); PE(column)]` with `sinusoidal_encoding` (as in DETR, Carion et al. 2020,
    https://arxiv.org/abs/2005.12872, appendix A.4, and MAE).

    Args:
        grid: Number of positions along each axis, for instance `(rows, columns)`.
        hidden_dim: D; must be a multiple of twice the number of axes.
        max_wavelength: As for `sinusoidal_encoding`.

    Returns:
        float32 `(positions, hidden_dim)`, positions row by row.

    Raises:
        ValueError: If `hidden_dim` cannot be shared out.

    Example:
    >>> from keras_transformers.layers import sinusoidal_grid
    >>> tuple(sinusoidal_grid((3, 5), hidden_dim=8).shape)
    (15, 8)
    """
    grid = tuple(grid)
    if hidden_dim % (2 * len(grid)):
        raise ValueError(
            f"sinusoidal_grid: `hidden_dim` must be a multiple of {2 * len(grid)}, a sine and a "
            f"cosine for each of {len(grid)} axes. Received: {hidden_dim}"
        )
    share = hidden_dim // len(grid)
    parts = []
    for axis, side in enumerate(grid):
        table = sinusoidal_encoding(ops.arange(side, dtype="int32"), share, max_wavelength)
        shape: list[Index] = [*[1] * len(grid), share]
        shape[axis] = side
        parts.append(ops.broadcast_to(ops.reshape(table, shape), (*grid, share)))
    return ops.reshape(ops.concatenate(parts, axis=-1), (-1, hidden_dim))


@keras.saving.register_keras_serializable("keras_transformers")
class SinusoidalGrid(BaseLayer):
    """Adds the sinusoidal encoding of each patch's row and column; it has no weights.

    See `sinusoidal_grid`. Computed in float32 whatever the compute dtype and cast last.

    Args:
        grid: `(rows, columns)` for tokens in a row; None for `x` of rank 4, which has the grid in
            its shape.
        prefix_tokens: Number of tokens before the patches (class token); they get nothing.
        max_wavelength: The longest wavelength is `2 pi max_wavelength`.

    Call arguments:
        x: `(batch, prefix + rows * columns, hidden_dim)`, or `(batch, rows, columns, hidden_dim)`.
        grid: Optional grid of `x`, where it is not the layer's own; integers, or scalar tensors
            where only the call knows it.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If the length of `x` is not that of the grid, or its width no multiple of 4.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SinusoidalGrid
    >>> tuple(SinusoidalGrid()(np.zeros((2, 3, 5, 8), "float32")).shape)
    (2, 3, 5, 8)
    """

    def __init__(
        self, grid: Sequence[int] | None = None, prefix_tokens: int = 0,
        max_wavelength: float = 10000.0, **kwargs: Unpack[LayerOptions]
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.grid = None if grid is None else tuple(grid)
        self.prefix_tokens = prefix_tokens
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        if x_shape[-1] is None or len(x_shape) not in (3, 4):
            raise ValueError(
                f"SinusoidalGrid '{self.name}': `x` must have shape (batch, tokens, hidden_dim) or "
                f"(batch, rows, columns, hidden_dim). Received: shape {tuple(x_shape)}"
            )

    def call(self, x: Tensor, grid: Sequence[Index] | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if len(x.shape) == 4:
            extents = ops.shape(x)[1:]  # which may be unknown until the call
            table = sinusoidal_grid(extents[:2], x.shape[-1], self.max_wavelength)
            return x + ops.cast(ops.reshape(table, extents), x.dtype)
        grid = self.grid if grid is None else tuple(grid)
        if grid is None:
            raise ValueError(
                f"SinusoidalGrid '{self.name}': `grid` must be given for tokens in a row. "
                f"Received: None, for `x` of shape {tuple(x.shape)}"
            )
        x = fills_grid(self, x, grid, self.prefix_tokens)
        table = sinusoidal_grid(grid, x.shape[-1], self.max_wavelength)
        return x + ops.cast(ops.pad(table, ((self.prefix_tokens, 0), (0, 0))), x.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid": self.grid,
            "prefix_tokens": self.prefix_tokens,
            "max_wavelength": self.max_wavelength,
        }
