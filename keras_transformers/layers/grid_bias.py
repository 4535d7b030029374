"""A learned bias for each two-dimensional offset between the patches of an image."""

import math

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.position_terms import PositionTerm


def relative_position_index(grid, prefix_tokens=0):
    """Which row of a table of relative positions belongs to each pair of places.

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
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    places = places.reshape(-1, len(grid))
    offsets = places[:, None] - places[None, :] + np.array(grid) - 1  # query - key, from 0
    sides = [2 * side - 1 for side in grid]
    index = np.ravel_multi_index(tuple(np.moveaxis(offsets, -1, 0)), sides)
    if prefix_tokens:
        index = np.pad(index, ((prefix_tokens, 0), (prefix_tokens, 0)))
        rows = math.prod(sides)
        index[:prefix_tokens] = rows
        index[:, :prefix_tokens] = rows + 1
        index[:prefix_tokens, :prefix_tokens] = rows + 2
    return index.astype("int32")


@keras.saving.register_keras_serializable("keras_transformers")
class GridRelativeBias(PositionTerm):
    """A learned bias for each head and each offset in rows and columns.

    `softmax(Q K^T / sqrt(d) + B) V`, `B` from a table of `(2 rows - 1) (2 columns - 1)` offsets
    (Liu et al. 2021, https://arxiv.org/abs/2103.14030, eq. 4); see `relative_position_index`.
    Position `p` of the attention is the `p`-th patch, row by row, so a causal mask gives raster
    order.

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

    def __init__(self, grid, prefix_tokens=0, **kwargs):
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

    def build(self, query_shape):
        self.table = self.add_weight(
            name="relative_bias",
            shape=(int(self._index.max()) + 1, query_shape[1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def bias(self, query, query_positions, key_positions):
        index = ops.take(self._index, query_positions, axis=0)
        index = ops.take(index, key_positions, axis=1)
        return ops.transpose(ops.take(self.table, index, axis=0), (2, 0, 1))

    def get_config(self):
        return {
            **super().get_config(),
            "grid": list(self.grid),
            "prefix_tokens": self.prefix_tokens,
        }
