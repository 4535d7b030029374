"""From one stage of a hierarchical network to the next: fewer positions, wider tokens."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.parts import norm_prototype


@keras.saving.register_keras_serializable("keras_transformers")
class PatchMerging(Arguments, Composite, keras.layers.Layer):
    """Joins each 2 x 2 neighbours to one token: half the rows and columns, twice the width.

    `LN([x_00; x_10; x_01; x_11]) W`, from 4 D to 2 D (Liu et al. 2021,
    https://arxiv.org/abs/2103.14030, section 3.1), the first index that of the row; in its second
    version `LN([..] W)` (Liu et al. 2022, https://arxiv.org/abs/2111.09883, section 3.1). An odd
    last row or column is joined with zeros.

    Args:
        norm_first: Whether the norm comes before the projection.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-5)`; copied.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.

    Returns:
        `(batch, ceil(rows / 2), ceil(columns / 2), 2 * hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 4 with a known width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PatchMerging
    >>> tuple(PatchMerging()(np.ones((2, 7, 6, 5), "float32")).shape)
    (2, 4, 3, 10)
    """

    def __init__(
        self, norm_first: bool = True, norm: Part | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.norm_first = norm_first
        if norm is None:
            norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self._norm = norm_prototype(self, norm)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        width = x_shape[-1]
        self.norm = self._norm.copy(self, "norm")
        self.norm.build((None, None, (4 if self.norm_first else 2) * width))
        self.projection = keras.layers.Dense(
            2 * width, use_bias=False, name="projection", dtype=self.dtype_policy
        )
        self.projection.build((None, None, 4 * width))

    def call(self, x: Tensor) -> Tensor:
        check_map(self, x.shape)
        rows, columns = ops.shape(x)[1:3]
        x = pad_map(x, rows % 2, columns % 2)
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        x = ops.concatenate(parts, axis=-1)
        x = self.projection(self.norm(x)) if self.norm_first else self.norm(self.projection(x))
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        check_map(self, x_shape)
        batch, *grid, width = x_shape
        half = (None if side is None else (side + 1) // 2 for side in grid)
        return (batch, *half, 2 * width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "norm_first": self.norm_first,
            "norm": self._norm.serialized(),
        }


def check_map(layer: Any, x_shape: Shape) -> None:
    """Raises ValueError unless `x` is `(batch, rows, columns, hidden_dim)` of known width."""
    if len(x_shape) != 4 or x_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}': `x` must have shape (batch, rows, columns, "
            f"hidden_dim) with a known width. Received: shape {tuple(x_shape)}"
        )


def pad_map(x: Tensor, rows: Index, columns: Index) -> Tensor:
    """Adds so many rows and columns of zeros at the lower and the right border."""
    none = (isinstance(side, int) and side == 0 for side in (rows, columns))
    return x if all(none) else ops.pad(x, ((0, 0), (0, rows), (0, columns), (0, 0)))
