"""Alignment scores with weights of their own, and the names of all."""

import math
from typing import Any, Literal, TypeAlias

import keras
from keras import ops

from keras_transformers.annotations import Shape, Tensor
from keras_transformers.gradients import custom_gradient
from keras_transformers.layers.attention.scores import DotScore, ScaledDotScore, Score
from keras_transformers.layers.projections import batch_size

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
