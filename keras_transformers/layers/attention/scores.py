"""Alignment scores, how well a query and a key match, and what attention does with them."""

import math
from collections.abc import Callable
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.masks import as_mask, combine_masks
from keras_transformers.layers.portable import KERNELS
from keras_transformers.layers.projections import batch_size, swap_heads


@keras.saving.register_keras_serializable("keras_transformers")
class Score(Arguments, keras.layers.Layer):
    """Base of the alignment scores `a(q, k)`; by itself the dot product.

    A score of one's own overrides what differs: `normalize_query` and `normalize_key` see each
    vector before positions turn it, `prepare_query` and `prepare_key` after that, `compare` each
    pair. Keys are kept prepared in the cache of step-by-step decoding. Weights are made in `build`,
    from the two shapes.

    Call arguments:
        query: `(batch, heads, queries, key_dim)`.
        key: `(batch, key_value_heads, keys, key_dim)`; `heads` must be `key_value_heads` when the
            layer is called by itself.

    Returns:
        `(batch, heads, queries, keys)`.

    Example: the squared distance, in an attention.
    >>> import keras
    >>> import numpy as np
    >>> from keras import ops
    >>> from keras_transformers.layers import Score, SelfAttention
    >>> @keras.saving.register_keras_serializable()
    ... class DistanceScore(Score):
    ...     def compare(self, query, key):
    ...         difference = query[:, :, :, None] - key[:, :, None]
    ...         return -ops.sum(ops.square(difference), axis=-1)
    >>> layer = SelfAttention(num_heads=2, score=DistanceScore())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        pass

    def normalize_query(self, query: Tensor) -> Tensor:
        """What positions are shown of `(batch, heads, queries, key_dim)`; the same shape."""
        return query

    def normalize_key(self, key: Tensor) -> Tensor:
        """What positions are shown of `(batch, key_value_heads, keys, key_dim)`; the same shape."""
        return key

    def prepare_query(self, query: Tensor) -> Tensor:
        """What `compare` is shown of `(batch, heads, queries, key_dim)`; the same shape."""
        return query

    def prepare_key(self, key: Tensor) -> Tensor:
        """What `compare` is shown of `(batch, key_value_heads, keys, key_dim)`; the same shape."""
        return key

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of every pair: `(batch, key_value_heads, group * queries, keys)`.

        Args:
            query: `(batch, key_value_heads, group * queries, key_dim)`, where `group` heads share
                a key (1 in ordinary attention) and stand one after the other.
            key: `(batch, key_value_heads, keys, key_dim)`.
        """
        return product(query, key, transposed=True)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = self.normalize_query(query), self.normalize_key(key)
        return self.compare(self.prepare_query(query), self.prepare_key(key))

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        return (*query_shape[:3], key_shape[2])

    def get_config(self) -> dict[str, Any]:
        return super().get_config()  # Keras's automatic one knows no dtype policy


@keras.saving.register_keras_serializable("keras_transformers")
class DotScore(Score):
    """`a(q, k) = q^T k` (Luong et al. 2015, https://arxiv.org/abs/1508.04025, eq. 8).

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DotScore
    >>> np.asarray(DotScore()(np.full((1, 1, 1, 4), 3.0), np.ones((1, 1, 2, 4)))).tolist()
    [[[[12.0, 12.0]]]]
    """


@keras.saving.register_keras_serializable("keras_transformers")
class ScaledDotScore(Score):
    """`a(q, k) = q^T k / sqrt(d_k)` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, eq. 1).

    Args:
        scale: What the product is multiplied by instead of `1 / sqrt(d_k)`.

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ScaledDotScore
    >>> np.asarray(ScaledDotScore()(np.full((1, 1, 1, 4), 3.0), np.ones((1, 1, 2, 4)))).tolist()
    [[[[6.0, 6.0]]]]
    """

    def __init__(self, scale: float | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def prepare_query(self, query: Tensor) -> Tensor:
        scale = 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        return query * ops.cast(scale, query.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}


def product(x: Tensor, y: Tensor, transposed: bool = False) -> Tensor:
    """`x y` of each head, or `x y^T`; as many heads of `x` as there are share each of `y`.

    Args:
        x: `(batch, heads, rows, dim)`.
        y: `(batch, shared, ...)`, `heads` being a multiple of `shared`.
        transposed: Whether `y` is transposed.

    Returns:
        `(batch, heads, rows, ...)`.
    """
    heads, shared, kernels = x.shape[1], y.shape[1], KERNELS.get()
    x = x if heads == shared else regroup(x, shared)  # (batch, shared, group * rows, dim)
    if kernels is not None:
        z = kernels.batch_product(x, y, transposed)
    else:
        z = ops.matmul(x, ops.swapaxes(y, -1, -2) if transposed else y)
    return z if heads == shared else regroup(z, heads)


def regroup(x: Tensor, heads: int) -> Tensor:
    """`(batch, others, rows, dim)` -> `(batch, heads, others * rows / heads, dim)`.

    Heads of queries that share one of keys and values stand one after the other: `0 .. G - 1` share
    the first, the next `G` the second (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
    """
    rows = x.shape[1] * ops.shape(x)[2] // heads
    return ops.reshape(x, (batch_size(x), heads, rows, ops.shape(x)[3]))


def masked_softmax(
    scores: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Softmax over the last axis, as if every masked score were minus infinity.

    Computed in float32 (float64 for float64 scores). A row that may attend to nothing gets weights
    of exactly zero, never NaN.

    Args:
        scores: `(..., keys)`, any floating dtype.
        mask: Optional bool that broadcasts against `scores`; True = attend.
        bias: Optional, added to the scores; broadcasts likewise. Minus infinity is a mask.

    Returns:
        Weights of the same shape, float32 or float64.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import masked_softmax
    >>> weights = masked_softmax(ops.zeros((2, 2)), ops.array([[True, True], [False, False]]))
    >>> ops.convert_to_numpy(weights).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    mask = as_mask(mask, "masked_softmax: `mask`")
    return softmax_of_visible(scores, mask, bias)


def softmax_of_visible(scores: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """`masked_softmax` under a mask that is known to be one, of bool."""
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if bias is not None:
        bias = ops.cast(bias, scores.dtype)
        scores, mask = scores + bias, combine_masks(mask, bias > -math.inf)
    if mask is not None and KERNELS.get() is not None:
        return KERNELS.get().softmax(scores, mask)
    if mask is not None:
        # Finite, so that a wholly masked row makes no NaN; elsewhere its exp() is exactly 0.
        scores = ops.where(mask, scores, -1e38)
    # Keras warns about a softmax over a single key, which is legitimate here.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
    return weights if mask is None else ops.where(mask, weights, 0.0)


def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
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
    query, key, value = map(swap_heads, (query, key, value))  # (batch, heads, length, dim)
    scores = product(query, key, transposed=True)  # (batch, heads, queries, keys)
    weights = ops.cast(masked_softmax(scores, mask, bias), query.dtype)
    output = product(weights if dropout is None else dropout(weights), value)
    return swap_heads(output), weights  # (batch, queries, heads, value_dim)
