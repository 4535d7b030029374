"""Recurrent networks over the tokens of a sequence or of a grid."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.assertions import require, same
from keras_transformers.layers.composite import frozen_like
from keras_transformers.layers.errors import check_sequence, named, whole_number
from keras_transformers.layers.initializers import Orthogonal
from keras_transformers.layers.masks import given_padding, hide_padding
from keras_transformers.layers.mixing.bidirectional import BidirectionalRNN, with_a_step
from keras_transformers.layers.mixing.mixers import Mixer


@keras.saving.register_keras_serializable("keras_transformers")
class LSTMMixing(Mixer):
    """LSTMs in both directions over a sequence, or along the rows and columns of a grid.

    `[LSTM(x); LSTM reversed(x)] W`; on a grid, those along the columns and those along the rows
    side by side, `[h_vertical; h_horizontal] W` (Tatsunami and Taki 2022, "Sequencer",
    https://arxiv.org/abs/2205.01972, section 3.2, BiLSTM2D). Padding at the end of a sequence is
    passed over in both directions.

    Args:
        units: Width of the state of each LSTM; by default a half of the width of `x`, a quarter on
            a grid.
        grid: `(rows, columns)` of the tokens, or None for a sequence.
        causal: Whether the LSTM that reads backwards is left out.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        mask: `(batch, length)` padding mask, filled in by Keras; None on a grid.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If a grid is combined with `causal` or a mask, or `x` does not fill it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LSTMMixing
    >>> tuple(LSTMMixing()(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    >>> tuple(LSTMMixing(grid=(2, 3))(np.ones((3, 6, 8), "float32")).shape)
    (3, 6, 8)
    """

    def __init__(
        self,
        units: int | None = None,
        grid: Sequence[int] | None = None,
        causal: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = whole_number(self, "units", units, optional=True)
        self.grid = None if grid is None else tuple(grid)
        self.causal = causal
        if causal and grid is not None:
            self._refuse("causal", "False on a grid", causal)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        width = x_shape[-1]
        share = width // (2 if self.grid is None else 4)
        units = self.units or max(share, 1)
        names = ("sequence",) if self.grid is None else ("vertical", "horizontal")
        self.lstms: list[Any] = []
        for name in names:
            if self.causal:
                lstm = keras.layers.LSTM(
                    units,
                    return_sequences=True,
                    return_state=True,
                    recurrent_initializer=Orthogonal(),
                    name=name,
                    dtype=self.dtype_policy,
                )
            else:
                lstm = BidirectionalRNN("lstm", units, name=name, dtype=self.dtype_policy)
            lstm.build((None, None, width))
            self.lstms.append(frozen_like(self, lstm))
        self.output_dense = self._dense(width, "output")
        directions = len(names) * (1 if self.causal else 2)
        self.output_dense.build((*x_shape[:-1], directions * units))

    def call(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.grid is None:
            mask = given_padding(self, x, mask=mask)
            rows, real = (
                with_a_step(hide_padding(x, mask)),
                mask if mask is None else with_a_step(mask),
            )
            y = self.lstms[0](rows, mask=real)[0]
            return self.output_dense(y[:, : ops.shape(x)[1]])
        if mask is not None:
            self._refuse("mask", "None on a grid", "a mask")
        rows, columns = self.grid
        rule = f"{named(self, 'x')} must be {rows} x {columns} tokens long."
        x = require(x, [same(ops.shape(x)[1], rows * columns)], rule)
        vertical, horizontal = self.lstms
        grid = ops.reshape(x, (-1, rows, columns, x.shape[2]))
        down, *_ = vertical(ops.reshape(ops.swapaxes(grid, 1, 2), (-1, rows, x.shape[2])))
        down = ops.reshape(down, (-1, columns, rows, down.shape[2]))
        across, *_ = horizontal(ops.reshape(grid, (-1, columns, x.shape[2])))
        across = ops.reshape(across, (-1, rows, columns, across.shape[2]))
        y = self.output_dense(ops.concatenate([ops.swapaxes(down, 1, 2), across], axis=-1))
        return ops.reshape(y, (-1, rows * columns, x.shape[2]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "grid": None if self.grid is None else list(self.grid),
            "causal": self.causal,
        }
