"""Positions on a grid of patches: the learned table, which can be resized, and sinusoids."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Index, Initializer, LayerOptions, Mixin, Shape, Tensor
from keras_transformers.assertions import require, same
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import named
from keras_transformers.layers.positions.resizing import resize_positions
from keras_transformers.layers.positions.sequence import PositionEmbedding, sinusoidal_encoding


def fills_grid(
    layer: keras.layers.Layer, x: Tensor, grid: Sequence[Index], prefix_tokens: int
) -> Tensor:
    """`x`, if it has as many tokens as the grid has positions, and the prefix."""
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
        grid = self.grid if grid is None else tuple(grid)
        x = fills_grid(self, x, grid, self.prefix_tokens)
        known = all(isinstance(side, int) for side in grid)
        same = known and grid == self.grid
        table = self.table
        if not same:
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
class SinusoidalGrid(Arguments, keras.layers.Layer):
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
