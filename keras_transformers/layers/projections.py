"""Products of one token of each sequence, and products in programs without XLA.

The times were measured under XLA on a CPU. On an accelerator the arrangement matters little.
"""

import math
from typing import Any

from keras import ops

from keras_transformers.core.types import Tensor
from keras_transformers.layers.adapters import altered
from keras_transformers.layers.portable import KERNELS

BLOCKS = 4


def batch_size(x: Tensor, *others: Tensor) -> Any:
    """Returns the size of the batch for `reshape`: -1 where the other sizes tell it.

    They do not where a length is 0, or may be, of `x` or of the other tensors of a product.
    """
    sizes = [size for tensor in (x, *others) for size in tensor.shape[1:]]
    told = all(isinstance(size, int) and size > 0 for size in sizes)
    return -1 if told else ops.shape(x)[0]


def project_token(dense: Any, x: Tensor) -> Tensor:
    """Calls a `Dense` or `EinsumDense` with one token of every sequence, `(batch, beams, ...)`.

    A single row is multiplied with blocks of the kernel, whose products are summed. Memory is what
    such a product waits for, and XLA on a CPU reads the blocks with all cores, while it fuses the
    product of the row, its bias and what follows into a loop of one core. More rows are quickest as
    they are: the projections of a step of Transformer base take 3.7 ms for two rows and 4.4 for
    eight, 4.3 to 4.5 and 4.8 to 5.4 in 2 to 8 blocks of inputs (two cores of an AMD EPYC with
    AVX-512). Nor do blocks of outputs, one product a row, or rows of zeros help. An 8-bit product
    of two rows takes a quarter to two fifths of the time of one row's, so a single row gets a
    second one.
    """
    kernels = KERNELS.get()
    own = dense.quantization_mode or dense.lora_enabled  # which multiply in another way
    if kernels is not None and not own:
        return portable_product(kernels, dense, x)
    width = math.prod(x.shape[2:])
    blocks = math.gcd(BLOCKS, width)
    alone = x.shape[0] == x.shape[1] == 1  # as far as is known when tracing
    if alone and dense.quantization_mode:
        return dense(ops.concatenate([x, x], axis=1))[:, :1]
    if not alone or blocks == 1 or own:
        return dense(x)
    row = ops.reshape(ops.cast(x, dense.compute_dtype), (blocks, 1, width // blocks))
    kernel = ops.reshape(ops.cast(dense.kernel, row.dtype), (blocks, width // blocks, -1))
    y = ops.sum(ops.matmul(row, kernel), axis=0)
    y = altered(dense, ops.reshape(row, (1, width)), y)
    y = ops.reshape(y, (1, 1, *dense.kernel.shape[len(x.shape) - 2 :]))
    if dense.bias is not None:
        y = y + ops.cast(dense.bias, y.dtype)
    return y if dense.activation is None else dense.activation(y)


def multiplies_itself(dense: Any) -> bool:
    """True if a layer has another product than that with its kernel, or Keras's own LoRA."""
    return bool(dense.quantization_mode or dense.lora_enabled)


def portable_product(kernels: Any, dense: Any, x: Tensor) -> Tensor:
    """The projection of `(batch, length, ...)` as one product of two matrices."""
    outputs = dense.kernel.shape[len(x.shape) - 2 :]
    rows = ops.reshape(ops.cast(x, dense.compute_dtype), (-1, math.prod(x.shape[2:])))
    kernel = ops.reshape(ops.cast(dense.kernel, rows.dtype), (rows.shape[1], -1))
    y = altered(dense, rows, kernels.product(rows, kernel))
    # Of one unknown size TensorFlow makes no operations, and a known one stays known.
    lead = (-1, ops.shape(x)[1]) if x.shape[0] is None else (x.shape[0], -1)
    y = ops.reshape(y, (*lead, *outputs))
    # Behind the new shape, or TensorFlow would fuse it with the product: 110 instead of 45 us.
    y = y if dense.bias is None else y + ops.cast(dense.bias, y.dtype)
    return y if dense.activation is None else dense.activation(y)
