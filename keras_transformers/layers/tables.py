"""Products with a table of token vectors, and such a table in 8 bits."""

from typing import Any

import numpy as np
from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.annotations import Array, Tensor

BLOCKS = 8  # as many as rows would be slow
FEW = 32  # rows up to which blocks of the table are quicker than the whole
QUANTIZED = 4096  # rows at once


def _equal_blocks(rows: int) -> int:
    """Number of equal blocks that rows of a table make, near `BLOCKS`: 29 of GPT-2's 50,257."""
    numbers = (number for number in range(2, 4 * BLOCKS + 1) if rows % number == 0)
    return min(numbers, key=lambda number: abs(number - BLOCKS), default=1)


def times_table(table: Any, rows: Tensor) -> Tensor:
    """`rows E^T`, computed as `(E rows^T)^T`; few rows with each block of `E` on its own."""
    few = rows.shape[0] is not None and rows.shape[0] <= FEW
    blocks = _equal_blocks(table.shape[0]) if few else 1
    table = ops.reshape(table, (blocks, -1, table.shape[1]))
    y = ops.matmul(table, ops.tile(ops.transpose(rows)[None], (blocks, 1, 1)))
    return ops.transpose(ops.reshape(y, (table.shape[1] * blocks, -1)))


@ops.custom_gradient
def int8_product(rows: Tensor, table: Tensor, table_scale: Tensor) -> tuple[Tensor, Any]:
    """`rows E^T` in float32 of a table in 8 bits, with the rows quantised one by one.

    The gradient of the rows is that of the numbers that the table stands for, as if nothing had
    been rounded; the table has none.
    """

    def gradient(*args: Any, upstream: Any = None) -> tuple[Tensor, None, None]:
        upstream = args[0] if upstream is None else upstream
        y = ops.matmul(upstream / table_scale, ops.cast(table, upstream.dtype))
        return ops.cast(y, rows.dtype), None, None

    quantised, scale = abs_max_quantize(rows, axis=-1)
    alone = rows.shape[0] == 1  # takes longer than two
    y = times_table(table, ops.concatenate([quantised, quantised]) if alone else quantised)
    return ops.cast(y[:1] if alone else y, "float32") / (table_scale * scale), gradient


def rounded(table: Any, padding: int) -> tuple[Array, Array]:
    """A table in 8 bits, with `padding` further rows, and the scale of each row."""
    rows, width = table.shape
    values, scale = np.zeros((rows + padding, width), "int8"), np.ones(rows + padding, "float32")
    for start in range(0, rows, QUANTIZED):  # there may be no memory for all
        some = slice(start, min(start + QUANTIZED, rows))
        values[some], scales = abs_max_quantize(table[some], axis=-1, to_numpy=True)
        scale[some] = scales[:, 0]
    return values, scale
