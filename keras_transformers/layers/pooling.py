"""Pooling of a sequence into one vector by attention."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, Shape, Tensor
from keras_transformers.layers.attention.cached import CrossAttention
from keras_transformers.layers.base import Arguments, Composite
from keras_transformers.layers.checks import whole_number
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import given_padding


@keras.saving.register_keras_serializable("keras_transformers")
class AttentionPooling(Arguments, Composite, keras.layers.Layer):
    """Pools a sequence into one vector by multi-head attention from a learned query.

    `a = MHA(q, X)`, `y = a + FFN(LN(a))` (Lee et al. 2019, "Set Transformer",
    https://arxiv.org/abs/1810.00825, section 3.2, as used by Zhai et al. 2022, "Scaling vision
    transformers", https://arxiv.org/abs/2106.04560, section 2.2).

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        mlp_dim: Width of the feed-forward network's hidden layer.
        norm_epsilon: Epsilon of the layer norm.
        activation: Of the feed-forward network.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Passed on.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras; padding is left out.

    Returns:
        `(batch, hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 3 or `num_heads` does not divide its width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import AttentionPooling
    >>> tuple(AttentionPooling(num_heads=2, mlp_dim=16)(np.ones((3, 5, 8), "float32")).shape)
    (3, 8)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        norm_epsilon: float = 1e-6,
        activation: Activation | None = "gelu",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim)
        self.norm_epsilon = norm_epsilon
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        policy = self.dtype_policy
        self.attention = CrossAttention(self.num_heads, name="attention", dtype=policy)
        self.attention.input_names = ("x", "x", "x")
        one = (x_shape[0], 1, x_shape[-1])
        self.attention.build(one, x_shape)
        self.query = self.add_weight(
            name="query_token", shape=(1, 1, x_shape[-1]), initializer="glorot_uniform"
        )
        self.norm = keras.layers.LayerNormalization(
            epsilon=self.norm_epsilon, name="norm", dtype=policy
        )
        self.norm.build(one)
        self.feed_forward = FeedForward(
            self.mlp_dim, self.activation, name="feed_forward", dtype=policy
        )
        self.feed_forward.build(one)

    def call(
        self,
        x: Tensor,
        training: bool | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
    ) -> Tensor:
        query = ops.broadcast_to(ops.cast(self.query, x.dtype), (ops.shape(x)[0], 1, x.shape[-1]))
        padding = given_padding(self, x, mask=mask, x_mask=x_mask)
        pooled = self.attention(query, x, context_mask=padding, training=training)
        y = self.feed_forward(self.norm(pooled))
        return ops.cast(pooled + ops.cast(y, pooled.dtype), self.compute_dtype)[:, 0]

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "norm_epsilon": self.norm_epsilon,
            "activation": keras.activations.serialize(self.activation),
        }
