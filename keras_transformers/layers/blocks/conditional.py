"""The decoder blocks of Conditional DETR."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, MaybeWeights, Part, Shape, Tensor
from keras_transformers.layers.attention.conditional import (
    ConditionalCrossAttention,
    ConditionalSelfAttention,
)
from keras_transformers.layers.blocks.transformer import Block, BranchOptions


@keras.saving.register_keras_serializable("keras_transformers")
class ConditionalDecoderBlock(Block):
    """A decoder block whose queries each refer to a point of the map that they look at.

    `ConditionalSelfAttention`, `ConditionalCrossAttention` and a feed-forward network, each with
    its residual connection and norm (Meng et al. 2021, "Conditional DETR",
    https://arxiv.org/abs/2108.06152, figure 2). The first of a stack is a
    `FirstConditionalDecoderBlock`.

    Args:
        num_heads: Number of heads of both attentions; must divide the width of `x`.
        mlp_dim, dropout, activation, norm_first, feed_forward, norm: See `EncoderBlock`, whose
            `drop_path` and `layer_scale` are taken too, by name.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`.
        positions: `(length, hidden_dim)`, or with the batch in front: those of the queries.
        reference: `(batch, length, hidden_dim)`: the encoding of each query's point.
        context_positions: `(context_length, context_width)`, or with the batch in front.
        context_mask: Optional bool `(batch, context_length)`; True = part of the image.
        padding_mask, return_attention_scores, training, mask, x_mask: See `DecoderBlock`.

    Returns:
        `(batch, length, hidden_dim)`, on request with the weights of the cross-attention, `(batch,
        heads, length, context_length)`.

    Raises:
        ValueError: As `EncoderBlock`, and as `ConditionalCrossAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConditionalDecoderBlock
    >>> block = ConditionalDecoderBlock(num_heads=2, mlp_dim=32)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
    >>> tuple(block(x, context, positions=x, reference=x, context_positions=context).shape)
    (3, 5, 8)
    """

    causal = False
    first = False

    def __init__(
        self, num_heads: int, mlp_dim: int | None = None, dropout: float = 0.0,
        activation: Activation | None = "relu", norm_first: bool = False,
        feed_forward: Part | None = None, norm: Part | None = None,
        **kwargs: Unpack[BranchOptions]
    ) -> None:  # fmt: skip
        settings = (dropout, activation, norm_first, None, feed_forward, norm)
        super().__init__(num_heads, mlp_dim, *settings, **kwargs)
        self.cross_attention: Any = None

    def build(
        self, x_shape: Shape, context_shape: Shape, positions_shape: Shape | None = None,
        reference_shape: Shape | None = None, context_positions_shape: Shape | None = None
    ) -> None:  # fmt: skip
        self._check(x_shape)
        self._build_mixer([x_shape], ConditionalSelfAttention, self.num_heads)
        shapes = [x_shape, context_shape, x_shape, context_shape, x_shape if self.first else None]
        self._build_cross_attention(shapes, None, ConditionalCrossAttention, self.num_heads)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, context: Tensor, positions: Tensor, reference: Tensor,
        context_positions: Tensor, context_mask: Tensor | None = None,
        padding_mask: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        padding = None
        if padding_mask is not None or mask is not None or x_mask is not None:
            x, padding = self._hide_padding(x, padding_mask, mask, x_mask)

        residual, norm = x, self.mixer_norm
        if self.norm_first:
            x = self._normed(norm, x, padding)
        x = self.mixer(x, positions=positions, training=training, mask=padding)
        x = self._finish(residual, x, norm, self.mixer_scale, padding, training)

        residual, norm = x, self.cross_attention_norm
        if self.norm_first:
            x = self._normed(norm, x, padding)
        x = self.cross_attention(
            x, context=context, reference=reference, context_positions=context_positions,
            positions=positions if self.first else None, context_mask=context_mask,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        x, weights = x if return_attention_scores else (x, None)
        x = self._finish(residual, x, norm, self.cross_attention_scale, padding, training)

        x = self._feed(x, padding, training)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(
        self, x_shape: Shape, context_shape: Shape | None = None,
        positions_shape: Shape | None = None, reference_shape: Shape | None = None,
        context_positions_shape: Shape | None = None
    ) -> Shape:  # fmt: skip
        return super().compute_output_shape(x_shape)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["mixer"]
        return config


@keras.saving.register_keras_serializable("keras_transformers")
class FirstConditionalDecoderBlock(ConditionalDecoderBlock):
    """The first `ConditionalDecoderBlock` of a stack, in which contents know of positions too.

    Its queries are of no content yet, so that a projection of their positions is added to it, and
    the projection of the map's positions to that of the map's content (Meng et al. 2021,
    https://arxiv.org/abs/2108.06152, as the authors compute it).

    Args:
        num_heads, mlp_dim, dropout, ...: See `ConditionalDecoderBlock`.

    Call arguments, returns, raises: see `ConditionalDecoderBlock`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import FirstConditionalDecoderBlock
    >>> block = FirstConditionalDecoderBlock(num_heads=2, mlp_dim=32)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
    >>> tuple(block(x, context, positions=x, reference=x, context_positions=context).shape)
    (3, 5, 8)
    """

    first = True
