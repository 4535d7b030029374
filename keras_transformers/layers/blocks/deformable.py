"""The blocks of Deformable DETR."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, LevelShapes, MaybeWeights, Part, Shape, Tensor
from keras_transformers.layers.attention.deformable import DeformableAttention
from keras_transformers.layers.attention.multi_head import SelfAttention
from keras_transformers.layers.blocks.transformer import Block, BranchOptions
from keras_transformers.layers.checks import whole_number


class DeformableBlock(Block):
    """The base class of both blocks: their arguments."""

    def __init__(
        self, num_heads: int, mlp_dim: int | None = None, num_levels: int = 4, num_points: int = 4,
        dropout: float = 0.0, activation: Activation | None = "relu", norm_first: bool = False,
        feed_forward: Part | None = None, norm: Part | None = None,
        **kwargs: Unpack[BranchOptions]
    ) -> None:  # fmt: skip
        settings = (dropout, activation, norm_first, None, feed_forward, norm)
        super().__init__(num_heads, mlp_dim, *settings, **kwargs)
        self.autocast = False  # of the points, see `DeformableAttention`
        self.num_levels = whole_number(self, "num_levels", num_levels)
        self.num_points = whole_number(self, "num_points", num_points)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "num_levels": self.num_levels}
        config["num_points"] = self.num_points
        del config["mixer"]
        return config


@keras.saving.register_keras_serializable("keras_transformers")
class DeformableEncoderBlock(DeformableBlock):
    """An encoder block over the positions of several maps, each of which looks at a few others.

    `DeformableAttention` to the maps themselves and a feed-forward network, each with its residual
    connection and norm (Zhu et al. 2021, "Deformable DETR", https://arxiv.org/abs/2010.04159,
    section 4.1).

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        mlp_dim, dropout, activation, norm_first, feed_forward, norm: See `EncoderBlock`, whose
            `drop_path` and `layer_scale` are taken too, by name.
        num_levels, num_points: Of the attention, see `DeformableAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`, the maps one after another, row by row.
        reference_points: `(batch, length, num_levels, 2)`: where each position lies on each map.
        level_shapes: int `(num_levels, 2)`, rows and columns of each map, or a list of such pairs.
        positions: Optional `(length, hidden_dim)`, or with the batch in front.
        padding_mask, return_attention_scores, training, mask, x_mask: See `EncoderBlock`.

    Returns:
        `(batch, length, hidden_dim)`, on request with the weights, see `DeformableAttention`.

    Raises:
        ValueError: As `EncoderBlock`, and as `DeformableAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DeformableEncoderBlock
    >>> block = DeformableEncoderBlock(num_heads=2, mlp_dim=32, num_levels=2)
    >>> x, points = np.ones((3, 30, 8), "float32"), np.full((3, 30, 2, 2), 0.5, "float32")
    >>> tuple(block(x, points, level_shapes=[[4, 6], [2, 3]]).shape)
    (3, 30, 8)
    """

    def build(
        self, x_shape: Shape, reference_points_shape: Shape | None = None,
        level_shapes_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> None:  # fmt: skip
        self._check(x_shape)
        sizes = (self.num_heads, self.num_levels, self.num_points)
        self._build_mixer([x_shape, x_shape], DeformableAttention, *sizes)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, reference_points: Tensor, level_shapes: LevelShapes,
        positions: Tensor | None = None, padding_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
        mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        padding = None
        if padding_mask is not None or mask is not None or x_mask is not None:
            x, padding = self._hide_padding(x, padding_mask, mask, x_mask)

        residual, norm = x, self.mixer_norm
        if self.norm_first:
            x = self._normed(norm, x, padding)
        x = self.mixer(
            x, x, reference_points=reference_points, level_shapes=level_shapes,
            positions=positions, context_mask=padding,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        x, weights = x if return_attention_scores else (x, None)
        x = self._finish(residual, x, norm, self.mixer_scale, padding, training)

        x = self._feed(x, padding, training)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(
        self, x_shape: Shape, reference_points_shape: Shape | None = None,
        level_shapes_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> Shape:  # fmt: skip
        return super().compute_output_shape(x_shape)


@keras.saving.register_keras_serializable("keras_transformers")
class DeformableDecoderBlock(DeformableBlock):
    """A decoder block whose queries refer to points or boxes, and look at a few points near them.

    `SelfAttention` among the queries, `DeformableAttention` to the maps and a feed-forward network,
    each with its residual connection and norm (Zhu et al. 2021, "Deformable DETR",
    https://arxiv.org/abs/2010.04159, section 4.1).

    Args:
        num_heads: Number of heads of both attentions; must divide the width of `x`.
        mlp_dim, dropout, activation, norm_first, feed_forward, norm: See `EncoderBlock`, whose
            `drop_path` and `layer_scale` are taken too, by name.
        num_levels, num_points: Of the attention to the maps, see `DeformableAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`, the maps one after another.
        reference_points: `(batch, length, num_levels, 2 or 4)`: the point or box of each query.
        level_shapes: int `(num_levels, 2)`, rows and columns of each map, or a list of such pairs.
        positions: Optional `(length, hidden_dim)`, or with the batch in front: those of the
            queries.
        context_mask: Optional bool `(batch, context_length)`; True = part of the image.
        padding_mask, return_attention_scores, training, mask, x_mask: See `DecoderBlock`.

    Returns:
        `(batch, length, hidden_dim)`, on request with the weights of the attention to the maps.

    Raises:
        ValueError: As `EncoderBlock`, and as `DeformableAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DeformableDecoderBlock
    >>> block = DeformableDecoderBlock(num_heads=2, mlp_dim=32, num_levels=2)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 30, 8), "float32")
    >>> boxes = np.full((3, 5, 2, 4), 0.5, "float32")
    >>> tuple(block(x, context, boxes, level_shapes=[[4, 6], [2, 3]]).shape)
    (3, 5, 8)
    """

    causal = False
    cross_attention: Any = None  # before it is built

    def build(
        self, x_shape: Shape, context_shape: Shape, reference_points_shape: Shape | None = None,
        level_shapes_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> None:  # fmt: skip
        self._check(x_shape)
        self._build_mixer([x_shape], SelfAttention, self.num_heads)
        sizes = (self.num_heads, self.num_levels, self.num_points)
        self._build_cross_attention([x_shape, context_shape], None, DeformableAttention, *sizes)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, context: Tensor, reference_points: Tensor, level_shapes: LevelShapes,
        positions: Tensor | None = None, context_mask: Tensor | None = None,
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
            x, context=context, reference_points=reference_points, level_shapes=level_shapes,
            positions=positions, context_mask=context_mask,
            return_attention_scores=return_attention_scores, training=training,
        )  # fmt: skip
        x, weights = x if return_attention_scores else (x, None)
        x = self._finish(residual, x, norm, self.cross_attention_scale, padding, training)

        x = self._feed(x, padding, training)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(
        self, x_shape: Shape, context_shape: Shape | None = None,
        reference_points_shape: Shape | None = None, level_shapes_shape: Shape | None = None,
        positions_shape: Shape | None = None
    ) -> Shape:  # fmt: skip
        return super().compute_output_shape(x_shape)
