"""Scores of queries and keys, and the products of attention: projections, pairs, values."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import KERNELS, custom_gradient
from keras_transformers.core.types import LayerOptions, Part, Shape, Tensor
from keras_transformers.layers.adapters import altered
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import refuse
from keras_transformers.layers.masks import as_mask
from keras_transformers.layers.parts import Prototype


@keras.saving.register_keras_serializable("keras_transformers")
class Score(BaseLayer):
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

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        kind = type(self)
        # The attention skips what a score leaves as it is.
        self.normalizes = (
            kind.normalize_query is not Score.normalize_query
            or kind.normalize_key is not Score.normalize_key
        )
        self.changes_keys = kind.prepare_key is not Score.prepare_key
        self.is_product = kind.compare is Score.compare

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
        query = ops.cast(query, self.compute_dtype)
        key = ops.cast(key, self.compute_dtype)
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


def project(x: Tensor, *denses: Any, heads_first: bool = False) -> list[Tensor]:
    """Projections of the same `x`, computed as one product.

    With all tokens of the batch in one row, XLA on a CPU is quicker at the product, its bias and
    its gradients: 36 instead of 41 ms for forward and backward of `SelfAttention` on 128 x 49
    tokens of width 128 in 4 heads (two cores of an AMD EPYC 7003, freed memory kept). And a wide
    product is quicker than narrow ones: 2,048 tokens of width 256 times one kernel of that width:
    310 GFLOP/s, times three of them side by side: 397 (two cores of an AMD EPYC with AVX-512).

    Args:
        x: `(batch, length, ...)`.
        *denses: Layers `Dense` or `EinsumDense`, built for `x`.
        heads_first: Whether an output `(batch, length, heads, dim)` is returned as `(batch, heads,
            length, dim)`.

    Returns:
        List of tensors, one a layer.
    """
    # One product needs plain kernels. Frozen ones need no gradient, for which it pays.
    portable = KERNELS.get()
    distribution = keras.distribution.distribution()
    is_shared = isinstance(distribution, keras.distribution.ModelParallel)
    if len(denses) > 1 or portable is not None:
        own_product = any(dense.quantization_mode or dense.lora_enabled for dense in denses)
        altered = any(getattr(dense, "changes", None) is not None for dense in denses)
        trainable = any(dense.kernel.trainable for dense in denses if not own_product)
        if portable is not None or own_product or altered or not (is_shared or trainable):
            outputs = [_project_alone(x, dense) for dense in denses]
            return [swap_heads(y) for y in outputs] if heads_first else outputs
    is_known = all(isinstance(size, int) and size > 0 for size in x.shape[1:])
    batch = -1 if is_known else ops.shape(x)[0]
    length = ops.shape(x)[1]
    if len(denses) == 1:
        y = denses[0](ops.reshape(x, (1, -1, *x.shape[2:])))  # (1, batch * length, ...)
        outputs = [ops.reshape(y, (batch, length, *y.shape[2:]))]
    elif is_shared:
        outputs = _project_on_each_device(x, denses)
    else:
        width = x.shape[2]
        kernels = [ops.reshape(ops.cast(dense.kernel, x.dtype), (width, -1)) for dense in denses]
        y = ops.matmul(ops.reshape(x, (-1, width)), ops.concatenate(kernels, axis=1))
        ends = np.cumsum([math.prod(dense.kernel.shape[1:]) for dense in denses])[:-1].tolist()
        outputs = []
        for dense, part in zip(denses, ops.split(y, ends, axis=1), strict=True):
            if dense.bias is not None:
                part = part + ops.reshape(ops.cast(dense.bias, x.dtype), (-1,))
            outputs.append(ops.reshape(part, (batch, length, *dense.kernel.shape[1:])))
    if heads_first:
        return [ops.transpose(y, (0, 2, 1, 3)) for y in outputs]
    return outputs


def _project_alone(x: Tensor, dense: Any) -> Tensor:
    """Projects `(batch, length, ...)` by one layer."""
    kernels = KERNELS.get()
    if kernels is not None and not multiplies_itself(dense):
        return portable_product(kernels, dense, x)
    y = dense(ops.reshape(x, (1, -1, *x.shape[2:])))  # (1, batch * length, ...)
    return ops.reshape(y, (batch_size(x), ops.shape(x)[1], *y.shape[2:]))


def _project_on_each_device(x: Tensor, denses: Sequence[Any]) -> list[Tensor]:
    """Projects where every device holds some heads, or columns, of each kernel.

    Whole kernels side by side would have to be dealt out anew; head by head they need not, and the
    gradient of `x` is still one product, so one sum over the devices instead of three.
    """
    if len({dense.kernel.shape[1] for dense in denses}) > 1:
        return [_project_alone(x, dense) for dense in denses]
    width, groups = denses[0].kernel.shape[:2]
    kernels = [ops.reshape(dense.kernel, (width, groups, -1)) for dense in denses]
    kernel = ops.cast(ops.concatenate(kernels, axis=2), x.dtype)
    ends = np.cumsum([each.shape[2] for each in kernels])[:-1].tolist()
    y = ops.split(ops.einsum("blw,wgk->blgk", x, kernel), ends, axis=3)
    outputs = []
    for dense, part in zip(denses, y, strict=True):
        part = ops.reshape(part, (batch_size(x), ops.shape(x)[1], *dense.kernel.shape[1:]))
        outputs.append(part if dense.bias is None else part + ops.cast(dense.bias, x.dtype))
    return outputs


def swap_heads(x: Tensor) -> Tensor:
    """`(batch, length, heads, dim)` -> `(batch, heads, length, dim)`, and back."""
    if 1 in x.shape[1:3]:  # nothing moves
        batch, length, heads, dim = x.shape
        moved = [-1 if size is None else size for size in (batch, heads, length, dim)]
        if moved.count(-1) < 2:
            return ops.reshape(x, moved)
    kernels = KERNELS.get()
    return ops.transpose(x, (0, 2, 1, 3)) if kernels is None else kernels.swap(x)


def product(x: Tensor, y: Tensor, transposed: bool = False) -> Tensor:
    """`x y` of each head, or `x y^T`; as many heads of `x` as there are share each of `y`.

    Args:
        x: `(batch, heads, rows, dim)`.
        y: `(batch, shared, ...)`, `heads` being a multiple of `shared`.
        transposed: Whether `y` is transposed.

    Returns:
        `(batch, heads, rows, ...)`.
    """
    heads, shared = x.shape[1], y.shape[1]
    kernels = KERNELS.get()
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
    """Computes `masked_softmax` without checking that `mask` is bool."""
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if bias is not None:
        bias = ops.cast(bias, scores.dtype)
        scores = scores + bias
        is_finite = bias > -math.inf
        mask = is_finite if mask is None else ops.logical_and(mask, is_finite)
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


FEATURES_AT_A_TIME = 8


@keras.saving.register_keras_serializable("keras_transformers")
class ScaledCosineScore(Score):
    """`a(q, k) = cos(q, k) / tau`, a learned temperature for each head.

    Source: Liu et al. 2022, "Swin Transformer V2", https://arxiv.org/abs/2111.09883, eq. 2. What is
    learned is `log(1 / tau)`; it starts at `log 10` and, as in the paper, `tau` does not fall
    below 0.01.

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ScaledCosineScore
    >>> x, context = np.full((1, 1, 1, 4), 3.0, "float32"), np.ones((1, 1, 2, 4), "float32")
    >>> np.asarray(ScaledCosineScore()(x, context)).round(3).tolist()
    [[[[10.0, 10.0]]]]
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.log_scale = self.add_weight(
            name="log_scale",
            shape=(query_shape[1], 1, 1),
            initializer=keras.initializers.Constant(math.log(10)),
        )

    def prepare_query(self, query: Tensor) -> Tensor:
        precise = keras.backend.result_type(query.dtype, "float32")
        log_scale = ops.minimum(ops.cast(self.log_scale, precise), math.log(100))
        return ops.cast(_unit(query) * ops.exp(log_scale), query.dtype)

    def prepare_key(self, key: Tensor) -> Tensor:
        return ops.cast(_unit(key), key.dtype)


def _unit(x: Tensor) -> Tensor:
    """Vectors of length 1, in float32 at least; zero stays zero."""
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


@keras.saving.register_keras_serializable("keras_transformers")
class GeneralScore(Score):
    """`a(q, k) = q^T W k`, a matrix for each head (Luong et al. 2015, eq. 8).

    Source: https://arxiv.org/abs/1508.04025. `W` starts near `1 / sqrt(d_k)` times a rotation, so
    that the scores start as large as those of the scaled dot product.

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import GeneralScore
    >>> layer = GeneralScore()
    >>> x, context = np.ones((1, 2, 3, 4), "float32"), np.ones((1, 2, 5, 4), "float32")
    >>> tuple(layer(x, context).shape)
    (1, 2, 3, 5)
    >>> layer.count_params()
    32
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        heads, width = query_shape[1], query_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(heads, width, key_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1 / width),
        )

    def prepare_query(self, query: Tensor) -> Tensor:
        return ops.matmul(query, ops.cast(self.kernel, query.dtype))


@keras.saving.register_keras_serializable("keras_transformers")
class AdditiveScore(Score):
    """`a(q, k) = v^T tanh(q + k)`, a vector for each head (Bahdanau et al. 2014).

    Source: https://arxiv.org/abs/1409.0473, appendix A.1.2, `v^T tanh(W_q q + W_k k)`; `W_q` and
    `W_k` are the projections of the attention that the score is part of. The sums `q + k` of all
    pairs, `(batch, heads, queries, keys, key_dim)`, never exist at once: 8 of their features at a
    time, forward and, computed again, backward.

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import AdditiveScore
    >>> layer = AdditiveScore()
    >>> x, context = np.ones((1, 2, 3, 4), "float32"), np.ones((1, 2, 5, 4), "float32")
    >>> tuple(layer(x, context).shape)
    (1, 2, 3, 5)
    >>> layer.count_params()
    8
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.vector = self.add_weight(
            name="vector", shape=(query_shape[1], query_shape[-1]), initializer="glorot_uniform"
        )

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        heads, width = self.vector.shape
        shared, group, keys = key.shape[1], heads // key.shape[1], ops.shape(key)[2]
        batch = batch_size(query, key)
        queries = ops.shape(query)[2]  # of all heads of a group
        scores = _additive_scores(
            ops.reshape(query, (batch, shared, group, queries // group, width)),
            key[:, :, None],
            ops.reshape(ops.cast(self.vector, query.dtype), (shared, group, width)),
        )
        return ops.reshape(scores, (batch, shared, queries, keys))


def _additive_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """`sum_d v_d tanh(q_d + k_d)` in float32, some features `d` at a time.

    Shapes `(batch, shared, group, queries, width)`, `(batch, shared, 1, keys, width)` and
    `(shared, group, width)` give `(batch, shared, group, queries, keys)`.
    """
    dtype, precise = query.dtype, keras.backend.result_type(query.dtype, "float32")
    width = query.shape[-1]
    blocks = [slice(i, i + FEATURES_AT_A_TIME) for i in range(0, width, FEATURES_AT_A_TIME)]

    def tanh_of(query: Tensor, key: Tensor, block: slice) -> Tensor:
        return ops.tanh(query[..., None, block] + key[..., None, :, block])

    def scores_of(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
        weights = vector[..., None, None, :]
        return sum(
            ops.sum(tanh_of(query, key, block) * weights[..., block], axis=-1) for block in blocks
        )

    def backward(
        tensors: tuple[Tensor, ...], found: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor]:
        (query, key, vector), upstream = tensors, upstream[..., None]
        weights = vector[..., None, None, :]
        of_query, of_key, of_vector = [], [], []
        for block in blocks:
            y = tanh_of(query, key, block)  # (batch, shared, group, queries, keys, features)
            slope = (1 - y * y) * weights[..., block] * upstream
            of_query.append(ops.sum(slope, axis=-2))
            of_key.append(ops.sum(slope, axis=(2, 3))[:, :, None])
            of_vector.append(ops.sum(y * upstream, axis=(0, 3, 4)))
        return [ops.concatenate(each, -1) for each in (of_query, of_key, of_vector)]

    scores = custom_gradient(lambda *tensors: (scores_of(*tensors),), backward, scores_of)
    return ops.cast(scores(*(ops.cast(x, precise) for x in (query, key, vector))), dtype)


# What `score=` of an attention may be called.
ScoreName: TypeAlias = Literal["scaled_dot", "scaled_cosine", "dot", "general", "additive"]
GivenScore: TypeAlias = ScoreName | Score | dict[str, Any]
SCORES: dict[str, type[Score]] = {
    "scaled_dot": ScaledDotScore,
    "scaled_cosine": ScaledCosineScore,
    "dot": DotScore,
    "general": GeneralScore,
    "additive": AdditiveScore,
}


@keras.saving.register_keras_serializable("keras_transformers")
class NormalizedScore(ScaledDotScore):
    """`a(q, k) = n_q(q)^T n_k(k) / sqrt(d_k)`: a norm of queries and one of keys.

    Query-key normalisation (Dehghani et al. 2023, https://arxiv.org/abs/2302.05442, section 2, with
    layer norms; Qwen 3 with RMS norms). Positions turn the normalised vectors, and the heads share
    the norms' weights.

    Args:
        norm: A norm of the last axis, of which both are copies; by default
            `keras.layers.RMSNormalization(epsilon=1e-6)`.
        scale: See `ScaledDotScore`.

    Call arguments, returns: see `Score`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import NormalizedScore, SelfAttention
    >>> layer = SelfAttention(num_heads=2, score=NormalizedScore())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self, norm: Part | None = None, scale: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(scale, **kwargs)
        norm = keras.layers.RMSNormalization(epsilon=1e-6) if norm is None else norm
        self._norm = Prototype(self, "norm", norm, keras.layers.Layer)
        self.query_norm = self._norm.copy(self, "query_norm")
        self.key_norm = self._norm.copy(self, "key_norm")

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.query_norm.build(query_shape)
        self.key_norm.build(key_shape)

    def normalize_query(self, query: Tensor) -> Tensor:
        return ops.cast(self.query_norm(query), query.dtype)

    def normalize_key(self, key: Tensor) -> Tensor:
        return ops.cast(self.key_norm(key), key.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "norm": self._norm.serialized()}


@keras.saving.register_keras_serializable("keras_transformers")
class SoftCapScore(ScaledDotScore):
    """`a(q, k) = c tanh(q^T k / (c sqrt(d_k)))`, between `-c` and `c`.

    Gemma 2 (Riviere et al. 2024, https://arxiv.org/abs/2408.00118, section 2). Computed in float32.

    Args:
        cap: `c` above, positive.
        scale: See `ScaledDotScore`.

    Call arguments, returns: see `Score`.

    Raises:
        ValueError: If `cap` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SoftCapScore
    >>> x = np.full((1, 1, 1, 4), 9.0, "float32")
    >>> np.asarray(SoftCapScore(cap=5.0)(x, x)).round(2).tolist()
    [[[[5.0]]]]
    """

    def __init__(
        self, cap: float, scale: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(scale, **kwargs)
        if not cap > 0:
            refuse(self, "cap", "positive", cap)
        self.cap = cap

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return soft_capped(super().compare(query, key), self.cap)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "cap": self.cap}


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`, in float32 at least."""
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return ops.tanh(x / cap) * cap


# Blocks of a kernel for one token. The times below were measured under XLA on a CPU. On an
# accelerator the arrangement matters little.
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
