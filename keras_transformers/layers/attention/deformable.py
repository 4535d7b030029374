"""Multi-scale deformable attention: each query looks at a few points of several maps."""

import math
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import require, same
from keras_transformers.core.types import (
    Index,
    LayerOptions,
    LevelShapes,
    MaybeWeights,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.scores import batch_size, project
from keras_transformers.layers.base import BaseLayer, output_spec_of_call
from keras_transformers.layers.checks import check_sequence, named, refuse, whole_number
from keras_transformers.layers.masks import as_mask, given_padding, hide_padding
from keras_transformers.layers.positions.sequence import positions_of


def sample_levels(
    values: Tensor, level_shapes: LevelShapes, locations: Tensor, weights: Tensor
) -> Tensor:
    """Weighted sums of values at points of several maps, interpolated between their positions.

    `y_q = sum over levels and points of a_qlp V_l(p_qlp)`, where `V_l(p)` is the bilinear
    interpolation of map `l`, whose positions are the middles of its cells and around which there
    are zeros (Zhu et al. 2021, https://arxiv.org/abs/2010.04159, eq. 3), as `grid_sample` of
    PyTorch computes it with `align_corners=False`.

    Args:
        values: `(batch, positions, heads, dim)`, the maps one after another, row by row.
        level_shapes: int `(levels, 2)`, rows and columns of each map; or a list of such pairs,
            numbers or scalar tensors.
        locations: float32 `(batch, queries, heads, levels, points, 2)`, horizontal and vertical,
            as shares of the map: 0 is its left or upper border, 1 the other.
        weights: float32 `(batch, queries, heads, levels, points)`.

    Returns:
        `(batch, queries, heads, dim)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import sample_levels
    >>> row = np.array([10.0, 20.0, 30.0], "float32").reshape(1, 3, 1, 1)
    >>> between = np.array([1 / 3, 0.5], "float32").reshape(1, 1, 1, 1, 1, 2)
    >>> weights = np.ones((1, 1, 1, 1, 1), "float32")
    >>> round(float(sample_levels(row, [[1, 3]], between, weights)[0, 0, 0, 0]), 3)
    15.0
    """
    batch, positions = ops.shape(values)[:2]
    heads, dim = values.shape[2:]
    queries, (levels, points) = ops.shape(locations)[1], locations.shape[3:5]
    table = ops.reshape(values, (-1, dim))
    image = ops.reshape(ops.arange(batch, dtype="int32"), (-1, 1, 1, 1, 1, 1)) * positions
    head = np.arange(heads, dtype="int32").reshape(-1, 1, 1, 1)
    y: Any = None
    start: Any = 0
    for level in range(levels):  # at once they would take `levels` times the memory
        rows, columns = level_shapes[level][0], level_shapes[level][1]
        x_index, x_share = _neighbours(locations[:, :, :, level, :, 0], columns)
        y_index, y_share = _neighbours(locations[:, :, :, level, :, 1], rows)
        index = start + y_index[..., :, None] * columns + x_index[..., None, :]
        share = (
            y_share[..., :, None] * x_share[..., None, :]
        )  # (batch, queries, heads, points, 2, 2)
        share = share * weights[:, :, :, level, :, None, None]
        index, share = (
            ops.reshape(each, (batch_size(locations), queries, heads, 4 * points))
            for each in ((image + index) * heads + head, ops.cast(share, values.dtype))
        )
        around = ops.take(table, index, axis=0)  # (batch, queries, heads, 4 points, dim)
        found = ops.matmul(share[..., None, :], around)[..., 0, :]
        y, start = found if y is None else y + found, start + rows * columns
    sums: Tensor = y
    return sums


def _neighbours(share: Tensor, extent: Index) -> tuple[Tensor, Tensor]:
    """The two positions of an axis next to a point, and their shares; 0 of those outside.

    Args:
        share: `(...)`, of the axis.
        extent: Number of positions.

    Returns:
        int32 and float32 `(..., 2)`.
    """
    at = share * ops.cast(extent, share.dtype) - 0.5
    lower = ops.floor(at)
    index = ops.cast(lower, "int32")[..., None] + np.array([0, 1], "int32")
    shares = ops.stack([1 - (at - lower), at - lower], axis=-1)
    inside = ops.logical_and(index >= 0, index < extent)
    return ops.clip(index, 0, extent - 1), ops.where(inside, shares, 0.0)


@keras.saving.register_keras_serializable("keras_transformers")
class DeformableAttention(BaseLayer):
    """Attention to a few points of several maps, which each query chooses near a point of its own.

    Query `x_q`, which refers to a point or a box, gives with linear layers for each head `h`,
    level `l` and point `k` an offset and, after a softmax over levels and points, a weight:
    `y_q = sum_h W_h sum_lk A_hlqk V_h(p_q + offset_hlqk)` (Zhu et al. 2021, "Deformable DETR",
    https://arxiv.org/abs/2010.04159, eq. 3); the map between its positions is interpolated, and
    zero outside. Offsets from a point are in positions of the map; those from a box in halves of
    its sides, divided by `num_points`.

    It costs `queries * heads * num_levels * num_points * 4` rows of the values, whatever the size
    of the maps, read level by level: of width 256, with 4 levels of 4 points, the rows of a level
    take 16 KB of memory a query in float32. Of the ways to compute it that were tried, this one
    was quickest under XLA on a CPU: 35 to 49 ms forward and 54 to 110 ms with gradients for 2
    images of 1,360 positions in 4 levels, as many queries, 8 heads of width 32 (two cores of an
    AMD EPYC with AVX-512, busy with other things too), against 50 and 115 ms with all levels at
    once, 120 and 130 ms corner by corner, and 310 and 100 ms with a sum in place of the product.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        num_levels: Number of maps.
        num_points: Points of each map that a query looks at in each head.

    Call arguments:
        x: `(batch, length, hidden_dim)`, the queries.
        context: `(batch, positions, context_width)`, the maps one after another, row by row.
        reference_points: `(batch, length, num_levels, 2)`, a point on each map, horizontal and
            vertical, or `(batch, length, num_levels, 4)`, a centre box; as shares of the map,
            padding included. Keras casts it to no other dtype: half precision is too coarse.
        level_shapes: int `(num_levels, 2)`, rows and columns of each map, or a list of such pairs.
        positions: Optional `(length, hidden_dim)`, or with the batch in front: added to `x`, and
            not to the maps.
        context_mask: Optional bool `(batch, positions)`; True = part of the image. Values at
            padding are zeros.
        return_attention_scores: Whether to return the weights too.
        training: Taken as other attentions take it; nothing depends on it.

    Returns:
        `(batch, length, hidden_dim)`, on request with weights `(batch, num_heads, length,
        num_levels * num_points)`.

    Raises:
        ValueError: If a number is not positive, `num_heads` does not divide the width of `x`, or
            what it is called with does not fit.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DeformableAttention
    >>> layer = DeformableAttention(num_heads=2, num_levels=2, num_points=3)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 4 * 6 + 2 * 3, 8), "float32")
    >>> points = np.full((3, 5, 2, 2), 0.5, "float32")
    >>> tuple(layer(x, context, points, level_shapes=[[4, 6], [2, 3]]).shape)
    (3, 5, 8)
    """

    compute_output_spec = output_spec_of_call

    _refuse = refuse

    def __init__(
        self, num_heads: int, num_levels: int = 4, num_points: int = 4,
        **kwargs: Unpack[LayerOptions]
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.autocast = False  # a point in half precision is a few pixels off
        self.supports_masking = True
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.num_levels = whole_number(self, "num_levels", num_levels)
        self.num_points = whole_number(self, "num_points", num_points)

    def build(
        self, x_shape: Shape, context_shape: Shape, reference_points_shape: Shape | None = None,
        level_shapes_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> None:  # fmt: skip
        check_sequence(self, x_shape)
        width = x_shape[-1]
        if width % self.num_heads:
            expected = f"a divisor of the width of `x`, {width}"
            self._refuse("num_heads", expected, self.num_heads)
        points = self.num_heads * self.num_levels * self.num_points
        self.value_dense = self._dense("value", width)
        self.offset_dense = self._dense("offset", 2 * points, Rays(self.num_heads, self.num_points))
        self.weight_dense = self._dense("weight", points, "zeros")
        self.output_dense = self._dense("attention_output", width)
        self.value_dense.build(context_shape)
        for dense in (self.offset_dense, self.weight_dense, self.output_dense):
            dense.build(x_shape)

    def _dense(self, name: str, units: int, bias: Any = None) -> Any:
        """A projection; one that has a bias to start from starts from nothing else."""
        started = {"kernel_initializer": "zeros", "bias_initializer": bias} if bias else {}
        return keras.layers.Dense(units, name=name, dtype=self.dtype_policy, **started)

    def call(
        self, x: Tensor, context: Tensor, reference_points: Tensor, level_shapes: LevelShapes,
        positions: Tensor | None = None, context_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:  # fmt: skip
        x, context = (ops.cast(each, self.compute_dtype) for each in (x, context))
        level_shapes = self._sides(level_shapes)
        x, context = self._checked(x, context, reference_points, level_shapes)
        if context_mask is not None:
            context_mask = as_mask(context_mask, named(self, "context_mask"))
            context_mask = given_padding(self, context, context_mask=context_mask)
            context = hide_padding(context, context_mask)
        if positions is not None:
            x = x + positions_of(self, "positions", x, positions)
        batch, length, heads = batch_size(x), ops.shape(x)[1], self.num_heads
        levels = self.num_levels
        offsets, weights = (
            ops.cast(each, "float32") for each in project(x, self.offset_dense, self.weight_dense)
        )
        weights = ops.softmax(
            ops.reshape(weights, (batch, length, heads, levels * self.num_points))
        )
        shape = (batch, length, heads, levels, self.num_points)
        locations = self._locations(
            ops.reshape(offsets, (*shape, 2)), reference_points, level_shapes
        )
        (values,) = project(context, self.value_dense)
        values = hide_padding(values, context_mask)  # of which biases are no zeros
        dim = x.shape[-1] // heads
        values = ops.reshape(values, (-1, ops.shape(values)[1], heads, dim))
        y = sample_levels(values, level_shapes, locations, ops.reshape(weights, shape))
        (y,) = project(ops.reshape(y, (batch, length, heads * dim)), self.output_dense)
        if not return_attention_scores:
            return y
        return y, ops.cast(ops.swapaxes(weights, 1, 2), x.dtype)

    def _sides(self, level_shapes: Any) -> list[list[Index]]:
        """Rows and columns of each map, numbers or scalar tensors."""
        given = getattr(level_shapes, "shape", None)
        number = len(level_shapes) if given is None else given[0]
        if isinstance(number, int) and number != self.num_levels:  # else it is not known
            self._refuse("level_shapes", f"of {self.num_levels} maps", f"{number} of them")
        return [[level_shapes[level][i] for i in (0, 1)] for level in range(self.num_levels)]

    def _checked(
        self, x: Tensor, context: Tensor, points: Tensor, level_shapes: Any
    ) -> tuple[Tensor, Tensor]:
        """Queries and context; ValueError unless there are points and maps for them."""
        shape = tuple(points.shape)
        if len(shape) != 4 or shape[2] not in (None, self.num_levels) or shape[3] not in (2, 4):
            expected = f"of shape (batch, length, {self.num_levels}, 2 or 4)"
            self._refuse("reference_points", expected, f"shape {shape}")
        rule = f"{named(self, 'reference_points')} must be as many as the queries `x`."
        x = require(x, [same(ops.shape(points)[1], ops.shape(x)[1])], rule)
        number = sum(rows * columns for rows, columns in level_shapes)
        rule = f"{named(self, 'context')} must have as many positions as `level_shapes` say."
        return x, require(context, [same(number, ops.shape(context)[1])], rule)

    def _locations(self, offsets: Tensor, points: Tensor, level_shapes: Any) -> Tensor:
        """Where the queries look: float32 `(batch, queries, heads, levels, points, 2)`."""
        points = ops.cast(points, "float32")[:, :, None, :, None]
        if points.shape[-1] == 4:
            return points[..., :2] + offsets * points[..., 2:] * (0.5 / self.num_points)
        sides = ops.convert_to_tensor([[columns, rows] for rows, columns in level_shapes])
        sides = ops.cast(sides, "float32")
        return points + offsets / sides[:, None]

    def compute_output_shape(
        self, x_shape: Shape, context_shape: Shape | None = None,
        reference_points_shape: Shape | None = None, level_shapes_shape: Shape | None = None,
        positions_shape: Shape | None = None
    ) -> Shape:  # fmt: skip
        return tuple(x_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_levels": self.num_levels,
            "num_points": self.num_points,
        }


class Rays(keras.initializers.Initializer):
    """Offsets of the points of each head: on a ray of its own, the first at distance 1, and so on.

    Distances are the larger of both coordinates' (Zhu et al. 2021, appendix A.4).
    """

    def __init__(self, num_heads: int, num_points: int) -> None:
        self.num_heads, self.num_points = num_heads, num_points

    def __call__(self, shape: Shape, dtype: Any = None) -> Tensor:
        angles = np.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        rays = np.stack([np.cos(angles), np.sin(angles)], -1)
        rays /= np.abs(rays).max(-1, keepdims=True)
        distances = np.arange(1, self.num_points + 1)
        levels = shape[0] // (2 * self.num_heads * self.num_points)
        offsets = np.broadcast_to(
            rays[:, None, None] * distances[:, None],  # (heads, 1, points, 2)
            (self.num_heads, levels, self.num_points, 2),
        )
        return ops.convert_to_tensor(offsets.reshape(shape), dtype)
