"""Positions inside attention: terms of scores and values for pairs of positions."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import at_most, require, same
from keras_transformers.core.types import Array, LayerOptions, Shape, Tensor
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import named, refuse, whole_number
from keras_transformers.layers.positions.grid import GridTable, resize_positions
from keras_transformers.layers.positions.sequence import rows_of


@keras.saving.register_keras_serializable("keras_transformers")
class AttentionPositionEncoding(BaseLayer):
    """Base of the terms that attention takes as `position`; by itself it does nothing.

    A term of one's own overrides what differs. Weights are made in `build`, from the shape of the
    query, `(batch, heads, queries, key_dim)`. Positions are int32 vectors.

    Attributes:
        relative: Whether only the difference of two positions matters. `LocalAttention` takes no
            others, as it counts positions anew in each of its blocks.
        shareable: Whether the term is a `bias` alone, and one that is made without the query, so
            that the blocks of a stack can share one, as those of `models.Transformer` do.
        most_cached: Number of tokens of a text up to which what was made of the first ones stays
            right, as decoding token by token keeps it; None without end.

    Example: a penalty of one for every other position.
    >>> import keras
    >>> import numpy as np
    >>> from keras import ops
    >>> from keras_transformers.layers import AttentionPositionEncoding, SelfAttention
    >>> @keras.saving.register_keras_serializable()
    ... class Elsewhere(AttentionPositionEncoding):
    ...     def bias(self, query, query_positions, key_positions):
    ...         other = query_positions[:, None] != key_positions[None, :]
    ...         return -ops.cast(other, "float32")
    >>> layer = SelfAttention(num_heads=2, position=Elsewhere())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    relative = True
    shareable = False
    most_cached: int | None = None
    _refuse = refuse

    def build(self, query_shape: Shape) -> None:
        pass

    def fits(self, x: Tensor, causal: bool) -> Tensor:
        """`x` `(batch, length, width)` of self-attention, if the term is made for that length."""
        return x

    def transform(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys `(batch, heads, length, key_dim)` as they are compared at positions."""
        return x

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """What is added to the scores: broadcasts against `(batch, heads, queries, keys)`, or None.

        `query` is `(batch, heads, queries, key_dim)` as the score prepared it (for the scaled dot
        product, divided by `sqrt(key_dim)`).
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """What is added to the output, `(batch, heads, queries, value_dim)`, or None.

        `weights` is `(batch, heads, queries, keys)`.
        """
        return None

    def get_config(self) -> dict[str, Any]:
        return super().get_config()  # Keras's automatic one knows no dtype policy


def _distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """`j - i` for a query at `i` and a key at `j`, int32 `(queries, keys)`."""
    return key_positions[None, :] - query_positions[:, None]


@keras.saving.register_keras_serializable("keras_transformers")
class ALiBi(AttentionPositionEncoding):
    """Linear biases: a score falls with the distance, at a slope of its own in each head.

    `a(q_i, k_j) - m_h |i - j|` (Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3),
    with `m_h = 2^(-8 h / H)` for `h = 1 .. H`; where H is no power of two, those of the next
    smaller power and every other one of twice as many, as the authors' code has it. There are no
    weights. Under a causal mask the term is the paper's; in both directions it is symmetric.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ALiBi, CausalSelfAttention
    >>> layer = CausalSelfAttention(num_heads=2, position=ALiBi())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    shareable = True

    def build(self, query_shape: Shape) -> None:
        heads = query_shape[1]
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        between = [2 ** (-8 * (i + 0.5) / power) for i in range(power)]
        self._slopes = np.array(slopes + between[: heads - power], "float32")

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = ops.absolute(_distances(query_positions, key_positions))
        return -ops.cast(distance, "float32") * self._slopes[:, None, None]


@keras.saving.register_keras_serializable("keras_transformers")
class RelativePositionBias(AttentionPositionEncoding):
    """A learned bias for each head and bucket of distances (T5).

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1: half of the buckets hold one
    distance each, the other half grow logarithmically up to `max_distance`, and the last holds all
    beyond. In both directions each gets half of the buckets; under a causal mask, where no key
    comes after its query, all of them serve the keys before.

    Args:
        num_buckets: Number of buckets.
        max_distance: Distance from which on all are in the last bucket.
        bidirectional: Whether keys after the query have buckets too; False for causal attention.

    Raises:
        ValueError: If there are fewer than 2 buckets for a direction, or `max_distance` is not
            beyond the buckets of one distance each.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RelativePositionBias, SelfAttention
    >>> layer = SelfAttention(num_heads=2, position=RelativePositionBias())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    shareable = True

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        num_buckets = whole_number(self, "num_buckets", num_buckets)
        max_distance = whole_number(self, "max_distance", max_distance)
        directions = 2 if bidirectional else 1
        if num_buckets < 2 * directions or num_buckets % (2 * directions):
            self._refuse("num_buckets", f"a positive multiple of {2 * directions}", num_buckets)
        if max_distance <= num_buckets // directions // 2:
            expected = f"more than {num_buckets // directions // 2}, the distances counted singly"
            self._refuse("max_distance", expected, max_distance)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self._buckets = self._bucket_of_distance()

    def _bucket_of_distance(self) -> Array:
        """int32 `(max_distance + 1,)`: the bucket of each distance in one direction."""
        buckets = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        exact = buckets // 2
        distance = np.arange(self.max_distance + 1)
        growth = np.log(np.maximum(distance, 1) / exact) / np.log(self.max_distance / exact)
        # The small number lets a logarithm that should be whole come out whole.
        wide = exact + np.int32(np.floor(growth * (buckets - exact) + 1e-6))
        return np.where(distance < exact, distance, np.minimum(wide, buckets - 1)).astype("int32")

    def build(self, query_shape: Shape) -> None:
        self.table = self.add_weight(
            name="relative_bias",
            shape=(self.num_buckets, query_shape[1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = _distances(query_positions, key_positions)
        near = ops.absolute(distance) if self.bidirectional else ops.maximum(-distance, 0)
        bucket = ops.take(self._buckets, ops.minimum(near, self.max_distance), axis=0)
        if self.bidirectional:
            after = ops.cast(distance > 0, "int32")
            bucket = bucket + after * (self.num_buckets // 2)
        bias = ops.cast(rows_of(self.table, bucket), self.compute_dtype)
        return ops.transpose(bias, (2, 0, 1))  # (heads, queries, keys)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class ShawRelativePosition(AttentionPositionEncoding):
    """A learned key and a learned value for each distance, clipped.

    `e_ij = q_i (k_j + a^K_(j-i))^T / sqrt(d_k)`, `z_i = sum_j w_ij (v_j + a^V_(j-i))` (Shaw et al.
    2018, https://arxiv.org/abs/1803.02155, eq. 3 and 4), the heads sharing both tables, as in the
    paper. All pairs of positions take `queries * keys * (key_dim + value_dim)` numbers, whatever
    the batch and the number of heads.

    Args:
        max_distance: Distances are clipped to `-max_distance .. max_distance` (the paper's k).
        use_values: Whether there is a table of values; False keeps the keys' only.
        value_dim: Width of a value in one head; by default that of a query.

    Raises:
        ValueError: If `max_distance` is negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SelfAttention, ShawRelativePosition
    >>> layer = SelfAttention(num_heads=2, position=ShawRelativePosition(max_distance=4))
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        max_distance: int = 16,
        use_values: bool = True,
        value_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.max_distance = whole_number(self, "max_distance", max_distance, least=0)
        self.use_values = use_values
        self.value_dim = whole_number(self, "value_dim", value_dim, optional=True)

    def build(self, query_shape: Shape) -> None:
        distances = 2 * self.max_distance + 1
        self.keys = self.add_weight(
            name="relative_key",
            shape=(distances, query_shape[-1]),
            initializer="glorot_uniform",
            autocast=False,
        )
        self.table_of_values = None
        if self.use_values:
            self.table_of_values = self.add_weight(
                name="relative_value",
                shape=(distances, self.value_dim or query_shape[-1]),
                initializer="glorot_uniform",
                autocast=False,
            )

    def _of_pairs(
        self, table: Any, query_positions: Tensor, key_positions: Tensor, dtype: Any
    ) -> Tensor:
        distance = _distances(query_positions, key_positions)
        position = ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        return ops.cast(rows_of(table, position), dtype)  # (queries, keys, dim)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        keys = self._of_pairs(self.keys, query_positions, key_positions, query.dtype)
        return ops.einsum("bhqd,qkd->bhqk", query, keys)

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        if self.table_of_values is None:
            return None
        values = self._of_pairs(self.table_of_values, query_positions, key_positions, weights.dtype)
        return ops.einsum("bhqk,qkd->bhqd", weights, values)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "use_values": self.use_values,
            "value_dim": self.value_dim,
        }


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
class LogGridBias(AttentionPositionEncoding):
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
