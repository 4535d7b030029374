"""The encoder block and the decoder block: residuals and norms, wired."""

from typing import Any, Unpack, cast

import keras
from keras import ops

from keras_transformers.annotations import (
    Activation,
    Cache,
    Index,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.decoder import CausalSelfAttention, CrossAttention
from keras_transformers.layers.attention.self_attention import SelfAttention
from keras_transformers.layers.blocks.settings import BlockSettings, BranchOptions
from keras_transformers.layers.errors import named, refuse, whole_number
from keras_transformers.layers.masks import (
    KERAS_WITH_ZEROS,
    apply_to_tokens,
    as_mask,
    given_padding,
    hide_padding,
    is_position_wise,
    mixes_positions,
    takes_mask,
)


def in_dtype_of(x: Tensor, y: Tensor) -> Any:
    """Returns `y` in the dtype of `x`: a part with a dtype of its own gives another."""
    return y if y.dtype == x.dtype else ops.cast(y, x.dtype)


class Block(BlockSettings):
    """What all blocks compute: `x` and a branch of it, added."""

    def _residual(
        self, x: Tensor, name: str, function: Any, *arguments: Any, **options: Any
    ) -> tuple[Tensor, Any]:
        """Post-norm `LN(x + f(x))` or pre-norm `x + f(LN(x))`, and what else `f` gives, or None.

        `f` is, or is of, the part called `name`. `options` say whether it trains, and `padding`,
        bool `(batch, length)` or None, which tokens are real.
        """
        padding, scale = options.get("padding"), getattr(self, f"{name}_scale")
        y = self._normed(x, f"{name}_norm", padding) if self.norm_first else x
        y, other = self._applied(y, name, function, *arguments, **options)
        y = y if scale is None else scale(y)
        y = self._drop(y) if options.get("training") else y
        y = x + in_dtype_of(x, y)
        return (y if self.norm_first else self._normed(y, f"{name}_norm", padding)), other

    def _applied(
        self, x: Tensor, name: str, function: Any, *arguments: Any, padding: Tensor | None = None,
        **options: Any
    ) -> tuple[Tensor, Any]:  # fmt: skip
        """What the function of a branch gives, and what else, or None; see `_residual`."""
        masked = name == "cross_attention" or "mask" in options or arguments
        if padding is None or masked or not isinstance(function, keras.layers.Layer):
            y = function(x, *arguments, **options)
        else:
            y = apply_to_tokens(self, name, function, x, padding, **options)
        return y if isinstance(y, tuple) else (y, None)

    def _normed(self, x: Tensor, name: str, padding: Tensor | None) -> Tensor:
        """`x` after the norm called `name`, in the dtype of `x`."""
        return in_dtype_of(x, apply_to_tokens(self, "norm", getattr(self, name), x, padding))

    def _drop(self, y: Tensor) -> Tensor:
        return self.drop_path_layer(self.dropout_layer(y, training=True), training=True)

    def _options(self, name: str, **options: Any) -> dict[str, Any]:
        """Those of a part's call that are neither None nor False; unknown ones are refused."""
        said = {key: x for key, x in options.items() if x is not None and x is not False}
        part = getattr(self, name)
        known = f"left out, for {type(part).__name__} '{part.name}' knows of none"
        if "mask" in said and not takes_mask(part):
            if not isinstance(part, KERAS_WITH_ZEROS) and not is_position_wise(part):
                hint = "; a layer whose `call` takes `mask` has the attribute `takes_mask = True`"
                refuse(self, "padding_mask", known + hint, "one")
            del said["mask"]
        for key in said.keys() - getattr(self, f"_{name}_takes"):
            refuse(self, key, known, "one")
        return said

    def _without_padding(
        self, x: Tensor, padding_mask: Tensor | None, mask: Tensor | None, x_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """`x` with zeros at padding, and bool `(batch, length)`, True = real token, or None."""
        if padding_mask is None and mask is None and x_mask is None:
            return x, None
        padding = given_padding(self, x, padding_mask=padding_mask, mask=mask, x_mask=x_mask)
        if getattr(self.mixer, "ignore_mask", False):  # padding is tokens like others
            return x, None
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
            `GatedFeedForward(512, "silu")`; also copied. A layer of one's own whose `call` takes a
            padding mask as `mask` says so by an attribute, `takes_mask = True`; of Keras's layers
            LSTM, GRU and BatchNormalization, for instance, get the mask. Any other part gets zeros
            at padding.
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
            rank 3, `num_heads` does not divide its width, a mask does not fit, the mixer knows
            of no such argument, or there is a mask and a part sums over positions without one, as
            `GroupNormalization` does.

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
        options |= {"training": training, "padding": padding}
        x, weights = self._residual(x, "mixer", self.mixer, **options)
        x, _ = self._residual(
            x, "feed_forward", self.feed_forward, training=training, padding=padding
        )
        return (x, weights) if return_attention_scores else x


@keras.saving.register_keras_serializable("keras_transformers")
class DecoderBlock(Block):
    """Self-attention, causal by default, attention to a context, and a feed-forward network.

    Each has its residual connection and norm (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Built without a context it has no
    cross-attention: the block of a decoder-only language model. A call takes no cache: token by
    token, `start_cache` and `step` decode.

    Args:
        num_heads: Number of heads of both attentions, or of the one that is not given.
        mlp_dim, dropout, activation, norm_first, feed_forward, norm: See `EncoderBlock`, whose
            `drop_path` and `layer_scale` are taken too, by name.
        mixer: What mixes the tokens in place of `CausalSelfAttention(num_heads)`.
        cross_attention: What attends to the context in place of `CrossAttention(num_heads)`.
        causal: Whether no token sees a later one, which a `mixer` must say of itself too. False for
            a set without order, as DETR's queries are (Carion et al. 2020,
            https://arxiv.org/abs/2005.12872, section 3.2).

    Call arguments:
        x, attention_mask, padding_mask, attention_bias, training, mask, x_mask: See `EncoderBlock`;
            masks and bias are those of the self-attention, on top of the causal mask.
        context: `(batch, context_length, context_width)`, or None.
        context_mask: Optional bool, `(batch, context_length)` for padding or
            `(batch, length, context_length)`; filled in by Keras from an implicit mask.
        positions: Optional, added to what queries and keys of the self-attention and queries of the
            cross-attention are made of; see `SelfAttention`.
        context_positions: The same for the keys of the cross-attention; see `CrossAttention`.
        return_attention_scores: Whether to return the weights of the cross-attention (of the
            self-attention where there is no context) too.

    Returns:
        `(batch, length, hidden_dim)`, on request with weights `(batch, heads, length, keys)`.

    Raises:
        ValueError: As `EncoderBlock`, and if a context is given or not, unlike when it was built.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DecoderBlock
    >>> block = DecoderBlock(num_heads=2, mlp_dim=32)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
    >>> tuple(block(x, context).shape)
    (3, 5, 8)
    """

    def __init__(
        self, num_heads: int | None = None, mlp_dim: int | None = None, dropout: float = 0.0,
        activation: Activation | None = "relu", norm_first: bool = False, mixer: Part | None = None,
        cross_attention: Part | None = None, feed_forward: Part | None = None,
        norm: Part | None = None, causal: bool = True, **kwargs: Unpack[BranchOptions]
    ) -> None:  # fmt: skip
        across = mixer is not None and cross_attention is None  # `num_heads` is of that attention
        settings = (dropout, activation, norm_first, mixer, feed_forward, norm)
        super().__init__(None if across else num_heads, mlp_dim, *settings, **kwargs)
        if across:
            self.num_heads = whole_number(self, "num_heads", num_heads, optional=True)
        self._given = {**self._given, **self._part("cross_attention", cross_attention)}
        self.cross_attention = None
        self.causal = causal
        given = self._given["mixer"].layer if mixer is not None else None
        if mixer is not None and causal != bool(getattr(given, "causal", False)):
            expected = f"{'' if causal else 'not '}causal, as `causal` is {causal}"
            refuse(self, "mixer", expected, type(given).__name__)

    def build(self, x_shape: Shape, context_shape: Shape | None = None) -> None:
        self._check(x_shape)
        attention = CausalSelfAttention if self.causal else SelfAttention
        self._build_branch("mixer", (attention, self.num_heads), x_shape)
        if context_shape is not None:
            if "cross_attention" not in self._given and self.num_heads is None:
                refuse(self, "num_heads", "given, for the attention to `context`", None)
            default = (CrossAttention, self.num_heads)
            self._build_branch("cross_attention", default, x_shape, context_shape)
        elif "cross_attention" in self._given:
            refuse(self, "context", "given, for the `cross_attention`", None)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, context: Tensor | None = None, attention_mask: Tensor | None = None,
        context_mask: Tensor | None = None, padding_mask: Tensor | None = None,
        positions: Tensor | None = None, context_positions: Tensor | None = None,
        attention_bias: Tensor | None = None, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        if (context is None) != (self.cross_attention is None):
            expected, received = ("given", "None") if context is None else ("None", "a tensor")
            refuse(self, "context", f"{expected}, as when the block was built", received)
        x, padding = self._without_padding(x, padding_mask, mask, x_mask)
        options = self._options(
            "mixer", attention_mask=attention_mask, attention_bias=attention_bias, mask=padding,
            positions=positions,
            return_attention_scores=return_attention_scores and context is None,
        )  # fmt: skip
        options |= {"training": training, "padding": padding}
        x, weights = self._residual(x, "mixer", self.mixer, **options)
        if context is not None:
            options = self._options(
                "cross_attention", context=context, **self._context_mask(context_mask),
                positions=positions, context_positions=context_positions,
                return_attention_scores=return_attention_scores,
            )  # fmt: skip
            options |= {"training": training, "padding": padding}
            x, weights = self._residual(x, "cross_attention", self.cross_attention, **options)
        x, _ = self._residual(
            x, "feed_forward", self.feed_forward, training=training, padding=padding
        )
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(self, x_shape: Shape, context_shape: Shape | None = None) -> Shape:
        return super().compute_output_shape(x_shape)

    def _context_mask(self, mask: Tensor | None) -> dict[str, Tensor]:
        """The argument of the cross-attention that a mask of padding, or of pairs, is."""
        if mask is None:
            return {}
        mask = as_mask(mask, named(self, "context_mask"))
        return {"context_mask" if len(mask.shape) == 2 else "attention_mask": mask}

    def start_cache(self, batch: Any, beams: int, max_length: Index) -> Cache:
        """Empty keys and values of the self-attention; see `CausalSelfAttention.start_cache`."""
        if not hasattr(self.mixer, "start_cache"):
            refuse(self, "mixer", "able to decode token by token", type(self.mixer).__name__)
        if mixes_positions(self.feed_forward):  # it would see one token without those before
            received = type(self.feed_forward).__name__
            refuse(self, "feed_forward", "position-wise, to decode token by token", received)
        return self.mixer.start_cache(batch, beams, max_length)

    def step(
        self, x: Tensor, cache: Cache, index: Index, visible: Tensor | None = None,
        context_cache: Cache | None = None, context_mask: Tensor | None = None,
        attention_bias: Tensor | None = None
    ) -> tuple[Tensor, Cache, Tensor | None]:  # fmt: skip
        """Decodes one token of `beams` sequences for each batch element.

        Args:
            x: `(batch, beams, hidden_dim)`.
            cache: From `start_cache`, filled by the steps before.
            index, visible: See `CausalSelfAttention.step`.
            context_cache: `cross_attention.project_context(context)`, or None.
            context_mask: Optional bool `(batch, context_length)`.
            attention_bias: Optional; see `CausalSelfAttention.step`.

        Returns:
            `(batch, beams, hidden_dim)`, the cache with this token in it, and the weights of the
            cross-attention `(batch, heads, beams, context_length)`, None without a context.
        """
        bias = () if attention_bias is None else (attention_bias,)
        x, cache = self._residual(x, "mixer", self.mixer.step, cache, index, visible, *bias)
        weights = None
        if context_cache is not None:
            attend = cast(Any, self.cross_attention).step
            x, weights = self._residual(x, "cross_attention", attend, context_cache, context_mask)
        feed = getattr(self.feed_forward, "step", self.feed_forward)
        x, _ = self._residual(x, "feed_forward", feed)
        return x, cache, weights

    def prefill(self, x: Tensor, cache: Cache, beams: int) -> tuple[Tensor, Cache]:
        """The first tokens at once, without a context; see `CausalSelfAttention.prefill`."""
        x, cache = self._residual(x, "mixer", self.mixer.prefill, cache, beams)
        x, _ = self._residual(x, "feed_forward", self.feed_forward)
        return x, cache

    def get_config(self) -> dict[str, Any]:
        across = self._serialized("cross_attention")
        return {**super().get_config(), "cross_attention": across, "causal": self.causal}
