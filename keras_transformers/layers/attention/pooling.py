"""Attention with fewer keys: pooled maps (MViT) and spatial reduction (PVT)."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import (
    Array,
    Index,
    LayerOptions,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.multi_head import AttentionOptions, MultiHeadAttention
from keras_transformers.layers.attention.scores import project, swap_heads
from keras_transformers.layers.base import frozen_like
from keras_transformers.layers.convolutions import Depthwise
from keras_transformers.layers.parts import norm_prototype
from keras_transformers.layers.patches import PatchEmbedding, check_map, pad_map
from keras_transformers.layers.positions.grid import GridTable, resize_positions
from keras_transformers.layers.positions.sequence import rows_of


def _steps(positions: Any, others: Any, known: bool) -> Any:
    """Where the positions are, in units of the finer of the two grids; float64."""
    if known:
        return np.arange(positions) * max(others / positions, 1.0)
    here = ops.cast(ops.arange(positions, dtype="int32"), "float64")
    return here * ops.maximum(ops.cast(others, "float64") / ops.cast(positions, "float64"), 1.0)


class OffsetVectors(GridTable, keras.layers.Layer):
    """A learned vector for each offset of two of `grid[0]` positions along an axis."""

    def __init__(self, grid: Sequence[int], **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.grid = tuple(grid)

    def build(self, query_shape: Shape) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(self._rows(self.grid), query_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def between(self, queries: Index, keys: Index) -> Tensor:
        """Vectors `(queries, keys, dim)` between so many positions over the same extent.

        The fewer ones are as far apart as there are of the others between them. Both numbers are
        integers, or scalar tensors where only the call knows them.
        """
        known = isinstance(queries, int) and isinstance(keys, int)
        table, grid = self.table, (max(queries, keys) if known else ops.maximum(queries, keys),)
        if not known or grid != self.grid:
            table = resize_positions(table, (table.shape[0],), (self._rows(grid),))
        query, key = _steps(queries, keys, known), _steps(keys, queries, known)
        offset = query[:, None] - key[None, :] + key[-1]
        return rows_of(table, offset.astype("int32") if known else ops.cast(offset, "int32"))

    def _rows(self, grid: Sequence[Any]) -> Any:
        return 2 * grid[0] - 1

    def _resized(self, table: Array, grid: Sequence[int]) -> Any:
        return resize_positions(table, (self._rows(grid),), (self._rows(self.grid),))


@keras.saving.register_keras_serializable("keras_transformers")
class PoolingAttention(MultiHeadAttention):
    """Attention of a grid to itself, with fewer keys and values, and perhaps fewer queries.

    Queries, keys and values are each pooled by a depthwise convolution of 3 x 3 tokens, shared by
    the heads, and a layer norm. `Attn = softmax(Q K^T / sqrt(d) + E) V + Q` with
    `E_(q,k) = Q_q (R^rows_(q,k) + R^columns_(q,k))`, a learned vector for each offset in rows and
    each in columns (Li et al. 2022, "MViTv2", https://arxiv.org/abs/2112.01526, eq. 1 to 5; that
    `E` is not divided by `sqrt(d)` is the authors' code). On a grid of another size than that of
    the tables these are resized, as by `resize_positions`.

    Args:
        num_heads: Number of heads; must divide the width of `x` unless `key_dim` is given.
        grid: `(rows, columns)` of `x` that the tables of positions are made for.
        query_stride: How many times fewer rows and columns the output has than `x`.
        key_stride: How many times fewer the keys and values have.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-6)` after each
            pooling; copied.
        output_shape: Width of the output; by default that of `x`.
        dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        `(batch, ceil(rows / query_stride), ceil(columns / query_stride), output width)`, and the
        weights `(batch, heads, queries, keys)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`, and if `x` is not of rank 4 or a stride is not
            positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PoolingAttention
    >>> layer = PoolingAttention(num_heads=2, grid=(8, 8), query_stride=2, key_stride=4)
    >>> tuple(layer(np.ones((3, 8, 8, 6), "float32")).shape)
    (3, 4, 4, 6)
    """

    input_names = ("x", "x", "x")

    def __init__(
        self,
        num_heads: int,
        grid: Sequence[int],
        query_stride: int = 1,
        key_stride: int = 1,
        norm: Part | None = None,
        **kwargs: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(num_heads, **kwargs)
        strides = {"query_stride": query_stride, "key_stride": key_stride}
        for name, stride in strides.items():
            if not (isinstance(stride, int) and stride > 0):
                self._refuse(name, "a positive integer", repr(stride))
        self.grid = tuple(grid)
        self.query_stride = query_stride
        self.key_stride = key_stride
        self._norm = norm_prototype(self, norm)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        super().build((None, None, x_shape[-1]))
        _, self._width, value_width = self.head_dims
        width = self._width
        if value_width != width:
            self._refuse("value_dim", f"`key_dim`={width}, as queries are added", self.value_dim)
        self.poolings, self.norms = [], []
        sides = {"query": self.query_stride, "key": self.key_stride, "value": self.key_stride}
        for name, stride in sides.items():
            pooling = Depthwise(
                3, stride, use_bias=False, name=f"{name}_pooling", dtype=self.dtype_policy
            )
            norm = self._norm.copy(self, f"{name}_norm")
            for part in (pooling, norm):
                part.build((None, None, None, width))
            self.poolings.append(frozen_like(self, pooling))
            self.norms.append(frozen_like(self, norm))
        strides = (self.query_stride, self.key_stride)
        positions = [max(-(-side // stride) for stride in strides) for side in self.grid]
        self.row_offsets, self.column_offsets = (
            OffsetVectors((number,), name=f"{axis}_offsets", dtype=self.dtype_policy)
            for axis, number in zip(("row", "column"), positions, strict=True)
        )
        for table in (self.row_offsets, self.column_offsets):
            table.build((None, None, width))

    def call(
        self, x: Tensor, return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:
        x = ops.cast(x, self.compute_dtype)
        check_map(self, x.shape)
        _, rows, columns, width = ops.shape(x)
        tokens = ops.reshape(x, (-1, rows * columns, width))
        parts = project(tokens, self.query_dense, self.key_dense, self.value_dense)
        query, key, value = (
            self._pool(part, (rows, columns), *layers)
            for part, *layers in zip(parts, self.poolings, self.norms, strict=True)
        )
        grid = ops.shape(query)[2:4]
        bias = self._bias(query, ops.shape(key)[2:4])
        query, key, value = (
            ops.reshape(
                part, (-1, self.num_heads, ops.shape(part)[2] * ops.shape(part)[3], self._width)
            )
            for part in (query, key, value)
        )
        prepared = self.prepare_query(query, None), self.prepare_key(key, None)
        output, weights = self.attend(*prepared, value, None, bias, (), training)
        (output,) = project(swap_heads(output + query), self.output_dense)
        output = ops.reshape(output, (-1, *grid, output.shape[-1]))
        return (output, weights) if return_attention_scores else output

    def _pool(self, x: Tensor, grid: Sequence[Any], pooling: Any, norm: Any) -> Tensor:
        """`(batch, tokens, heads, dim)` -> `(batch, heads, rows, columns, dim)` of the pooled."""
        x = norm(pooling(ops.reshape(swap_heads(x), (-1, *grid, self._width))))
        x = ops.cast(x, self.compute_dtype)
        return ops.reshape(x, (-1, self.num_heads, *ops.shape(x)[1:]))

    def _bias(self, query: Tensor, key_grid: Sequence[Any]) -> Tensor:
        """`(batch, heads, queries, keys)` of `(batch, heads, rows, columns, dim)`."""
        rows, columns = ops.shape(query)[2:4]
        by_row = self.row_offsets.between(rows, key_grid[0])
        by_column = self.column_offsets.between(columns, key_grid[1])
        by_row = ops.einsum("bhrcd,rkd->bhrck", query, ops.cast(by_row, query.dtype))
        by_column = ops.einsum("bhrcd,ckd->bhrck", query, ops.cast(by_column, query.dtype))
        bias = by_row[..., :, None] + by_column[..., None, :]
        return ops.reshape(bias, (-1, self.num_heads, rows * columns, key_grid[0] * key_grid[1]))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, *sides, width = super().compute_output_shape(x_shape)
        sides = (None if side is None else -(-side // self.query_stride) for side in sides)
        return (batch, *sides, width)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None  # that of `x` is none of the pooled

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid": list(self.grid),
            "query_stride": self.query_stride,
            "key_stride": self.key_stride,
            "norm": self._norm.serialized(),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class SpatialReductionAttention(MultiHeadAttention):
    """Attention of every token of a grid to patches of the grid (Wang et al. 2021).

    `Attention(X W^Q, SR(X) W^K, SR(X) W^V)`, `SR(X) = LN(patchify(X, r) W^S)` (PVT,
    https://arxiv.org/abs/2102.12122, eq. 2 to 5): `r^2` times fewer keys and values. Rows and
    columns beyond the last whole patch are not attended to; a grid smaller than a patch is padded
    with zeros.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        reduction: Side of a patch (r); 1 for ordinary self-attention.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-6)`; copied.
        key_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`, and the weights `(batch, heads, rows * columns, patches)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`, and if `x` is not of rank 4, or `reduction` not
            positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SpatialReductionAttention
    >>> layer = SpatialReductionAttention(num_heads=2, reduction=2)
    >>> tuple(layer(np.ones((3, 7, 6, 8), "float32")).shape)
    (3, 7, 6, 8)
    """

    input_names = ("x", "x", "x")

    def __init__(
        self,
        num_heads: int,
        reduction: int = 1,
        norm: Part | None = None,
        **kwargs: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(num_heads, **kwargs)
        if not (isinstance(reduction, int) and reduction > 0):
            self._refuse("reduction", "a positive integer", repr(reduction))
        self.reduction = reduction
        self._norm = norm_prototype(self, norm)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        width = x_shape[-1]
        super().build((None, None, width))
        self.reduce: keras.layers.Layer | None = None
        self.norm: Any = None
        if self.reduction > 1:
            self.reduce = PatchEmbedding(
                self.reduction, width, name="reduce", dtype=self.dtype_policy
            )
            self.reduce.build((None, None, None, width))
            self.norm = self._norm.copy(self, "norm")
            self.norm.build((None, None, width))

    def call(
        self, x: Tensor, return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:
        x = ops.cast(x, self.compute_dtype)
        check_map(self, x.shape)
        _, rows, columns, width = ops.shape(x)
        tokens = context = ops.reshape(x, (-1, rows * columns, width))
        if self.reduce is not None:
            context = self.norm(self.reduce(self._whole_patches(x, rows, columns)))
            context = ops.cast(context, self.compute_dtype)
        found: Any = super().call(
            tokens, context, return_attention_scores=return_attention_scores, training=training
        )
        y, weights = found if return_attention_scores else (found, None)
        y = ops.reshape(y, (-1, rows, columns, y.shape[-1]))
        return (y, weights) if return_attention_scores else y

    def _whole_patches(self, x: Tensor, rows: Any, columns: Any) -> Tensor:
        most, more = [], []
        for side in (rows, columns):
            larger = max if isinstance(side, int) else ops.maximum  # unknown until the call
            most.append(larger(side // self.reduction * self.reduction, self.reduction))
            more.append(larger(most[-1] - side, 0))
        return pad_map(x, *more)[:, : most[0], : most[1]]

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return super().compute_output_shape(x_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "reduction": self.reduction,
            "norm": self._norm.serialized(),
        }
