"""The encoder block, and the base of all blocks: branches with residuals and norms."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import (
    Activation,
    LayerOptions,
    MaybeWeights,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.layers.attention.multi_head import SelfAttention
from keras_transformers.layers.base import Arguments, Composite, Traced
from keras_transformers.layers.checks import beside, check_sequence, rate, refuse, whole_number
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import (
    KERAS_WITH_ZEROS,
    apply_to_tokens,
    given_padding,
    hide_padding,
    is_position_wise,
    takes_mask,
)
from keras_transformers.layers.parts import (
    Prototype,
    arguments_of_call,
    follow_owner,
    norm_prototype,
    part_or_numbers,
)
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale
from keras_transformers.layers.rematerialization import Rematerialized


class BranchOptions(LayerOptions, total=False):
    """What every block takes by name as well."""

    drop_path: float
    layer_scale: float | None


class SwinOptions(BranchOptions, total=False):
    """What a `SwinBlock` takes by name as well."""

    dropout: float
    feed_forward: Part | None


class PoolingOptions(SwinOptions, total=False):
    """What a `PoolingBlock` takes by name as well."""

    norm: Part | None
    mixer: None


def in_dtype_of(x: Tensor, y: Tensor) -> Any:
    """Returns `y` in the dtype of `x`: a part with a dtype of its own gives another."""
    return y if y.dtype == x.dtype else ops.cast(y, x.dtype)


class Block(Traced, Arguments, Composite, Rematerialized, keras.layers.Layer):
    """The base of all blocks: branches of parts, each with its norm and residual connection.

    A number makes a default part, in `build`, and an object takes its whole place.

    Args:
        num_heads, mlp_dim, dropout, ...: See `EncoderBlock`.

    Attributes:
        default_activation: That of the default feed-forward network.
        mixer, feed_forward: The parts, once built.
    """

    default_activation = "relu"

    def __init__(
        self,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        dropout: float = 0.0,
        activation: Activation | None = "relu",
        norm_first: bool = False,
        mixer: Part | None = None,
        feed_forward: Part | None = None,
        norm: Part | None = None,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._given: dict[str, Prototype] = {
            **self._part("mixer", mixer, num_heads=num_heads),
            **self._part("feed_forward", feed_forward, mlp_dim=mlp_dim),
        }
        self.mixer: Any = None
        self.feed_forward: Any = None
        self.num_heads = whole_number(self, "num_heads", num_heads, optional=mixer is not None)
        network = feed_forward is not None
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim, optional=network)
        self.activation = keras.activations.get(activation)
        default = keras.activations.get(self.default_activation)
        if network and self.activation is not default:
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
        mixer = self._given.get("mixer")
        most: int | None = None if mixer is None else getattr(mixer.layer, "most_positions", None)
        return most

    def _part(self, argument: str, given: Any, **numbers: Any) -> dict[str, Prototype]:
        """A part that was given, copied, by its name; beside it there is no number.

        It becomes an attribute in `build`, so that weights come in the order of the branches.
        """
        prototype = part_or_numbers(self, argument, given, **numbers)
        if prototype is None:
            return {}
        made = prototype.copy(self, argument)
        return {argument: Prototype(self, argument, made, keras.layers.Layer)}

    def _check(self, x_shape: Shape) -> None:
        """Raises ValueError unless the block's own attention can be made for `x`."""
        if "mixer" in self._given:  # it has shapes of its own, a grid's perhaps
            return
        check_sequence(self, x_shape)
        if x_shape[-1] % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide the width of `x`, "
                f"{x_shape[-1]}. Received: num_heads={self.num_heads}"
            )

    def _build_branch(
        self,
        name: str,
        default: tuple[Any, ...],
        *shapes: Any,
        norm_shape: Shape | None = None,
        branch_shape: Shape | None = None,
    ) -> None:
        """Builds a part, its norm, and the factor on it, if there is one.

        Args:
            name: That of the part.
            default: A class and its arguments, which make the part unless it was given.
            *shapes: Of the part's inputs.
            norm_shape, branch_shape: Of what the norm is given, and of what the part gives, where
                they are not the first of `shapes`.
        """
        if name in self._given:
            layer = self._given[name].layer
        else:
            kind, *arguments = default
            layer = kind(*arguments, name=name, dtype=self.dtype_policy)
            follow_owner(layer, None)
        setattr(self, name, layer)
        layer.build(*shapes)
        setattr(self, f"_{name}_takes", arguments_of_call(layer))
        norm = self._branch_norm(name)
        norm.build(norm_shape or shapes[0])
        setattr(self, f"{name}_norm", norm)
        scale = None
        if self.layer_scale is not None:
            scale = LayerScale(self.layer_scale, name=f"{name}_scale", dtype=self.dtype_policy)
            scale.build(branch_shape or norm_shape or shapes[0])
        setattr(self, f"{name}_scale", scale)

    def _branch_norm(self, name: str) -> Any:
        """A hook: the norm of the branch of the part called `name`, not built."""
        return self._norm.copy(self, f"{name}_norm")

    def copied_norm(self, owner: Any, name: str) -> Any:
        """A norm like those of the branches, for instance the one behind a pre-norm stack."""
        return self._norm.copy(owner, name)

    def _build_feed_forward(self, x_shape: Shape) -> None:
        default = (FeedForward, self.mlp_dim, self.activation)
        self._build_branch("feed_forward", default, x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.drop_path_layer = DropPath(self.drop_path, dtype=self.dtype_policy)

    def closing_norm(self, owner: Any, name: str) -> Any:
        """The norm that closes a stack of such blocks, a copy of theirs; None after post-norm."""
        return self._norm.copy(owner, name) if self.norm_first else None

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return tuple(x_shape)

    def given_part(self, name: str) -> Any:
        """The layer that was given as a part, "mixer" or another; None where numbers make it."""
        return self._given[name].layer if name in self._given else None

    def _serialized(self, argument: str) -> Any:
        """The configuration of a part that was given; None of a default one."""
        return self._given[argument].serialized() if argument in self._given else None

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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "mixer": self._serialized("mixer"),
            "feed_forward": self._serialized("feed_forward"),
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

    def _branch_norm(self, name: str) -> Any:
        if name == "mixer":
            return keras.layers.Identity(name="mixer_norm", dtype=self.dtype_policy)
        return super()._branch_norm(name)
