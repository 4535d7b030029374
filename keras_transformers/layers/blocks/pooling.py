"""The block of MViT, whose attention pools its input."""

import functools
import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, MaybeWeights, Part, Shape, Tensor
from keras_transformers.layers.attention.pooling import PoolingAttention
from keras_transformers.layers.blocks.transformer import Block, BranchOptions
from keras_transformers.layers.patches import check_map


class PoolingOptions(BranchOptions, total=False):
    """Further keyword arguments of a `PoolingBlock`."""

    dropout: float
    feed_forward: Part | None
    norm: Part | None
    mixer: None


@keras.saving.register_keras_serializable("keras_transformers")
class PoolingBlock(Block):
    """Pooling attention and a feed-forward network, from a grid to one with fewer, wider tokens.

    `X' = P(X) + PA(LN(X))`, `X'' = X' + FFN(LN(X'))`, where `P` takes the maximum of 3 x 3 tokens
    if the queries are pooled, after a projection of `LN(X)` if the width changes (Li et al. 2022,
    "MViTv2", https://arxiv.org/abs/2112.01526, section 4 and the authors' code).

    Args:
        num_heads: Number of heads; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward network's hidden layer. None beside a `feed_forward`.
        hidden_dim: Width of the output.
        grid, query_stride, key_stride: See `PoolingAttention`.
        dropout, activation, feed_forward, norm, drop_path, layer_scale: See `EncoderBlock`; the
            activation is "gelu", and a norm is the attention's too. The norms come first, and a
            mixer is no choice.

    Call arguments:
        x: `(batch, rows, columns, width)`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        `(batch, ceil(rows / query_stride), ceil(columns / query_stride), hidden_dim)`, and the
        weights `(batch, heads, queries, keys)` on request.

    Raises:
        ValueError: As `PoolingAttention`, and if a mixer is given or `norm_first` is False.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PoolingBlock
    >>> block = PoolingBlock(num_heads=2, mlp_dim=16, hidden_dim=12, grid=(8, 8), query_stride=2)
    >>> tuple(block(np.ones((3, 8, 8, 6), "float32")).shape)
    (3, 4, 4, 12)
    """

    default_activation = "gelu"

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int | None,
        hidden_dim: int,
        grid: Sequence[int],
        query_stride: int = 1,
        key_stride: int = 1,
        activation: Activation | None = "gelu",
        norm_first: bool = True,
        **kwargs: Unpack[PoolingOptions],
    ) -> None:
        mixer = kwargs.get("mixer")
        if mixer is not None or not norm_first:
            raise ValueError(
                "PoolingBlock: `mixer` must be None and `norm_first` True. "
                f"Received: mixer={mixer}, norm_first={norm_first}"
            )
        super().__init__(num_heads, mlp_dim, activation=activation, norm_first=norm_first, **kwargs)
        self.hidden_dim = hidden_dim
        self.grid = tuple(grid)
        self.query_stride = query_stride
        self.key_stride = key_stride

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                f"PoolingBlock '{self.name}': `num_heads` must divide `hidden_dim`="
                f"{self.hidden_dim}. Received: num_heads={self.num_heads}"
            )
        attention = functools.partial(
            PoolingAttention,
            self.num_heads,
            self.grid,
            self.query_stride,
            self.key_stride,
            self._norm.layer,
            key_dim=self.hidden_dim // self.num_heads,
            output_shape=self.hidden_dim,
        )
        output_shape = (*x_shape[:-1], self.hidden_dim)
        self._build_mixer([x_shape], attention, output_shape=output_shape)
        self.skip_projection = None
        if x_shape[-1] != self.hidden_dim:
            self.skip_projection = keras.layers.Dense(
                self.hidden_dim, name="skip_projection", dtype=self.dtype_policy
            )
            self.skip_projection.build(x_shape)
        self._build_feed_forward(output_shape)

    def call(
        self, x: Tensor, return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:
        x = ops.cast(x, self.compute_dtype)
        normed = self.mixer_norm(x)
        y = self.mixer(normed, return_attention_scores=return_attention_scores, training=training)
        y, weights = y if return_attention_scores else (y, None)
        y = y if self.mixer_scale is None else self.mixer_scale(y)
        y = self._drop(y) if training else y
        x = self._skip(x if self.skip_projection is None else self.skip_projection(normed))
        x = x + ops.cast(y, x.dtype)
        x = self._feed(x, None, training)
        return (x, weights) if return_attention_scores else x

    def _skip(self, x: Tensor) -> Tensor:
        if self.query_stride == 1:
            return x
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-math.inf)
        return ops.max_pool(x, 3, self.query_stride, data_format="channels_last")

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, *sides, _ = x_shape
        sides = (None if side is None else -(-side // self.query_stride) for side in sides)
        return (batch, *sides, self.hidden_dim)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None  # that of `x` is none of the pooled

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "grid": list(self.grid),
            "query_stride": self.query_stride,
            "key_stride": self.key_stride,
        }
