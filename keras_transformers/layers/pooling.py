"""Pooling of a sequence into one vector: by attention, or as a class token and a mean."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, LayerOptions, Shape, Tensor
from keras_transformers.layers.attention.multi_head import CrossAttention
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import check_sequence, whole_number
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import given_padding


@keras.saving.register_keras_serializable("keras_transformers")
class AttentionPooling(BaseLayer):
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
        x = ops.cast(x, self.compute_dtype)
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


@keras.saving.register_keras_serializable("keras_transformers")
class ClassAndMeanPooling(BaseLayer):
    """The first token and the mean of the patches, side by side: what a linear probe sees.

    `[x_class; mean(x_1, ..., x_N)]` (Oquab et al. 2024, "DINOv2",
    https://arxiv.org/abs/2304.07193, and their code's linear classifiers). The `pooling` of a `ViT`
    with a class token.

    Args:
        prefix_tokens: How many tokens stand before the patches: the class token and registers.

    Call arguments:
        x: `(batch, tokens, hidden_dim)`.

    Returns:
        `(batch, 2 * hidden_dim)`.

    Raises:
        ValueError: If `prefix_tokens` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassAndMeanPooling
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/16", 10, image_size=32, num_layers=1, class_token=True,
    ...                          registers=4, pooling=ClassAndMeanPooling(1 + 4))
    >>> tuple(model(np.zeros((2, 32, 32, 3), "float32")).shape), model.head.kernel.shape[0]
    ((2, 10), 384)
    """

    def __init__(self, prefix_tokens: int = 1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.prefix_tokens = whole_number(self, "prefix_tokens", prefix_tokens)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        mean = ops.mean(x[:, self.prefix_tokens :], axis=1)
        return ops.concatenate([x[:, 0], mean], axis=-1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], 2 * x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "prefix_tokens": self.prefix_tokens}
