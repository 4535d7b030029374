"""The encoder block, and what it shares with the decoder's: residuals and norms, wired."""

import functools
import inspect

import keras

from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.attention import SelfAttention
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate, refuse, whole_number
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import given_padding, hide_padding
from keras_transformers.layers.parts import Prototype, part, serialized
from keras_transformers.layers.positions import check_sequence
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale
from keras_transformers.layers.rematerialization import Rematerialized
from keras_transformers.layers.traced import Traced


class Block(Traced, Arguments, Composite, Rematerialized, keras.layers.Layer):
    """What both blocks share: configuration, the feed-forward branch and the residual rule."""

    heads_of_mixer = True  # whether `num_heads` is about nothing else than what mixes the tokens

    def __init__(
        self,
        num_heads=None,
        mlp_dim=None,
        dropout=0.0,
        activation="relu",
        norm_first=False,
        attention_dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        norm_epsilon=1e-6,
        mixer=None,
        feed_forward=None,
        norm=None,
        qkv_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.mixer = None if mixer is None else part(self, "mixer", mixer, keras.layers.Layer)
        # As they were given; `mlp_dim`, `activation` and `norm_epsilon` make those that were not.
        self._given = {
            name: None if given is None else Prototype(self, name, given, keras.layers.Layer)
            for name, given in (("feed_forward", feed_forward), ("norm", norm))
        }
        network = self._given["feed_forward"] and self._given["feed_forward"].layer
        self.num_heads = self._number("num_heads", num_heads, "mixer", self.mixer)
        self.mlp_dim = self._number("mlp_dim", mlp_dim, "feed_forward", network)
        self.dropout = rate(self, "dropout", dropout)
        self.activation = keras.activations.get(activation)
        self.norm_first = norm_first
        self.attention_dropout = rate(self, "attention_dropout", attention_dropout)
        self.drop_path = rate(self, "drop_path", drop_path)
        self.layer_scale = layer_scale
        self.norm_epsilon = norm_epsilon
        self.qkv_bias = qkv_bias
        self.supports_masking = True

    def _number(self, name, given, argument, part):
        """A number, or that of the part in its place; both may be given if they agree."""
        number = whole_number(self, name, given, optional=part is not None)
        its = getattr(part, name, None)
        if number is None or its is None or not self.heads_of_mixer and name == "num_heads":
            return its if number is None else number
        if number != its:
            refuse(self, name, f"left out, or that of `{argument}`, {its}", f"{name}={number}")
        return number

    def _check(self, x_shape):
        if self.mixer is not None:  # it has shapes of its own, a grid's perhaps
            return
        check_sequence(self, x_shape)
        if x_shape[-1] % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide the width of `x`, "
                f"{x_shape[-1]}. Received: num_heads={self.num_heads}"
            )

    def _attention(self, layer, name, **kwargs):
        return layer(
            self.num_heads,
            dropout=self.attention_dropout,
            use_bias=True if self.qkv_bias else "output",
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )

    def _part(self, part, name, default):
        """A copy of the part that was given, or what `default` makes."""
        given = self._given[part]
        if given is None:
            return default(name=name, dtype=self.dtype_policy)
        return given.copy(self, name)

    def _norm_and_scale(self, name, x_shape, branch_shape=None):
        """The norm of a branch, and the factor on what it gives, of `branch_shape`, or None."""
        default = functools.partial(keras.layers.LayerNormalization, epsilon=self.norm_epsilon)
        norm = self._part("norm", f"{name}_norm", default)
        norm.build(x_shape)
        if self.layer_scale is None:
            return norm, None
        scale = LayerScale(self.layer_scale, name=f"{name}_scale", dtype=self.dtype_policy)
        scale.build(branch_shape or x_shape)
        return norm, scale

    def _build_feed_forward(self, x_shape):
        default = functools.partial(FeedForward, self.mlp_dim, self.activation)
        self.feed_forward = self._part("feed_forward", "feed_forward", default)
        self.feed_forward.build(x_shape)
        self.feed_forward_norm, self.feed_forward_scale = self._norm_and_scale(
            "feed_forward", x_shape
        )
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.drop_path_layer = DropPath(self.drop_path, dtype=self.dtype_policy)

    def _residual(self, x, branch, norm, scale, training):
        """Post-norm `LN(x + f(x))` or pre-norm `x + f(LN(x))`."""
        y = branch(norm(x) if self.norm_first else x)
        if scale is not None:
            y = scale(y)
        y = self.dropout_layer(y, training=training)
        x = x + self.drop_path_layer(y, training=training)
        return x if self.norm_first else norm(x)

    def _build_mixer(self, attention, x_shape):
        """The attention of a class, unless something was given in its place."""
        self.attention = None
        if self.mixer is None:
            self.attention = self._attention(attention, "attention")
        self._mixing_layer().build(x_shape)

    def _mixing_layer(self):
        return self.attention if self.mixer is None else self.mixer

    def _call_of(self, layer, scores=None, training=None, **arguments):
        """An attention or mixer as a function of `x` alone; `scores`, a list, gets its weights.

        Arguments that are None are left out; one that the layer does not know is refused.
        """
        known = inspect.signature(layer.call).parameters
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if scores is not None:
            arguments["return_attention_scores"] = True
        for name in arguments:
            if name not in known:
                name = "padding_mask" if name == "mask" else name
                raise ValueError(
                    f"{type(self).__name__} '{self.name}': `{name}` must be left out, for "
                    f"{type(layer).__name__} '{layer.name}' knows of none. Received: one"
                )
        if "training" in known:
            arguments["training"] = training

        def call(x):
            y = layer(x, **arguments)
            if scores is None:
                return y
            scores.append(y[1])
            return y[0]

        return call

    def _without_padding(self, x, padding):
        """`x` with zeros at padding, unless the mixer takes padding for tokens like others."""
        return x if getattr(self.mixer, "ignore_mask", False) else hide_padding(x, padding)

    def _attend(self, x, function, training=False):
        return self._residual(x, function, self.attention_norm, self.attention_scale, training)

    def _feed(self, x, function, training=False):
        norm, scale = self.feed_forward_norm, self.feed_forward_scale
        return self._residual(x, function, norm, scale, training)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "attention_dropout": self.attention_dropout,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
            "norm_epsilon": self.norm_epsilon,
            "mixer": serialized(self.mixer),
            "qkv_bias": self.qkv_bias,
            **{name: given and given.serialized() for name, given in self._given.items()},
        }

    @classmethod
    def from_config(cls, config):
        # Files of earlier versions may hold numbers that a part did not heed.
        config = dict(config)
        for name, argument in (("num_heads", "mixer"), ("mlp_dim", "feed_forward")):
            part = config.get(argument)
            its = part.get("config", {}).get(name) if isinstance(part, dict) else None
            if its is not None and (cls.heads_of_mixer or argument != "mixer"):
                config[name] = its
        return super().from_config(config)


@keras.saving.register_keras_serializable("keras_transformers")
class EncoderBlock(Block):
    """Self-attention and a feed-forward network, each with its residual connection and norm.

    Post-norm: `H' = LN(X + MHA(X))`, `H = LN(H' + FFN(H'))` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Pre-norm: `X' = X + MHA(LN(X))`,
    `X'' = X' + FFN(LN(X'))` (Xiong et al. 2020, https://arxiv.org/abs/2002.04745); a stack of
    pre-norm blocks needs one more norm at its end. An implicit Keras mask is used and carried on.

    Args:
        num_heads: Number of heads; must divide the width of `x`. None where there is a `mixer`.
        mlp_dim: Width of the feed-forward network's hidden layer. None where there is a
            `feed_forward`.
        dropout: Rate on the output of each branch.
        activation: Activation of the feed-forward network.
        norm_first: True for pre-norm.
        attention_dropout: Rate on the attention weights.
        drop_path: Rate of dropping a whole branch for a sample (`DropPath`).
        layer_scale: Start of a learned factor on each branch (`LayerScale`), or None.
        norm_epsilon: Epsilon of the layer norms.
        mixer: What mixes the tokens in place of self-attention: a layer from `(batch, length,
            hidden_dim)` to the same shape, for instance `FourierMixing()`, or an attention with
            settings of its own, `SelfAttention(8, position=RotaryEmbedding())`; None for
            `SelfAttention(num_heads)`. The block makes its own copy, so that one object serves a
            whole stack. `num_heads` may be left out beside it, and must not contradict it;
            `attention_dropout` and `qkv_bias` are ignored.
        feed_forward: What stands in the place of `FeedForward(mlp_dim, activation)`, for instance
            `GatedFeedForward(512, "silu")`; also copied. `mlp_dim` may be left out beside it, and
            must not contradict it; `activation` is ignored.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=norm_epsilon)`,
            for instance `keras.layers.RMSNormalization()`; also copied.
        qkv_bias: Whether the projections of the attention to queries, keys and values have biases.

    Call arguments:
        x: `(batch, length, hidden_dim)`; or a grid, `(batch, rows, columns, hidden_dim)`, with a
            mixer and a feed-forward network that take it.
        attention_mask: Optional bool, `(length, length)` or `(batch, length, length)`; True =
            attend. See `MultiHeadAttention`.
        padding_mask: Optional bool `(batch, length)`; True = real token. What stands at padding
            changes nothing, NaN and infinity neither: a padded row is one of zeros.
        positions: Optional, added to what queries and keys are made of; see `SelfAttention`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`, and the weights `(batch, heads, length, length)` on request.

    Raises:
        ValueError: If `x` is not of rank 3, `num_heads` does not divide its width, a mask does not
            fit, or the mixer knows of no such argument.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import EncoderBlock
    >>> block = EncoderBlock(num_heads=2, mlp_dim=32, norm_first=True)
    >>> tuple(block(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def build(self, x_shape):
        self._check(x_shape)
        self._build_mixer(SelfAttention, x_shape)
        self.attention_norm, self.attention_scale = self._norm_and_scale("attention", x_shape)
        self._build_feed_forward(x_shape)

    def call(
        self,
        x,
        attention_mask=None,
        padding_mask=None,
        positions=None,
        return_attention_scores=False,
        training=None,
        mask=None,
        x_mask=None,
    ):
        padding = given_padding(self, x, padding_mask=padding_mask, mask=mask, x_mask=x_mask)
        x = self._without_padding(x, padding)
        scores = [] if return_attention_scores else None
        mix = self._call_of(
            self._mixing_layer(),
            scores,
            training,
            attention_mask=attention_mask,
            positions=positions,
            mask=padding,
        )
        x = self._attend(x, mix, training)
        x = self._feed(x, self.feed_forward, training)
        return (x, scores[0]) if return_attention_scores else x
