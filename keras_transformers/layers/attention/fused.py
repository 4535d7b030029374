"""Attention whose weights nobody asks for: which way a call is computed, and how.

Three ways give the same output. The plain one makes the scores and weights of all pairs. Keras's
`ops.dot_product_attention` calls a kernel of the device. The blockwise one is our own, in
`keras.ops`.
"""

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers.attention.blockwise import Pairs, blockwise_attention
from keras_transformers.layers.attention.scores import Score
from keras_transformers.layers.masks import causal_mask
from keras_transformers.layers.portable import KERNELS
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.projections import swap_heads

# Pairs of one head from which on blocks are quicker than all pairs at once. Forward and backward of
# 4 heads of width 64 under XLA, milliseconds plain / blockwise: 16 x 256 tokens 17.2 / 20.0,
# 1 x 512 4.8 / 3.8, 8 x 512 34.3 / 31.5, 1 x 1,024 20.9 / 16.0 (two cores of an AMD EPYC with
# AVX-512, freed memory kept).
LEAST_PAIRS = 512 * 512
# And cuDNN's kernel. Forward and backward of a self-attention layer of 12 heads of width 64 in
# bfloat16, batch x tokens, milliseconds plain / kernel: 512 x 64 1.73 / 1.93, 256 x 128 1.99 /
# 1.59, 128 x 256 2.39 / 1.65, 32 x 512 1.72 / 0.99, 8 x 1,024 1.53 / 0.64; with a mask of padding
# 1.89 / 1.88, 2.09 / 1.78, 2.58 / 1.90, 1.98 / 1.20, 1.59 / 0.81 (NVIDIA H100, JAX 0.11).
LEAST_PAIRS_OF_CUDNN = 128 * 128

Way = Literal["plain", "kernel", "blockwise"]


def way_of(layer: Any, query: Tensor, key: Tensor, training: bool | None) -> Way:
    """How an attention layer computes a call of which nobody wants the weights.

    "plain" where scores or values are more than products and biases of positions, in programs for
    TensorFlow's own kernels, and where lengths are short or unknown. "kernel" on PyTorch, and on
    JAX with a GPU in half precision for the heads that cuDNN takes; not on a TPU, as Keras 3.15
    there takes the mask of the first batch element for all, and a causal one where there is none.
    No kernel has our dropout.

    Args:
        layer: A `MultiHeadAttention`.
        query, key: `(batch, length, width)`.
        training: Whether dropout acts.
    """
    lengths = (query.shape[1], key.shape[1])
    known = all(isinstance(length, int) for length in lengths)  # no int where JAX exports
    if not known or KERNELS.get() is not None:
        return "plain"
    if type(layer.score).compare is not Score.compare or not _is_simple(layer.position):
        return "plain"
    backend, pairs = keras.backend.backend(), lengths[0] * lengths[1]
    kernel = not (training and layer.dropout) and _has_kernel(layer)
    if pairs < (LEAST_PAIRS_OF_CUDNN if kernel and backend == "jax" else LEAST_PAIRS):
        return "plain"
    if kernel:
        return "kernel"
    return "blockwise" if backend in ("tensorflow", "jax", "torch") else "plain"


def _is_simple(position: Any) -> bool:
    """Whether positions change queries and keys, or add a bias to each distance, and no more."""
    kind = type(position)
    if position is None:
        return True
    if kind.values is not AttentionPositionEncoding.values:
        return False
    biased = kind.bias is not AttentionPositionEncoding.bias
    return not biased or (position.relative and position.shareable)


def _has_kernel(layer: Any) -> bool:
    """Whether Keras finds a fused kernel that is right, for the heads of a built layer."""
    backend = keras.backend.backend()
    if backend == "torch":
        return True
    if backend != "jax" or layer.compute_dtype not in ("float16", "bfloat16"):
        return False
    _, key_dim, value_dim = layer.head_dims
    if key_dim != value_dim or key_dim % 8 or key_dim > 128:
        return False  # Keras would make all weights, and not say so
    return any(device.startswith(("gpu", "cuda")) for device in keras.distribution.list_devices())


def attend_without_weights(
    layer: Any, way: Way, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    bias: Tensor | None, causal: bool, training: bool | None = None
) -> Tensor:  # fmt: skip
    """`MultiHeadAttention.attend` the "kernel" or the "blockwise" way.

    Args:
        layer, way: Whose attention it is, and what `way_of` says.
        query, key, value, mask, bias, training: As `attend` takes them.
        causal: Whether query `i` sees keys `0 .. i` only, of those in `mask`.

    Returns:
        `(batch, heads, queries, value_dim)`.
    """
    queries, keys, by_distance = query.shape[2], key.shape[2], None
    if layer.position is not None and way == "kernel":
        term = layer.position.bias(query, *(ops.arange(n, dtype="int32") for n in (queries, keys)))
        bias = term if bias is None else bias if term is None else ops.add(bias, term)
    elif layer.position is not None:
        # One query behind all others, so that no position is negative.
        last = ops.full((1,), queries - 1, "int32")
        term = layer.position.bias(query, last, ops.arange(queries + keys - 1, dtype="int32"))
        if term is not None:
            by_distance = ops.reshape(term, (-1, queries + keys - 1))  # (heads or 1, distances)
    if way == "kernel":
        return _kernel(query, key, value, mask, bias, causal)
    seed = None
    if training and layer.dropout:
        seed = layer.dropout_layer.seed_generator.next()
    pairs = Pairs(mask, bias, by_distance, layer.dropout, seed)
    return blockwise_attention(query, key, value, causal, pairs)


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
) -> Tensor:
    """Keras's `ops.dot_product_attention`, with zeros for queries that may attend to nothing."""
    heads, shared = query.shape[1], key.shape[1]
    torch = keras.backend.backend() == "torch"
    if shared == 1 < heads and torch:
        key, value = (ops.repeat(x, heads, axis=1) for x in (key, value))  # Keras does from 2 on
    queries, keys, visible, seen = query.shape[2], key.shape[2], mask, None
    if bias is not None:
        bias = ops.cast(bias, query.dtype)
        visible = bias > -math.inf if mask is None else ops.logical_and(mask, bias > -math.inf)
    if not torch and (queries % 2 or keys % 2):
        # JAX has no gradient of cuDNN's kernel at odd lengths. No query sees the key that is added.
        # An axis of size one, of a mask or a bias, is left to be broadcast.
        query, key, value = (_evened(x, (-2,)) for x in (query, key, value))
        bias = None if bias is None else _evened(bias, (-2, -1), 2)
        visible = None if visible is None else _evened(visible, (-2, -1), 2)
        if visible is not None or not causal or queries > keys:
            more = ops.arange(key.shape[2]) < keys
            visible = more if visible is None else ops.logical_and(visible, more)
    if visible is not None:
        shape = (query.shape[2], key.shape[2])
        visible = ops.logical_and(visible, ops.ones(shape, "bool"))
        for _ in range(4 - len(visible.shape)):
            visible = visible[None]
        reached = ops.logical_and(visible, causal_mask(*shape)) if causal else visible
        seen = ops.any(reached, axis=-1, keepdims=True)
        if torch:  # takes a mask or the flag, not both; else the flag halves what is computed
            visible, causal = reached, False
    if bias is not None:  # Keras takes a bias or a mask on PyTorch, not both
        hidden = -4e4 if keras.backend.standardize_dtype(query.dtype) == "float16" else -1e38
        bias, visible = ops.where(visible, bias, ops.cast(hidden, query.dtype)), None
    query, key, value = (swap_heads(x) for x in (query, key, value))
    y = ops.dot_product_attention(
        query, key, value, bias=bias, mask=visible, scale=1.0, is_causal=causal
    )
    y = swap_heads(y)  # (batch, heads, queries, value_dim)
    y = y if seen is None else ops.where(seen, y, ops.zeros((), y.dtype))
    return y[:, :, :queries]


def _evened(x: Tensor, axes: tuple[int, ...], least: int = 1) -> Tensor:
    """`x` with one zero more on each of the axes whose size is odd and `least` or more."""
    widths = [(0, 0)] * len(x.shape)
    for axis in axes:
        widths[axis] = (0, x.shape[axis] % 2 if x.shape[axis] >= least else 0)
    return ops.pad(x, widths)
