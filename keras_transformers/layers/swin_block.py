"""The block of a Swin Transformer: attention in windows that shift from block to block."""

import math

import keras
from keras import ops

from keras_transformers.layers.blocks import Block
from keras_transformers.layers.patch_merging import check_map, pad_map
from keras_transformers.layers.patches import patch_sizes
from keras_transformers.layers.windows import (
    WindowAttention,
    merge_windows,
    partition_windows,
    rolled,
    shifted_window_mask,
)


@keras.saving.register_keras_serializable("keras_transformers")
class SwinBlock(Block):
    """Self-attention inside windows and a feed-forward network, with residuals and norms.

    `X' = X + WMSA(LN(X))`, `X'' = X' + FFN(LN(X'))` (Liu et al. 2021,
    https://arxiv.org/abs/2103.14030, eq. 3). With `norm_first` False the norm ends the branch,
    `X + LN(f(X))` (res-post-norm; Liu et al. 2022, https://arxiv.org/abs/2111.09883, section 3.2).
    A grid of any size is taken: it is padded to whole windows, and along an axis that fits into one
    window nothing is shifted.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        window_size: Side of a window in tokens, or `(rows, columns)`.
        mlp_dim: Width of the feed-forward network's hidden layer.
        shift: By how many tokens the windows stand off those of the block before, to the lower
            right; half a window in every second block.
        cosine, pretrained_window_size: See `WindowAttention`.
        norm_first: Whether the norms come first in their branches.
        mask_padding: Whether padding is hidden. The authors' code lets tokens attend to padding,
            zeros before the projections; False computes the same.
        activation: Activation of the feed-forward network.
        norm_epsilon: Epsilon of the layer norms.
        mixer: What stands in the place of `WindowAttention`: a layer from `(batch * windows,
            tokens, hidden_dim)` to the same shape.
        dropout, attention_dropout, drop_path, layer_scale, feed_forward, norm: See `EncoderBlock`.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`, and the weights `(batch * windows, heads, tokens, tokens)` on request.

    Raises:
        ValueError: If `x` is not of rank 4, `num_heads` does not divide its width, or `shift` is
            not less than the window.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SwinBlock
    >>> block = SwinBlock(num_heads=2, window_size=3, mlp_dim=16, shift=1)
    >>> tuple(block(np.ones((2, 7, 8, 4), "float32")).shape)
    (2, 7, 8, 4)
    """

    def __init__(
        self,
        num_heads,
        window_size,
        mlp_dim,
        shift=0,
        cosine=False,
        pretrained_window_size=None,
        norm_first=True,
        mask_padding=True,
        activation="gelu",
        norm_epsilon=1e-5,
        **kwargs,
    ):
        super().__init__(
            num_heads,
            mlp_dim,
            norm_first=norm_first,
            activation=activation,
            norm_epsilon=norm_epsilon,
            **kwargs,
        )
        self.window_size = patch_sizes(window_size, 2, type(self).__name__)
        self.shift = (shift, shift) if isinstance(shift, int) else tuple(shift)
        fits = zip(self.shift, self.window_size, strict=True)
        if not all(0 <= step < side for step, side in fits):
            raise ValueError(
                f"SwinBlock '{self.name}': `shift` must be at least 0 and less than "
                f"`window_size`={self.window_size}. Received: {shift}"
            )
        self.cosine = cosine
        self.pretrained_window_size = pretrained_window_size
        self.mask_padding = mask_padding

    def build(self, x_shape):
        check_map(self, x_shape)
        windows = (None, math.prod(self.window_size), x_shape[-1])
        self._check(windows)
        self._build_mixer(self._window_attention, windows)
        self.attention_norm, self.attention_scale = self._norm_and_scale("attention", x_shape)
        self._build_feed_forward(x_shape)

    def _window_attention(self, num_heads, **kwargs):
        return WindowAttention(
            num_heads, self.window_size, self.cosine, self.pretrained_window_size, **kwargs
        )

    def call(self, x, return_attention_scores=False, training=None):
        check_map(self, x.shape)
        scores = [] if return_attention_scores else None

        def mix(x):
            return self._in_windows(x, scores, training)

        x = self._attend(x, mix, training)
        x = self._feed(x, self.feed_forward, training)
        return (x, scores[0]) if return_attention_scores else x

    def _in_windows(self, x, scores, training):
        grid = ops.shape(x)[1:3]
        # Known extents are plain integers, and so is what follows from them.
        padding = [-side % window for side, window in zip(grid, self.window_size, strict=True)]
        whole = [side + more for side, more in zip(grid, padding, strict=True)]
        shift = [
            _only_if(side > window, step)
            for step, side, window in zip(self.shift, grid, self.window_size, strict=True)
        ]
        moved, padded = (not _zero(sides) for sides in (shift, padding))
        mask = None
        if moved or (padded and self.mask_padding):
            real = grid if self.mask_padding else whole
            mask = shifted_window_mask(whole, self.window_size, shift, real)
        x = pad_map(x, *padding)
        if moved:
            x = rolled(x, shift)
        windows = partition_windows(x, self.window_size)
        mix = self._call_of(self._mixing_layer(), scores, training, attention_mask=mask)
        x = merge_windows(mix(windows), self.window_size, whole)
        if moved:
            x = rolled(x, [-step for step in shift])
        return x[:, : grid[0], : grid[1]] if padded else x

    def _residual(self, x, branch, norm, scale, training):
        if self.norm_first:
            return super()._residual(x, branch, norm, scale, training)
        y = norm(branch(x))
        y = y if scale is None else scale(y)
        return x + self.drop_path_layer(self.dropout_layer(y, training=training), training=training)

    def get_config(self):
        return {
            **super().get_config(),
            "window_size": list(self.window_size),
            "shift": list(self.shift),
            "cosine": self.cosine,
            "pretrained_window_size": self.pretrained_window_size,
            "mask_padding": self.mask_padding,
        }


def _only_if(condition, step):
    """`step` or 0, where the condition is known or will be in the call."""
    if step == 0 or isinstance(condition, bool):
        return step if condition is True else 0
    return ops.where(condition, step, 0)


def _zero(sides):
    return all(isinstance(side, int) and side == 0 for side in sides)
