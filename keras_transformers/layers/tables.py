"""Products with a table of token vectors, and such a table in 8 bits."""

from collections.abc import Callable
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


def int8_product(rows: Tensor, table: Any, scale: Any) -> Tensor:
    """`rows (table / scale)^T` of `(n, width)`, as a product of 8-bit numbers.

    Rows are quantised one by one. Their gradient is that of the product with numbers as they are.
    """
    table, scale = ops.convert_to_tensor(table), ops.convert_to_tensor(scale)

    @ops.custom_gradient
    def product(rows: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        values, scales = abs_max_quantize(rows, axis=-1)
        alone = rows.shape[0] == 1  # takes longer than two
        y = times_table(table, ops.concatenate([values, values]) if alone else values)
        y = ops.cast(y[:1] if alone else y, "float32") / (scale * scales)

        def gradient(*arguments: Any, upstream: Any = None) -> Tensor:
            upstream = arguments[0] if upstream is None else upstream
            upstream = ops.cast(ops.cast(upstream, "float32") / scale, rows.dtype)
            return ops.matmul(upstream, ops.cast(table, rows.dtype))

        return ops.cast(y, rows.dtype), gradient

    found: Tensor = product(rows)
    return found


def check_int8(layer: Any, mode: str, config: Any) -> None:
    """NotImplementedError, as Keras expects it, unless a layer is to be quantised in our way."""
    wrong = None if mode == "int8" else ("mode", "'int8'", repr(mode))
    if not wrong and config is not None and config.get_config() != type(config)().get_config():
        wrong = ("config", "without quantizers of its own", config.get_config())
    if wrong:
        name, expected, received = wrong
        raise NotImplementedError(
            f"{type(layer).__name__} '{layer.name}': `{name}` must be {expected}. "
            f"Received: {received}"
        )


def rounded(table: Any, padding: int) -> tuple[Array, Array]:
    """A table in 8 bits, with `padding` further rows, and the scale of each row."""
    rows, width = table.shape
    values, scale = np.zeros((rows + padding, width), "int8"), np.ones(rows + padding, "float32")
    for start in range(0, rows, QUANTIZED):  # there may be no memory for all
        some = slice(start, min(start + QUANTIZED, rows))
        values[some], scales = abs_max_quantize(table[some], axis=-1, to_numpy=True)
        scale[some] = scales[:, 0]
    return values, scale
