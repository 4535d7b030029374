"""The encoder block, and what every block computes: residuals and norms, wired."""

from typing import Any

import keras

from keras_transformers.annotations import MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.multi_head import SelfAttention
from keras_transformers.layers.blocks.settings import BlockSettings
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.masks import given_padding, hide_padding


class Block(BlockSettings):
    """What all blocks compute: `x` and a branch of it, added."""

    def _residual(
        self, x: Tensor, name: str, function: Any, *arguments: Any, **options: Any
    ) -> tuple[Tensor, Any]:
        """Post-norm `LN(x + f(x))` or pre-norm `x + f(LN(x))`, and what else `f` gives, or None.

        `f` is, or is of, the part called `name`; `options` say whether it trains.
        """
        norm, scale = getattr(self, f"{name}_norm"), getattr(self, f"{name}_scale")
        y = function(norm(x) if self.norm_first else x, *arguments, **options)
        y, other = y if isinstance(y, tuple) else (y, None)
        y = y if scale is None else scale(y)
        y = self._drop(y) if options.get("training") else y
        return (x + y if self.norm_first else norm(x + y)), other

    def _drop(self, y: Tensor) -> Tensor:
        return self.drop_path_layer(self.dropout_layer(y, training=True), training=True)

    def _options(self, name: str, **options: Any) -> dict[str, Any]:
        """Those of a part's call that are neither None nor False; unknown ones are refused."""
        said = {key: x for key, x in options.items() if x is not None and x is not False}
        for key in said.keys() - getattr(self, f"_{name}_takes"):
            part, key = getattr(self, name), "padding_mask" if key == "mask" else key
            expected = f"left out, for {type(part).__name__} '{part.name}' knows of none"
            refuse(self, key, expected, "one")
        return said

    def _without_padding(
        self, x: Tensor, padding_mask: Tensor | None, mask: Tensor | None, x_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """`x` with zeros at padding, and bool `(batch, length)`, True = real token, or None."""
        if padding_mask is None and mask is None and x_mask is None:
            return x, None
        padding = given_padding(self, x, padding_mask=padding_mask, mask=mask, x_mask=x_mask)
        if getattr(self.mixer, "ignore_mask", False):  # it takes padding for tokens like others
            return x, padding
        return hide_padding(x, padding), padding


@keras.saving.register_keras_serializable("keras_transformers")
class EncoderBlock(Block):
    """Self-attention and a feed-forward network, each with its residual connection and norm.

    Post-norm: `H' = LN(X + MHA(X))`, `H = LN(H' + FFN(H'))` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Pre-norm: `X' = X + MHA(LN(X))`,
    `X'' = X' + FFN(LN(X'))` (Xiong et al. 2020, https://arxiv.org/abs/2002.04745); a stack of
    pre-norm blocks needs one more norm at its end. An implicit Keras mask is used and carried on.

    Args:
        num_heads: Number of heads of the attention; must divide the width of `x`. None beside a
            `mixer`.
        mlp_dim: Width of the feed-forward network's hidden layer. None beside a `feed_forward`.
        dropout: Rate on the output of each branch.
        activation: Activation of `FeedForward(mlp_dim, activation)`.
        norm_first: True for pre-norm.
        mixer: What mixes the tokens in place of `SelfAttention(num_heads)`: a layer from `(batch,
            length, hidden_dim)` to the same shape, for instance `FourierMixing()`, or an attention
            with settings of its own, `SelfAttention(8, dropout=0.1, position=RotaryEmbedding())`.
            The block makes its own copy, so that one object serves a whole stack.
        feed_forward: What stands in the place of `FeedForward(mlp_dim, activation)`, for instance
            `GatedFeedForward(512, "silu")`; also copied.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-6)`, for
            instance `keras.layers.RMSNormalization()`; also copied, for each branch.
        drop_path: Rate of dropping a whole branch for a sample (`DropPath`).
        layer_scale: Start of a learned factor on each branch (`LayerScale`), or None.

    Call arguments:
        x: `(batch, length, hidden_dim)`; or a grid, `(batch, rows, columns, hidden_dim)`, with a
            mixer and a feed-forward network that take it.
        attention_mask: Optional bool, `(length, length)` or `(batch, length, length)`; True =
            attend. See `MultiHeadAttention`.
        padding_mask: Optional bool `(batch, length)`; True = real token. What stands at padding
            changes nothing, NaN and infinity neither: a padded row is one of zeros.
        positions, attention_bias: Optional; see `SelfAttention`. One bias may serve a whole stack.
        return_attention_scores, training: Whether to return the weights too; whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`, and the weights `(batch, heads, length, length)` on request.

    Raises:
        ValueError: If a number and an object are given for the same part, or neither; `x` is not of
            rank 3, `num_heads` does not divide its width, a mask does not fit, or the mixer knows
            of no such argument.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import EncoderBlock
    >>> block = EncoderBlock(num_heads=2, mlp_dim=32, norm_first=True)
    >>> tuple(block(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def build(self, x_shape: Shape) -> None:
        self._check(x_shape)
        self._build_branch("mixer", (SelfAttention, self.num_heads), x_shape)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, attention_mask: Tensor | None = None, padding_mask: Tensor | None = None,
        positions: Tensor | None = None, attention_bias: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
        mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x, padding = self._without_padding(x, padding_mask, mask, x_mask)
        options = self._options(
            "mixer", attention_mask=attention_mask, attention_bias=attention_bias, mask=padding,
            positions=positions, return_attention_scores=return_attention_scores,
        )  # fmt: skip
        x, weights = self._residual(x, "mixer", self.mixer, training=training, **options)
        x, _ = self._residual(x, "feed_forward", self.feed_forward, training=training)
        return (x, weights) if return_attention_scores else x
