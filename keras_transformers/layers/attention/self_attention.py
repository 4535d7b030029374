"""Attention of a sequence to itself."""

import keras

from keras_transformers.annotations import MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.multi_head import MultiHeadAttention
from keras_transformers.layers.masks import given_padding
from keras_transformers.layers.positions.sequence import with_positions


@keras.saving.register_keras_serializable("keras_transformers")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself.

    Queries, keys and values are projections of the same `x` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.2.3).

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool `(batch, length, length)`; True = attend. See
            `MultiHeadAttention`.
        attention_bias: Optional, added to the scores.
        positions: Optional, `(length, hidden_dim)` or `(batch, length, hidden_dim)`, added to what
            queries and keys are made of, not to the values (Carion et al. 2020,
            https://arxiv.org/abs/2005.12872, section A.3).
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, length)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SelfAttention
    >>> tuple(SelfAttention(num_heads=2)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    takes_mask = True

    causal = False
    input_names = ("x", "x", "x")

    def build(self, x_shape: Shape) -> None:
        super().build(x_shape)

    def call(
        self, x: Tensor, attention_mask: Tensor | None = None, attention_bias: Tensor | None = None,
        positions: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        if self.position is not None:
            x = self.position.fits(x, self.causal)
        if mask is not None or x_mask is not None:
            x_mask = given_padding(self, x, mask=mask, x_mask=x_mask)
        placed = x if positions is None else with_positions(self, "positions", x, positions)
        return super().call(
            placed,
            x,
            placed,
            attention_mask=attention_mask,
            use_causal_mask=self.causal,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            training=training,
            value_mask=x_mask,
        )

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return super().compute_output_shape(x_shape)
