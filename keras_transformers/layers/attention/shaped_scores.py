"""Scaled dot products of normalised vectors, and with a soft cap."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Part, Shape, Tensor
from keras_transformers.layers.attention.scores import ScaledDotScore
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.parts import Prototype


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
