"""Products of tokens with the kernels of `Dense` and `EinsumDense` layers, arranged to be quick.

What is slow and what is quick was measured under XLA on a CPU; on an accelerator none of it matters
much, but one wide product is quicker than three narrow ones there too.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers.adapters import altered, is_altered
from keras_transformers.layers.portable import KERNELS

BLOCKS = 4


def project(x: Tensor, *denses: Any) -> list[Tensor]:
    """Projections of the same `x` `(batch, length, ...)`, as one product: a list of them.

    With all tokens of the batch in one row, XLA on a CPU is quicker at the product, its bias and
    its gradients: 36 instead of 41 ms for forward and backward of `SelfAttention` on 128 x 49
    tokens of width 128 in 4 heads (two cores of an AMD EPYC 7003, freed memory kept). And a wide
    product is quicker than narrow ones: 2,048 tokens of width 256 times one kernel of that width:
    310 GFLOP/s, times three of them side by side: 397 (two cores of an AMD EPYC with AVX-512).
    """
    kernels = KERNELS.get()
    own = any(map(_multiplies_itself, denses))
    shared = isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel)
    apart = own or kernels is not None or any(map(is_altered, denses))
    apart = apart or (not shared and not any(dense.kernel.trainable for dense in denses))
    if len(denses) > 1 and apart:
        return [project(x, dense)[0] for dense in denses]
    if kernels is not None and not own:
        return [_product(kernels, denses[0], x)]
    batch, length = batch_size(x), ops.shape(x)[1]
    if len(denses) == 1:
        y = denses[0](ops.reshape(x, (1, -1, *x.shape[2:])))  # (1, batch * length, ...)
        return [ops.reshape(y, (batch, length, *y.shape[2:]))]
    if shared:
        return _project_on_each_device(x, denses)
    width = x.shape[2]
    kernels = [ops.reshape(ops.cast(dense.kernel, x.dtype), (width, -1)) for dense in denses]
    rows = ops.reshape(x, (-1, width))
    y = ops.matmul(rows, ops.concatenate(kernels, axis=1))
    ends = np.cumsum([math.prod(dense.kernel.shape[1:]) for dense in denses])[:-1].tolist()
    parts = []
    for dense, part in zip(denses, ops.split(y, ends, axis=1), strict=True):
        part = altered(dense, rows, part)
        if dense.bias is not None:
            part = part + ops.reshape(ops.cast(dense.bias, x.dtype), (-1,))
        parts.append(ops.reshape(part, (batch, length, *dense.kernel.shape[1:])))
    return parts


def batch_size(x: Tensor, *others: Tensor) -> Any:
    """Returns the size of the batch for `reshape`: -1 where the other sizes tell it.

    They do not where a length is 0, or may be, of `x` or of the other tensors of a product.
    """
    sizes = [size for tensor in (x, *others) for size in tensor.shape[1:]]
    told = all(isinstance(size, int) and size > 0 for size in sizes)
    return -1 if told else ops.shape(x)[0]


def project_each(inputs: Sequence[Tensor], denses: Sequence[Any]) -> list[Tensor]:
    """`project` of each input by a layer of its own, those of the same input together."""
    outputs: dict[int, Tensor] = {}
    for x in {id(x): x for x in inputs}.values():
        same = [dense for each, dense in zip(inputs, denses, strict=True) if each is x]
        outputs.update(zip(map(id, same), project(x, *same), strict=True))
    return [outputs[id(dense)] for dense in denses]


def _project_on_each_device(x: Tensor, denses: Sequence[Any]) -> list[Tensor]:
    """The same where every device holds some heads, or columns, of each kernel.

    Whole kernels side by side would have to be dealt out anew; head by head they need not, and the
    gradient of `x` is still one product, so one sum over the devices instead of three.
    """
    if len({dense.kernel.shape[1] for dense in denses}) > 1:
        return [project(x, dense)[0] for dense in denses]
    width, groups = denses[0].kernel.shape[:2]
    kernels = [ops.reshape(dense.kernel, (width, groups, -1)) for dense in denses]
    kernel = ops.cast(ops.concatenate(kernels, axis=2), x.dtype)
    ends = np.cumsum([each.shape[2] for each in kernels])[:-1].tolist()
    y = ops.split(ops.einsum("blw,wgk->blgk", x, kernel), ends, axis=3)
    parts = []
    for dense, part in zip(denses, y, strict=True):
        part = ops.reshape(part, (batch_size(x), ops.shape(x)[1], *dense.kernel.shape[1:]))
        parts.append(part if dense.bias is None else part + ops.cast(dense.bias, x.dtype))
    return parts


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
    kernels, own = KERNELS.get(), _multiplies_itself(dense)
    if kernels is not None and not own:
        return _product(kernels, dense, x)
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


def _multiplies_itself(dense: Any) -> bool:
    """Whether a layer has another product than that with its kernel, or Keras's own LoRA."""
    return bool(dense.quantization_mode or dense.lora_enabled)


def _product(kernels: Any, dense: Any, x: Tensor) -> Tensor:
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


def swap_heads(x: Tensor) -> Tensor:
    """`(batch, length, heads, dim)` -> `(batch, heads, length, dim)`, and back."""
    if 1 in x.shape[1:3]:  # nothing moves
        batch, length, heads, dim = x.shape
        moved = [-1 if size is None else size for size in (batch, heads, length, dim)]
        if moved.count(-1) < 2:
            return ops.reshape(x, moved)
    kernels = KERNELS.get()
    return ops.transpose(x, (0, 2, 1, 3)) if kernels is None else kernels.swap(x)
