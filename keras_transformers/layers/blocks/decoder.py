"""The decoder block, and the decoder block with a norm on either side of each branch."""

from typing import Any, Unpack, cast

import keras

from keras_transformers.annotations import (
    Activation,
    Cache,
    Index,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.cached import CausalSelfAttention, CrossAttention
from keras_transformers.layers.attention.multi_head import SelfAttention
from keras_transformers.layers.blocks.encoder import Block, BranchOptions, in_dtype_of
from keras_transformers.layers.checks import named, refuse, whole_number
from keras_transformers.layers.masks import as_mask, mixes_positions


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


class DecoderParts(BranchOptions, total=False):
    """What `DecoderBlock` takes by name as well."""

    mixer: Part | None
    cross_attention: Part | None
    feed_forward: Part | None
    norm: Part | None
    causal: bool


@keras.saving.register_keras_serializable("keras_transformers")
class SandwichDecoderBlock(DecoderBlock):
    """A `DecoderBlock` that normalises what goes into each branch and what comes out of it.

    `X' = X + LN(MHA(LN(X)))`, `X'' = X' + LN(FFN(LN(X')))` ("Sandwich-LN", Ding et al. 2021,
    https://arxiv.org/abs/2105.13290, section 2.4; Gemma 2). A stack of such blocks needs one more
    norm at its end.

    Args:
        num_heads, mlp_dim, mixer, norm, ...: See `DecoderBlock`; `norm_first` is True.

    Call arguments, returns: see `DecoderBlock`.

    Raises:
        ValueError: As `DecoderBlock`, and if `norm_first` is False.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SandwichDecoderBlock
    >>> block = SandwichDecoderBlock(num_heads=2, mlp_dim=32)
    >>> tuple(block(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        dropout: float = 0.0,
        activation: Activation | None = "relu",
        norm_first: bool = True,
        **kwargs: Unpack[DecoderParts],
    ) -> None:
        super().__init__(num_heads, mlp_dim, dropout, activation, norm_first, **kwargs)
        if not norm_first:
            refuse(self, "norm_first", "True, for there is a norm on either side", norm_first)

    def _build_branch(self, name: str, default: Any, *shapes: Any, **others: Any) -> None:
        super()._build_branch(name, default, *shapes, **others)
        output_norm = self.copied_norm(self, f"{name}_output_norm")
        output_norm.build(shapes[0])
        setattr(self, f"{name}_output_norm", output_norm)

    def _residual(
        self, x: Tensor, name: str, function: Any, *arguments: Any, **options: Any
    ) -> tuple[Tensor, Any]:
        """`x + LN(f(LN(x)))`, and what else `f` gives, or None."""
        padding, scale = options.get("padding"), getattr(self, f"{name}_scale")
        y = self._normed(x, f"{name}_norm", padding)
        y, other = self._applied(y, name, function, *arguments, **options)
        y = self._normed(y, f"{name}_output_norm", padding)
        y = y if scale is None else scale(y)
        y = self._drop(y) if options.get("training") else y
        return x + in_dtype_of(x, y), other
