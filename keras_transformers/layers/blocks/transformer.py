"""The blocks of the Transformer: encoder and decoder blocks, and their base class.

A block consists of branches. A branch is a part (attention, or a network), its norm, its residual
connection, and perhaps a layer scale.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import (
    Activation,
    Cache,
    Index,
    LayerOptions,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.cached import CausalSelfAttention
from keras_transformers.layers.attention.multi_head import CrossAttention, SelfAttention
from keras_transformers.layers.base import (
    BaseLayer,
    ReadByBuild,
    Rematerialized,
    output_spec_of_call,
)
from keras_transformers.layers.checks import (
    ELSEWHERE,
    beside,
    check_sequence,
    named,
    rate,
    refuse,
    whole_number,
)
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import (
    KERAS_WITH_ZEROS,
    apply_to_tokens,
    as_mask,
    given_padding,
    is_position_wise,
    mixes_positions,
    takes_mask,
)
from keras_transformers.layers.parts import (
    Prototype,
    arguments_of_call,
    follow_owner,
    norm_prototype,
    own_part,
)
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale


class BranchOptions(LayerOptions, total=False):
    """Keyword arguments of every block."""

    drop_path: float
    layer_scale: float | None


class Block(Rematerialized, BaseLayer):
    """The base class of all blocks: it makes the parts, the norms and the layer scales.

    A number makes a default part, in `build`, and a layer takes its whole place.

    Args:
        num_heads, mlp_dim, dropout, ...: See `EncoderBlock`.

    Attributes:
        default_activation: That of the default feed-forward network.
        has_output_norms: True if each branch of a decoder block has a norm behind its part, too.
        mixer, feed_forward: The parts, once built.
    """

    compute_output_spec = output_spec_of_call

    dropout: Any = ReadByBuild()
    drop_path: Any = ReadByBuild()
    layer_scale: Any = ReadByBuild()

    default_activation = "relu"
    has_output_norms = False
    elsewhere = ELSEWHERE

    def __init__(
        self, num_heads: int | None = None, mlp_dim: int | None = None, dropout: float = 0.0,
        activation: Activation | None = "relu", norm_first: bool = False, mixer: Part | None = None,
        feed_forward: Part | None = None, norm: Part | None = None, drop_path: float = 0.0,
        layer_scale: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self._given_mixer = self._given_feed_forward = None
        if mixer is not None:
            self._given_mixer = own_part(self, "mixer", mixer, num_heads=num_heads)
        if feed_forward is not None:
            network = own_part(self, "feed_forward", feed_forward, mlp_dim=mlp_dim)
            self._given_feed_forward = network
        self.mixer: Any = None
        self.feed_forward: Any = None
        self.num_heads = whole_number(self, "num_heads", num_heads, optional=mixer is not None)
        has_network = feed_forward is not None
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim, optional=has_network)
        self.activation = keras.activations.get(activation)
        default = keras.activations.get(self.default_activation)
        if has_network and self.activation is not default:
            refuse(self, "activation", beside("feed_forward"), repr(activation))
        self._norm = norm_prototype(self, norm)
        self.dropout = rate(self, "dropout", dropout)
        self.norm_first = norm_first
        self.drop_path = rate(self, "drop_path", drop_path)
        self.layer_scale = layer_scale
        self.supports_masking = True

    @property
    def most_positions(self) -> int | None:
        """The longest sequence that the mixer takes; None without a limit."""
        if self._given_mixer is None:
            return None
        most: int | None = getattr(self._given_mixer.layer, "most_positions", None)
        return most

    def given_mixer(self) -> Any:
        """Returns the layer that was given as `mixer`; None where numbers make it."""
        return None if self._given_mixer is None else self._given_mixer.layer

    def given_feed_forward(self) -> Any:
        """Returns the layer that was given as `feed_forward`; None where numbers make it."""
        return None if self._given_feed_forward is None else self._given_feed_forward.layer

    def copied_norm(self, owner: Any, name: str) -> Any:
        """Returns a norm like those of the branches."""
        return self._norm.copy(owner, name)

    def closing_norm(self, owner: Any, name: str) -> Any:
        """Returns the norm that closes a stack of such blocks; None after post-norm."""
        return self._norm.copy(owner, name) if self.norm_first else None

    def _check(self, x_shape: Shape) -> None:
        """Raises ValueError unless the block's own attention can be made for `x`."""
        if self._given_mixer is not None:  # it has shapes of its own, a grid's perhaps
            return
        check_sequence(self, x_shape)
        if x_shape[-1] % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide the width of `x`, "
                f"{x_shape[-1]}. Received: num_heads={self.num_heads}"
            )

    def _make(self, name: str, given: Prototype | None, kind: Any, *arguments: Any) -> Any:
        """Returns a part: the given one, or a layer of a class with these arguments."""
        if given is not None:
            return given.layer
        layer = kind(*arguments, name=name, dtype=self.dtype_policy)
        follow_owner(layer, None)
        return layer

    def _make_norm(self, name: str, x_shape: Shape) -> Any:
        """Returns a built norm."""
        norm = self._norm.copy(self, name)
        norm.build(x_shape)
        return norm

    def _make_scale(self, name: str, x_shape: Shape) -> Any:
        """Returns a built layer scale; None without one."""
        if self.layer_scale is None:
            return None
        scale = LayerScale(self.layer_scale, name=name, dtype=self.dtype_policy)
        scale.build(x_shape)
        return scale

    def _build_mixer(
        self, shapes: Sequence[Shape], kind: Any, *arguments: Any,
        norm_shape: Shape | None = None, output_shape: Shape | None = None
    ) -> None:  # fmt: skip
        """Builds the first branch; by default its part is a layer of a class.

        Args:
            shapes: The shapes of the part's inputs.
            kind: Class of the default part.
            *arguments: Its arguments.
            norm_shape, output_shape: The shapes of the norm's input and of the part's output, if
                they differ from the first of `shapes`.
        """
        self.mixer = self._make("mixer", self._given_mixer, kind, *arguments)
        self.mixer.build(*shapes)
        self._mixer_takes = arguments_of_call(self.mixer)
        self._mixer_takes_mask = takes_mask(self.mixer)
        norm_shape = norm_shape or shapes[0]
        self.mixer_norm = self._make_norm("mixer_norm", norm_shape)
        self.mixer_scale = self._make_scale("mixer_scale", output_shape or norm_shape)

    def _build_cross_attention(
        self, shapes: Sequence[Any], given: Prototype | None, kind: Any, *arguments: Any
    ) -> None:
        """Builds the branch of a decoder that attends to the context."""
        x_shape = shapes[0]
        self.cross_attention = self._make("cross_attention", given, kind, *arguments)
        self.cross_attention.build(*shapes)
        self._cross_attention_takes = arguments_of_call(self.cross_attention)
        self.cross_attention_norm = self._make_norm("cross_attention_norm", x_shape)
        self.cross_attention_scale = self._make_scale("cross_attention_scale", x_shape)
        if self.has_output_norms:
            self.cross_attention_output_norm = self._make_norm(
                "cross_attention_output_norm", x_shape
            )

    def _build_feed_forward(self, x_shape: Shape) -> None:
        """Builds the last branch, and the layers that drop."""
        self.feed_forward = self._make(
            "feed_forward", self._given_feed_forward, FeedForward, self.mlp_dim, self.activation
        )
        self.feed_forward.build(x_shape)
        self.feed_forward_norm = self._make_norm("feed_forward_norm", x_shape)
        self.feed_forward_scale = self._make_scale("feed_forward_scale", x_shape)
        if self.has_output_norms:
            self.feed_forward_output_norm = self._make_norm("feed_forward_output_norm", x_shape)
        self._is_position_wise = is_position_wise(self.feed_forward, len(x_shape))
        self._norm_is_position_wise = is_position_wise(self.feed_forward_norm, len(x_shape))
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.drop_path_layer = DropPath(self.drop_path, dtype=self.dtype_policy)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return tuple(x_shape)

    def _hide_padding(
        self, x: Tensor, padding_mask: Tensor | None, mask: Tensor | None, x_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns `x` with zeros at padding, and which tokens are real, bool `(batch, length)`."""
        masks = [each for each in (padding_mask, mask, x_mask) if each is not None]
        padding: Any = masks[0]
        is_bool = len(masks) == 1 and getattr(padding, "dtype", None) is not None
        is_bool = is_bool and keras.backend.standardize_dtype(padding.dtype) == "bool"
        if not is_bool or padding.shape != x.shape[:-1]:
            padding = given_padding(self, x, padding_mask=padding_mask, mask=mask, x_mask=x_mask)
        if getattr(self.mixer, "ignore_mask", False):  # padding is tokens like others
            return x, None
        real = padding
        for _ in x.shape[len(padding.shape) :]:
            real = ops.expand_dims(real, -1)  # LiteRT has no `[..., None]` of a mask
        return ops.where(real, x, ops.zeros((), x.dtype)), padding

    def _check_options(self, name: str, part: Any, takes: Any, options: dict[str, Any]) -> None:
        """Removes the mask if a part needs none; raises ValueError for what it does not accept."""
        expected = f"left out, for {type(part).__name__} '{part.name}' does not accept it"
        if "mask" in options and not self._mixer_takes_mask:
            if not isinstance(part, KERAS_WITH_ZEROS) and not is_position_wise(part):
                hint = "; a layer whose `call` takes `mask` has the attribute `takes_mask = True`"
                refuse(self, "padding_mask", expected + hint, "one")
            del options["mask"]
        for key in options.keys() - takes:
            refuse(self, key, expected, "one")

    def _normed(self, norm: Any, x: Tensor, padding: Tensor | None) -> Tensor:
        """Returns `x` after a norm, in the dtype of `x`."""
        if padding is None or self._norm_is_position_wise:
            return ops.cast(norm(x), x.dtype)
        return ops.cast(apply_to_tokens(self, "norm", norm, x, padding), x.dtype)

    def _drop(self, x: Tensor) -> Tensor:
        """Applies dropout and stochastic depth to the output of a branch."""
        return self.drop_path_layer(self.dropout_layer(x, training=True), training=True)

    def _finish(
        self, residual: Tensor, x: Tensor, norm: Any, scale: Any, padding: Tensor | None,
        training: bool | None
    ) -> Tensor:  # fmt: skip
        """Ends a branch: layer scale, dropout, residual connection, and norm after post-norm."""
        if scale is not None:
            x = scale(x)
        if training:
            x = self._drop(x)
        x = residual + ops.cast(x, residual.dtype)
        if self.norm_first:
            return x
        return ops.cast(norm(x), x.dtype) if padding is None else self._normed(norm, x, padding)

    def _feed(self, x: Tensor, padding: Tensor | None, training: bool | None) -> Tensor:
        """The last branch: the feed-forward network."""
        residual, norm = x, self.feed_forward_norm
        if self.norm_first:
            x = self._normed(norm, x, padding)
        if padding is None or self._is_position_wise:
            x = self.feed_forward(x, training=training)
        else:
            network = self.feed_forward
            x = apply_to_tokens(self, "feed_forward", network, x, padding, training=training)
        if self.has_output_norms:
            x = self._normed(self.feed_forward_output_norm, x, padding)
        return self._finish(residual, x, norm, self.feed_forward_scale, padding, training)

    def get_config(self) -> dict[str, Any]:
        mixer, feed_forward = self._given_mixer, self._given_feed_forward
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "mixer": None if mixer is None else mixer.serialized(),
            "feed_forward": None if feed_forward is None else feed_forward.serialized(),
            "norm": self._norm.serialized(),
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
        }


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
        self._build_mixer([x_shape], SelfAttention, self.num_heads)
        self._build_feed_forward(x_shape)

    def call(
        self, x: Tensor, attention_mask: Tensor | None = None, padding_mask: Tensor | None = None,
        positions: Tensor | None = None, attention_bias: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None,
        mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        padding = None
        if padding_mask is not None or mask is not None or x_mask is not None:
            x, padding = self._hide_padding(x, padding_mask, mask, x_mask)
        inputs = {"attention_mask": attention_mask, "attention_bias": attention_bias}
        inputs |= {"positions": positions, "mask": padding}
        options: dict[str, Any] = {name: y for name, y in inputs.items() if y is not None}
        if return_attention_scores:
            options["return_attention_scores"] = True
        if options:
            self._check_options("mixer", self.mixer, self._mixer_takes, options)

        residual = x
        if self.norm_first:
            x = self._normed(self.mixer_norm, x, padding)
        if padding is None or "mask" in options:
            x = self.mixer(x, training=training, **options)
        else:
            x = apply_to_tokens(self, "mixer", self.mixer, x, padding, training=training, **options)
        x, weights = x if isinstance(x, tuple) else (x, None)
        if self.mixer_scale is not None:
            x = self.mixer_scale(x)
        if training:
            x = self._drop(x)
        x = residual + ops.cast(x, residual.dtype)
        if not self.norm_first:
            x = self._normed(self.mixer_norm, x, padding)

        residual = x
        if self.norm_first:
            x = self._normed(self.feed_forward_norm, x, padding)
        if padding is None or self._is_position_wise:
            x = self.feed_forward(x, training=training)
        else:
            network = self.feed_forward
            x = apply_to_tokens(self, "feed_forward", network, x, padding, training=training)
        x = x[0] if isinstance(x, tuple) else x
        if self.feed_forward_scale is not None:
            x = self.feed_forward_scale(x)
        if training:
            x = self._drop(x)
        x = residual + ops.cast(x, residual.dtype)
        if not self.norm_first:
            x = self._normed(self.feed_forward_norm, x, padding)
        return (x, weights) if return_attention_scores else x


@keras.saving.register_keras_serializable("keras_transformers")
class FirstEncoderBlock(EncoderBlock):
    """An `EncoderBlock` without the norm of its first branch.

    `X' = X + MHA(X)`, `X'' = X' + FFN(LN(X'))`: where the embedding ends in a norm, another one
    would be the same twice (Warner et al. 2024, "ModernBERT", https://arxiv.org/abs/2412.13663,
    section 2.1.1).

    Args:
        num_heads, mlp_dim, mixer, norm, ...: See `EncoderBlock`.

    Call arguments, returns: see `EncoderBlock`.

    Raises:
        ValueError: As `EncoderBlock`, and if `norm_first` is False.

    Example: first of a pre-norm stack.
    >>> import keras, numpy as np
    >>> from keras_transformers.layers import EncoderBlock, FirstEncoderBlock
    >>> from keras_transformers.models import TextEmbedding, TextEncoder
    >>> embedding = TextEmbedding(31, 16, norm=keras.layers.LayerNormalization())
    >>> blocks = [kind(2, 32, norm_first=True) for kind in (FirstEncoderBlock, EncoderBlock)]
    >>> model = TextEncoder(num_layers=2, block=blocks, embedding=embedding)
    >>> tuple(model(np.array([[2, 5, 7, 3]])).shape)
    (1, 4, 16)
    """

    def build(self, x_shape: Shape) -> None:
        if not self.norm_first:
            refuse(self, "norm_first", "True: the norm that is left out stands before", False)
        super().build(x_shape)

    def _make_norm(self, name: str, x_shape: Shape) -> Any:
        if name == "mixer_norm":
            return keras.layers.Identity(name=name, dtype=self.dtype_policy)
        return super()._make_norm(name, x_shape)


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
        self._given_cross_attention = None
        if cross_attention is not None:
            part = own_part(self, "cross_attention", cross_attention)
            self._given_cross_attention = part
        self.cross_attention: Any = None
        self.causal = causal
        given = self.given_mixer()
        if mixer is not None and causal != bool(getattr(given, "causal", False)):
            expected = f"{'' if causal else 'not '}causal, as `causal` is {causal}"
            refuse(self, "mixer", expected, type(given).__name__)

    def build(self, x_shape: Shape, context_shape: Shape | None = None) -> None:
        self._check(x_shape)
        attention = CausalSelfAttention if self.causal else SelfAttention
        self._build_mixer([x_shape], attention, self.num_heads)
        if self.has_output_norms:
            self.mixer_output_norm = self._make_norm("mixer_output_norm", x_shape)
        if context_shape is not None:
            given = self._given_cross_attention
            if given is None and self.num_heads is None:
                refuse(self, "num_heads", "given, for the attention to `context`", None)
            self._build_cross_attention(
                [x_shape, context_shape], given, CrossAttention, self.num_heads
            )
        elif self._given_cross_attention is not None:
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
        x = ops.cast(x, self.compute_dtype)
        padding = None
        if padding_mask is not None or mask is not None or x_mask is not None:
            x, padding = self._hide_padding(x, padding_mask, mask, x_mask)
        inputs = {"attention_mask": attention_mask, "attention_bias": attention_bias}
        inputs |= {"positions": positions, "mask": padding}
        options: dict[str, Any] = {name: y for name, y in inputs.items() if y is not None}
        if return_attention_scores and context is None:
            options["return_attention_scores"] = True
        if options:
            self._check_options("mixer", self.mixer, self._mixer_takes, options)

        residual = x
        if self.norm_first:
            x = self._normed(self.mixer_norm, x, padding)
        if padding is None or "mask" in options:
            x = self.mixer(x, training=training, **options)
        else:
            x = apply_to_tokens(self, "mixer", self.mixer, x, padding, training=training, **options)
        x, weights = x if isinstance(x, tuple) else (x, None)
        if self.has_output_norms:
            x = self._normed(self.mixer_output_norm, x, padding)
        x = self._finish(residual, x, self.mixer_norm, self.mixer_scale, padding, training)

        if context is not None:
            x, weights = self._attend_to_context(
                x, context, context_mask, positions, context_positions, padding,
                return_attention_scores, training
            )  # fmt: skip

        residual, norm = x, self.feed_forward_norm
        if self.norm_first:
            x = self._normed(norm, x, padding)
        if padding is None or self._is_position_wise:
            x = self.feed_forward(x, training=training)
        else:
            network = self.feed_forward
            x = apply_to_tokens(self, "feed_forward", network, x, padding, training=training)
        if self.has_output_norms:
            x = self._normed(self.feed_forward_output_norm, x, padding)
        x = self._finish(residual, x, norm, self.feed_forward_scale, padding, training)
        return (x, weights) if return_attention_scores else x

    def _attend_to_context(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None, positions: Tensor | None,
        context_positions: Tensor | None, padding: Tensor | None, return_attention_scores: bool,
        training: bool | None
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The second branch: attention to the context; also returns its weights, or None."""
        inputs = {"positions": positions, "context_positions": context_positions}
        inputs["context"] = context
        if context_mask is not None:
            dtype = getattr(context_mask, "dtype", None)
            if dtype is None or keras.backend.standardize_dtype(dtype) != "bool":
                context_mask = as_mask(context_mask, named(self, "context_mask"))
            is_pairs = len(context_mask.shape) > 2
            inputs["attention_mask" if is_pairs else "context_mask"] = context_mask
        options: dict[str, Any] = {name: y for name, y in inputs.items() if y is not None}
        if return_attention_scores:
            options["return_attention_scores"] = True
        part, norm = self.cross_attention, self.cross_attention_norm
        if options.keys() != {"context"} or "context" not in self._cross_attention_takes:
            self._check_options("cross_attention", part, self._cross_attention_takes, options)

        residual = x
        if self.norm_first:
            x = self._normed(norm, x, padding)
        x = part(x, training=training, **options)
        x, weights = x if isinstance(x, tuple) else (x, None)
        if self.has_output_norms:
            x = self._normed(self.cross_attention_output_norm, x, padding)
        scale = self.cross_attention_scale
        return self._finish(residual, x, norm, scale, padding, training), weights

    def compute_output_shape(self, x_shape: Shape, context_shape: Shape | None = None) -> Shape:
        return super().compute_output_shape(x_shape)

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
        residual = x
        if self.norm_first:
            x = self._normed(self.mixer_norm, x, None)
        if attention_bias is None:
            x, cache = self.mixer.step(x, cache, index, visible)
        else:
            x, cache = self.mixer.step(x, cache, index, visible, attention_bias)
        if self.has_output_norms:
            x = self._normed(self.mixer_output_norm, x, None)
        x = self._finish(residual, x, self.mixer_norm, self.mixer_scale, None, None)
        weights = None
        if context_cache is not None:
            residual, norm = x, self.cross_attention_norm
            if self.norm_first:
                x = self._normed(norm, x, None)
            x, weights = self.cross_attention.step(x, context_cache, context_mask)
            if self.has_output_norms:
                x = self._normed(self.cross_attention_output_norm, x, None)
            x = self._finish(residual, x, norm, self.cross_attention_scale, None, None)

        residual, norm = x, self.feed_forward_norm
        if self.norm_first:
            x = self._normed(norm, x, None)
        x = getattr(self.feed_forward, "step", self.feed_forward)(x)
        if self.has_output_norms:
            x = self._normed(self.feed_forward_output_norm, x, None)
        x = self._finish(residual, x, norm, self.feed_forward_scale, None, None)
        return x, cache, weights

    def prefill(self, x: Tensor, cache: Cache, beams: int) -> tuple[Tensor, Cache]:
        """The first tokens at once, without a context; see `CausalSelfAttention.prefill`."""
        residual = x
        if self.norm_first:
            x = self._normed(self.mixer_norm, x, None)
        x, cache = self.mixer.prefill(x, cache, beams)
        if self.has_output_norms:
            x = self._normed(self.mixer_output_norm, x, None)
        x = self._finish(residual, x, self.mixer_norm, self.mixer_scale, None, None)
        return self._feed(x, None, None), cache

    def get_config(self) -> dict[str, Any]:
        given = self._given_cross_attention
        return {
            **super().get_config(),
            "cross_attention": None if given is None else given.serialized(),
            "causal": self.causal,
        }


class DecoderParts(BranchOptions, total=False):
    """Further keyword arguments of `DecoderBlock`."""

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

    has_output_norms = True

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
