"""Products with a table of token vectors, and such a table in 8 bits."""

from typing import Any

import numpy as np
from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.annotations import Array, Tensor
from keras_transformers.gradients import custom_gradient
from keras_transformers.layers.portable import KERNELS

BLOCKS = 8  # as many as rows would be slow
FEW = 32  # rows up to which blocks of the table are quicker than the whole
QUANTIZED = 4096  # rows at once


def _equal_blocks(rows: int) -> int:
    """Number of equal blocks that rows of a table make, near `BLOCKS`: 29 of GPT-2's 50,257."""
    numbers = (number for number in range(2, 4 * BLOCKS + 1) if rows % number == 0)
    return min(numbers, key=lambda number: abs(number - BLOCKS), default=1)


def times_table(table: Any, rows: Tensor) -> Tensor:
    """`rows E^T`, computed as `(E rows^T)^T`; few rows with each block of `E` on its own."""
    if table.shape[0] is None:
        return ops.transpose(ops.matmul(table, ops.transpose(rows)))
    few = rows.shape[0] is not None and rows.shape[0] <= FEW
    blocks = _equal_blocks(table.shape[0]) if few else 1
    table = ops.reshape(table, (blocks, -1, table.shape[1]))
    y = ops.matmul(table, ops.tile(ops.transpose(rows)[None], (blocks, 1, 1)))
    return ops.transpose(ops.reshape(y, (table.shape[1] * blocks, -1)))


def step_product(rows: Tensor, table: Tensor, alone: bool) -> Tensor:
    """`rows E^T` of one token of every sequence; `alone` where it is one of one sentence.

    XLA on a CPU is quicker at few rows this way round, and slower at the many of training. From
    2 to 32 are multiplied with blocks of the table, which all cores read; more with the whole,
    and one alone the other way round. Logits and the largest of each row, for 32,000 tokens of
    width 512, blocks against whole: 2.3 and 4.0 ms for 4 rows, 3.3 and 4.6 for 8, 6.1 and 6.6
    for 32, 21 and 15 for 128; in 8 bits 0.6 and 1.3, 1.3 and 1.6, 3.4 and 3.4, 18 and 10 (two
    cores of an AMD EPYC with AVX-512).
    """
    kernels = KERNELS.get()
    if kernels is not None:
        found: Tensor = kernels.table_product(rows, table)
        return found
    return ops.matmul(rows, ops.transpose(table)) if alone else times_table(table, rows)


def int8_product(rows: Tensor, table: Any, scale: Any) -> Tensor:
    """`rows (table / scale)^T` of `(n, width)`, as a product of 8-bit numbers.

    Rows are quantised one by one. Their gradient is that of the product with numbers as they are.
    """

    def forward(rows: Tensor, table: Tensor, scale: Tensor) -> tuple[Tensor]:
        values, scales = abs_max_quantize(rows, axis=-1)
        alone = rows.shape[0] == 1  # takes longer than two
        y = times_table(table, ops.concatenate([values, values]) if alone else values)
        scales = ops.cast(scales, "float32")  # of bfloat16 rows they are bfloat16
        y = ops.cast(y[:1] if alone else y, "float32") / (scale * scales)
        return (ops.cast(y, rows.dtype),)

    def backward(
        tensors: tuple[Tensor, ...], found: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor | None]:
        rows, table, scale = tensors
        upstream = ops.cast(ops.cast(upstream, "float32") / scale, rows.dtype)
        return [ops.matmul(upstream, ops.cast(table, rows.dtype)), None, None]

    def plain(rows: Tensor, table: Tensor, scale: Tensor) -> Tensor:
        y = ops.matmul(rows, ops.transpose(ops.cast(table, rows.dtype)))
        return ops.cast(ops.cast(y, "float32") / scale, rows.dtype)

    product = custom_gradient(forward, backward, plain)
    return product(rows, table, ops.stop_gradient(ops.convert_to_tensor(scale)))


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
