"""Attention over several heads, as pure functions."""

import math

from keras import ops

from keras_transformers.layers.masks import combine_masks, masked_softmax, wide
from keras_transformers.layers.portable import current_kernels


def swap_heads(x):
    """`(batch, length, heads, dim)` -> `(batch, heads, length, dim)`, and back."""
    if 1 in x.shape[1:3]:  # nothing moves
        batch, length, heads, dim = x.shape
        moved = [-1 if size is None else size for size in (batch, heads, length, dim)]
        if moved.count(-1) < 2:
            return ops.reshape(x, moved)
    if current_kernels():
        return current_kernels().swap(x)
    return ops.transpose(x, (0, 2, 1, 3))


def attend(query, key, value, compare, mask=None, bias=None, dropout=None, values=None):
    """Attention under any score: `softmax(a(Q, K) + bias) V`.

    Several heads of the queries may share one of the keys and values (Ainslie et al. 2023,
    https://arxiv.org/abs/2305.13245): heads `0 .. G - 1` share the first, the next `G` the second,
    and so on. Nothing is repeated for it.

    Args:
        query: `(batch, heads, queries, key_dim)`.
        key: `(batch, key_value_heads, keys, key_dim)`.
        value: `(batch, key_value_heads, keys, value_dim)`.
        compare: Function of a query and a key with as many heads that gives the scores
            `(batch, heads, queries, keys)`.
        mask: Optional bool that broadcasts against the scores; True = attend.
        bias: Optional, added to the scores; broadcasts likewise. Minus infinity is a mask.
        dropout: Optional function applied to the weights before they meet the values.
        values: Optional function of those weights; what it returns, unless None, is added to the
            output.

    Returns:
        The output `(batch, heads, queries, value_dim)` and the weights before dropout
        `(batch, heads, queries, keys)`, both in the dtype of `query`.
    """
    heads, shared, queries = query.shape[1], key.shape[1], ops.shape(query)[2]

    def share(x):
        """The queries of heads that share a key stand one after the other."""
        if heads == shared:
            return x
        return ops.reshape(x, (-1, shared, heads // shared * queries, ops.shape(x)[-1]))

    def part(x):
        return x if heads == shared else ops.reshape(x, (-1, heads, queries, ops.shape(x)[-1]))

    scores = part(compare(share(query), key))
    if bias is not None:
        bias = ops.cast(bias, wide(scores.dtype))
        mask = combine_masks(mask, bias > -math.inf)
        scores = ops.cast(scores, bias.dtype) + bias
    weights = ops.cast(masked_softmax(scores, mask), query.dtype)
    dropped = weights if dropout is None else dropout(weights)
    output = part(_product(share(dropped), value))
    more = None if values is None else values(dropped)
    return output if more is None else output + more, weights


def dot_product_attention(query, key, value, mask=None, bias=None, dropout=None):
    """Scaled dot-product attention of several heads.

    `softmax(Q K^T / sqrt(d_k) + bias) V` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762,
    eq. 1), with the scores' softmax in float32. A bias of minus infinity is a mask.

    Args:
        query: `(batch, queries, heads, key_dim)`.
        key: `(batch, keys, key_value_heads, key_dim)`; `heads` is a multiple of `key_value_heads`.
        value: `(batch, keys, key_value_heads, value_dim)`.
        mask: Optional bool that broadcasts against `(batch, heads, queries, keys)`; True = attend.
        bias: Optional, added to the scores; broadcasts likewise.
        dropout: Optional function applied to the weights before they meet the values.

    Returns:
        The output `(batch, queries, heads, value_dim)` and the weights before dropout
        `(batch, heads, queries, keys)`, both in the dtype of `query`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import dot_product_attention
    >>> x = ops.ones((2, 5, 3, 4))
    >>> output, weights = dot_product_attention(x, x, x)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 5, 3, 4), (2, 3, 5, 5))
    """
    query = query * ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
    heads_first = (swap_heads(x) for x in (query, key, value))
    output, weights = attend(*heads_first, dot_products, mask, bias, dropout)
    return swap_heads(output), weights


def dot_products(query, key):
    """`q^T k` of every query with every key: `(..., queries, dim)`, `(..., keys, dim)`."""
    return _product(query, key, transposed=True)


def _product(x, y, transposed=False):
    """`x y` of each head, or `x y^T`."""
    if current_kernels():
        return current_kernels().batch_product(x, y, transposed)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transposed else y)
