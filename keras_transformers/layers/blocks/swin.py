"""The block of a Swin Transformer: attention in windows that shift from block to block."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, MaybeWeights, Part, Shape, Tensor
from keras_transformers.layers.attention.windows import (
    WindowAttention,
    merge_windows,
    partition_windows,
    rolled,
    shifted_window_mask,
)
from keras_transformers.layers.blocks.transformer import Block, BranchOptions
from keras_transformers.layers.checks import refuse
from keras_transformers.layers.parts import with_arguments
from keras_transformers.layers.patches import check_map, pad_map, patch_sizes


class SwinOptions(BranchOptions, total=False):
    """Further keyword arguments of a `SwinBlock`."""

    dropout: float
    feed_forward: Part | None


@keras.saving.register_keras_serializable("keras_transformers")
class SwinBlock(Block):
    """Self-attention inside windows and a feed-forward network, with residuals and norms.

    `X' = X + WMSA(LN(X))`, `X'' = X' + FFN(LN(X'))` (Liu et al. 2021,
    https://arxiv.org/abs/2103.14030, eq. 3). With `norm_first` False the norm ends the branch,
    `X + LN(f(X))` (res-post-norm; Liu et al. 2022, https://arxiv.org/abs/2111.09883, section 3.2).
    A grid of any size is taken: it is padded to whole windows, and along an axis that fits into one
    window nothing is shifted.

    Args:
        num_heads: Number of heads; must divide the width of `x`. None beside a `mixer`.
        window_size: Side of a window in tokens, or `(rows, columns)`. None beside a `mixer` that
            has one.
        mlp_dim: Width of the feed-forward network's hidden layer. None beside a `feed_forward`.
        shift: By how many tokens the windows stand off those of the block before, to the lower
            right; half a window in every second block.
        norm_first: Whether the norms come first in their branches.
        mask_padding: Whether padding is hidden. The authors' code lets tokens attend to padding,
            zeros before the projections; False computes the same.
        mixer: What stands in the place of `WindowAttention(num_heads, window_size)`: one with
            settings of its own, or another layer from `(batch * windows, tokens, hidden_dim)` to
            the same shape.
        dropout, activation, feed_forward, norm, drop_path, layer_scale: See `EncoderBlock`; the
            activation is "gelu", and the norm's epsilon 1e-5.

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

    default_activation = "gelu"

    def __init__(
        self,
        num_heads: int | None = None,
        window_size: int | Sequence[int] | None = None,
        mlp_dim: int | None = None,
        shift: int | Sequence[int] = 0,
        norm_first: bool = True,
        mask_padding: bool = True,
        activation: Activation | None = "gelu",
        mixer: Part | None = None,
        norm: Part | None = None,
        **kwargs: Unpack[SwinOptions],
    ) -> None:
        settings: dict[str, Any] = {"activation": activation, "mixer": mixer}
        settings["norm_first"] = norm_first
        if norm is None:
            norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        super().__init__(num_heads, mlp_dim, norm=norm, **settings, **kwargs)
        its = None if mixer is None else getattr(self.given_mixer(), "window_size", None)
        if (window_size is None) == (its is None):
            expected = "given" if its is None else "left out beside `mixer`, which has its own"
            refuse(self, "window_size", expected, window_size)
        self._window_size = window_size  # as it was given
        self.window_size = patch_sizes(its or window_size or 0, 2, type(self).__name__)
        shifts: Any = (shift, shift) if isinstance(shift, numbers.Integral) else shift
        self.shift = tuple(int(step) for step in shifts)
        fits = zip(self.shift, self.window_size, strict=True)
        if not all(0 <= step < side for step, side in fits):
            expected = f"at least 0 and less than `window_size`={self.window_size}"
            refuse(self, "shift", expected, shift)
        self.mask_padding = mask_padding

    def with_windows(self, window_size: Sequence[int], shift: Sequence[int]) -> Any:
        """The same block, not built, with windows of another size that stand off by `shift`."""
        changes: dict[str, Any] = {"shift": tuple(shift)}
        if tuple(window_size) != self.window_size:
            if self._window_size is None:
                mixer = with_arguments(self.given_mixer(), window_size=tuple(window_size))
                changes["mixer"] = mixer
            else:
                changes["window_size"] = tuple(window_size)
        return with_arguments(self, **changes)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        windows = (None, math.prod(self.window_size), x_shape[-1])
        self._check(windows)
        arguments = (self.num_heads, self.window_size)
        self._build_mixer([windows], WindowAttention, *arguments, norm_shape=x_shape)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:
        check_map(self, x.shape)
        x = ops.cast(x, self.compute_dtype)
        residual, norm = x, self.mixer_norm
        if self.norm_first:
            x = self._normed(norm, x, None)
        x, weights = self._in_windows(x, training, return_attention_scores)
        x = self._finish(residual, x, norm, self.mixer_scale, None, training)
        x = self._feed(x, None, training)
        return (x, weights) if return_attention_scores else x

    def _finish(
        self, residual: Tensor, x: Tensor, norm: Any, scale: Any, padding: Tensor | None,
        training: bool | None
    ) -> Tensor:  # fmt: skip
        """Ends a branch; without `norm_first` the norm stands before the residual connection."""
        if not self.norm_first:
            x = norm(x)
        if scale is not None:
            x = scale(x)
        if training:
            x = self._drop(x)
        return residual + ops.cast(x, residual.dtype)

    def _in_windows(
        self, x: Tensor, training: bool | None = None, return_attention_scores: bool = False
    ) -> tuple[Tensor, Any]:
        """Mixes each window of a grid `(batch, rows, columns, hidden_dim)`; also its weights."""
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
        x = pad_map(x, *padding)  # (batch, whole rows, whole columns, hidden_dim)
        if moved:
            x = rolled(x, shift)
        x = partition_windows(x, self.window_size)  # (batch * windows, tokens, hidden_dim)
        options: dict[str, Any] = {} if mask is None else {"attention_mask": mask}
        if return_attention_scores:
            options["return_attention_scores"] = True
        self._check_options("mixer", self.mixer, self._mixer_takes, options)
        x = self.mixer(x, training=training, **options)
        x, weights = x if return_attention_scores else (x, None)
        x = merge_windows(x, self.window_size, whole)  # (batch, rows, columns, hidden_dim)
        if moved:
            x = rolled(x, [-step for step in shift])
        return (x[:, : grid[0], : grid[1]] if padded else x), weights

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "window_size": self._window_size,
            "shift": list(self.shift),
            "mask_padding": self.mask_padding,
        }


def _only_if(condition: Any, step: int) -> Any:
    """`step` or 0, where the condition is known or will be in the call."""
    if step == 0 or isinstance(condition, bool):
        return step if condition is True else 0
    return ops.where(condition, step, 0)


def _zero(sides: Iterable[Any]) -> bool:
    return all(isinstance(side, int) and side == 0 for side in sides)
