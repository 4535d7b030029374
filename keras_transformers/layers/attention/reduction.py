"""Self-attention of a grid to a smaller copy of itself."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import MaybeWeights, Part, Shape, Tensor
from keras_transformers.layers.attention.multi_head import MultiHeadAttention
from keras_transformers.layers.attention.settings import AttentionOptions
from keras_transformers.layers.parts import norm_prototype
from keras_transformers.layers.vision.patch_embedding import PatchEmbedding
from keras_transformers.layers.vision.patch_merging import check_map, pad_map


@keras.saving.register_keras_serializable("keras_transformers")
class SpatialReductionAttention(MultiHeadAttention):
    """Attention of every token of a grid to patches of the grid (Wang et al. 2021).

    `Attention(X W^Q, SR(X) W^K, SR(X) W^V)`, `SR(X) = LN(patchify(X, r) W^S)` (PVT,
    https://arxiv.org/abs/2102.12122, eq. 2 to 5): `r^2` times fewer keys and values. Rows and
    columns beyond the last whole patch are not attended to; a grid smaller than a patch is padded
    with zeros.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        reduction: Side of a patch (r); 1 for ordinary self-attention.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-6)`; copied.
        key_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`, and the weights `(batch, heads, rows * columns, patches)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`, and if `x` is not of rank 4, or `reduction` not
            positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SpatialReductionAttention
    >>> layer = SpatialReductionAttention(num_heads=2, reduction=2)
    >>> tuple(layer(np.ones((3, 7, 6, 8), "float32")).shape)
    (3, 7, 6, 8)
    """

    input_names = ("x", "x", "x")

    def __init__(
        self,
        num_heads: int,
        reduction: int = 1,
        norm: Part | None = None,
        **kwargs: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(num_heads, **kwargs)
        if not (isinstance(reduction, int) and reduction > 0):
            self._refuse("reduction", "a positive integer", repr(reduction))
        self.reduction = reduction
        self._norm = norm_prototype(self, norm)

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        width = x_shape[-1]
        super().build((None, None, width))
        self.reduce: keras.layers.Layer | None = None
        self.norm: Any = None
        if self.reduction > 1:
            self.reduce = PatchEmbedding(
                self.reduction, width, name="reduce", dtype=self.dtype_policy
            )
            self.reduce.build((None, None, None, width))
            self.norm = self._norm.copy(self, "norm")
            self.norm.build((None, None, width))

    def call(
        self, x: Tensor, return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:
        check_map(self, x.shape)
        _, rows, columns, width = ops.shape(x)
        tokens = context = ops.reshape(x, (-1, rows * columns, width))
        if self.reduce is not None:
            context = self.norm(self.reduce(self._whole_patches(x, rows, columns)))
            context = ops.cast(context, self.compute_dtype)
        found: Any = super().call(
            tokens, context, return_attention_scores=return_attention_scores, training=training
        )
        y, weights = found if return_attention_scores else (found, None)
        y = ops.reshape(y, (-1, rows, columns, y.shape[-1]))
        return (y, weights) if return_attention_scores else y

    def _whole_patches(self, x: Tensor, rows: Any, columns: Any) -> Tensor:
        most, more = [], []
        for side in (rows, columns):
            larger = max if isinstance(side, int) else ops.maximum  # unknown until the call
            most.append(larger(side // self.reduction * self.reduction, self.reduction))
            more.append(larger(most[-1] - side, 0))
        return pad_map(x, *more)[:, : most[0], : most[1]]

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return super().compute_output_shape(x_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "reduction": self.reduction,
            "norm": self._norm.serialized(),
        }
