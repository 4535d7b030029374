"""A bias for each two-dimensional offset between the patches of an image."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, LayerOptions, Shape, Tensor
from keras_transformers.assertions import at_most, require, same
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import named
from keras_transformers.layers.positions.grid import GridTable
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.positions.resizing import resize_positions
from keras_transformers.layers.positions.sequence import rows_of


def relative_position_index(grid: Sequence[int], prefix_tokens: int = 0) -> Array:
    """Which row of a table of relative positions belongs to each pair of positions.

    The offset of key from query along each axis, counted from the most negative one, the first axis
    slowest; `prod(2 n - 1)` rows (Liu et al. 2021, https://arxiv.org/abs/2103.14030, section 3.2).
    Tokens before the patches share three more rows: from such a token to a patch, from a patch to
    such a token, and between two of them, as in BEiT (https://arxiv.org/abs/2106.08254).

    Args:
        grid: Number of patches along each axis, for instance `(rows, columns)`.
        prefix_tokens: Number of tokens before the patches.

    Returns:
        int32 NumPy array `(prefix + patches, prefix + patches)`: query, key.

    Example:
    >>> from keras_transformers.layers import relative_position_index
    >>> relative_position_index((1, 3)).tolist()
    [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    """
    positions = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    positions = positions.reshape(-1, len(grid))
    offsets = positions[:, None] - positions[None, :] + np.array(grid) - 1  # query - key, from 0
    sides = _offsets(grid)
    index = np.ravel_multi_index(tuple(np.moveaxis(offsets, -1, 0)), sides)
    if prefix_tokens:
        index = np.pad(index, ((prefix_tokens, 0), (prefix_tokens, 0)))
        rows = math.prod(sides)
        index[:prefix_tokens] = rows
        index[:, :prefix_tokens] = rows + 1
        index[:prefix_tokens, :prefix_tokens] = rows + 2
    return index.astype("int32")


@keras.saving.register_keras_serializable("keras_transformers")
class GridRelativeBias(GridTable, AttentionPositionEncoding):
    """A learned bias for each head and each offset in rows and columns.

    `softmax(Q K^T / sqrt(d) + B) V`, `B` from a table of `(2 rows - 1) (2 columns - 1)` offsets
    (Liu et al. 2021, https://arxiv.org/abs/2103.14030, eq. 4); see `relative_position_index`.
    Position `p` of the attention is the `p`-th patch, row by row, so a causal mask gives raster
    order. Weights saved with one grid load into a term with another: the table is resized as
    `resize_positions` does.

    Args:
        grid: Number of patches along each axis, for instance `(rows, columns)`.
        prefix_tokens: Number of tokens before the patches (1 for a class token).

    Raises:
        ValueError: If `grid` is not of positive integers or `prefix_tokens` negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import GridRelativeBias, SelfAttention
    >>> layer = SelfAttention(num_heads=2, position=GridRelativeBias(grid=(3, 2)))
    >>> tuple(layer(np.ones((3, 6, 8), "float32")).shape)
    (3, 6, 8)
    """

    relative = False

    def __init__(
        self, grid: Sequence[int], prefix_tokens: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        grid = tuple(grid)
        if not grid or min(grid) < 1 or prefix_tokens < 0:
            raise ValueError(
                f"GridRelativeBias '{self.name}': `grid` must hold positive integers and "
                f"`prefix_tokens` not be negative. Received: grid={grid}, "
                f"prefix_tokens={prefix_tokens}"
            )
        self.grid = grid
        self.prefix_tokens = prefix_tokens
        self._index = relative_position_index(grid, prefix_tokens)

    def build(self, query_shape: Shape) -> None:
        self.table = self.add_weight(
            name="relative_bias",
            shape=(self._rows(self.grid), query_shape[1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            autocast=False,
        )

    def fits(self, x: Tensor, causal: bool) -> Tensor:
        return _of_grid(self, x, self.prefix_tokens + math.prod(self.grid), causal)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        bias = _of_pairs(self.table, self._index, query_positions, key_positions)
        return ops.cast(bias, self.compute_dtype)

    def _rows(self, grid: Sequence[int]) -> int:
        return math.prod(_offsets(grid)) + (3 if self.prefix_tokens else 0)

    def _resized(self, table: Array, grid: Sequence[int]) -> Array:
        rows = math.prod(_offsets(grid))
        offsets = resize_positions(table[:rows], _offsets(grid), _offsets(self.grid))
        return np.concatenate([ops.convert_to_numpy(offsets), table[rows:]])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid": list(self.grid),
            "prefix_tokens": self.prefix_tokens,
        }


def _of_grid(term: keras.layers.Layer, x: Tensor, tokens: int, causal: bool) -> Tensor:
    """`x`, if it fills the grid: of another grid its tokens would have other offsets.

    What is causal may end before the grid does.
    """
    length, most = ops.shape(x)[1], "at most " * causal
    fits = at_most(length, tokens) if causal else same(length, tokens)
    rule = f"{named(term, 'x')} must have {most}{tokens} tokens, for grid={term.grid}."
    return require(x, [fits], rule)


def _offsets(grid: Sequence[int]) -> list[int]:
    """How many different offsets there are along each axis."""
    return [2 * side - 1 for side in grid]


def _of_pairs(table: Any, index: Array, query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Rows of a table for pairs of positions: `(rows, heads)` -> `(heads, queries, keys)`."""
    index = ops.take(index, query_positions, axis=0)
    index = ops.take(index, key_positions, axis=1)
    return ops.transpose(rows_of(table, index), (2, 0, 1))


@keras.saving.register_keras_serializable("keras_transformers")
class LogGridBias(Composite, AttentionPositionEncoding):
    """A bias for each offset in rows and columns from a small network of the offset's logarithm.

    `B = 16 sigmoid(W2 relu(W1 d + b1))` of `d = sign(o) log2(1 + 8 |o| / (M - 1)) / log2(8)`, where
    `o` is the offset and `M` the grid by which it is measured (log-spaced continuous position bias;
    Liu et al. 2022, "Swin Transformer V2", https://arxiv.org/abs/2111.09883, section 3.3; factor
    and sigmoid are those of the authors' code). Its weights do not depend on the grid.

    Args:
        grid: Number of patches along each axis, for instance `(rows, columns)`.
        pretrained_grid: M, an int or one for each axis, where it is not `grid`.
        units: Width of the network's hidden layer.

    Raises:
        ValueError: If a size is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LogGridBias, SelfAttention
    >>> layer = SelfAttention(num_heads=2, score="scaled_cosine", position=LogGridBias((3, 2)))
    >>> tuple(layer(np.ones((3, 6, 8), "float32")).shape)
    (3, 6, 8)
    """

    relative = False

    def __init__(
        self,
        grid: Sequence[int],
        pretrained_grid: int | Sequence[int] | None = None,
        units: int = 512,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        grid = tuple(grid)
        measure = grid if pretrained_grid is None else pretrained_grid
        measure = (measure,) * len(grid) if isinstance(measure, int) else tuple(measure)
        if not grid or min(*grid, *measure, units) < 1 or len(measure) != len(grid):
            self._refuse(
                "grid",
                "of positive integers, `pretrained_grid` and `units` too",
                f"grid={grid}, pretrained_grid={pretrained_grid}, units={units}",
            )
        self.grid = grid
        self.pretrained_grid = pretrained_grid
        self.units = units
        self._index = relative_position_index(grid)
        offsets = np.meshgrid(*(np.arange(1 - side, side) for side in grid), indexing="ij")
        share = np.stack(offsets, axis=-1) / [max(side - 1, 1) for side in measure]
        log = np.sign(share) * np.log2(1 + 8 * np.abs(share)) / np.log2(8)
        self._offsets = np.float32(log.reshape(-1, len(grid)))

    def build(self, query_shape: Shape) -> None:
        self.hidden = keras.layers.Dense(self.units, "relu", name="hidden", dtype=self.dtype_policy)
        self.hidden.build((None, len(self.grid)))
        self.output_dense = keras.layers.Dense(
            query_shape[1], use_bias=False, name="output", dtype=self.dtype_policy
        )
        self.output_dense.build((None, self.units))

    def fits(self, x: Tensor, causal: bool) -> Tensor:
        return _of_grid(self, x, math.prod(self.grid), causal)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        table = self.output_dense(self.hidden(self._offsets))
        bias = _of_pairs(table, self._index, query_positions, key_positions)
        return 16 * ops.sigmoid(ops.cast(bias, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid": list(self.grid),
            "pretrained_grid": self.pretrained_grid,
            "units": self.units,
        }
