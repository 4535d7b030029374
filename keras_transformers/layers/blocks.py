"""Encoder and decoder blocks: attention, feed-forward network, residuals and norms, wired."""

import inspect

import keras

from keras_transformers.layers.cross_attention import CrossAttention
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import combine_masks, key_mask
from keras_transformers.layers.parts import part
from keras_transformers.layers.positions import check_sequence
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale
from keras_transformers.layers.self_attention import CausalSelfAttention, SelfAttention


class _Block(keras.layers.Layer):
    """What both blocks share: configuration, the feed-forward branch and the residual rule."""

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout=0.0,
        activation="relu",
        norm_first=False,
        attention_dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        norm_epsilon=1e-6,
        mixer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout = dropout
        self.activation = keras.activations.get(activation)
        self.norm_first = norm_first
        self.attention_dropout = attention_dropout
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.norm_epsilon = norm_epsilon
        self.mixer = None if mixer is None else part(self, "mixer", mixer, keras.layers.Layer)
        self.supports_masking = True

    def _check(self, x_shape):
        check_sequence(self, x_shape)
        if self.mixer is None and x_shape[-1] % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide the width of `x`, "
                f"{x_shape[-1]}. Received: num_heads={self.num_heads}"
            )

    def _attention(self, layer, name, **kwargs):
        return layer(
            self.num_heads,
            dropout=self.attention_dropout,
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )

    def _norm_and_scale(self, name, x_shape):
        norm = keras.layers.LayerNormalization(
            epsilon=self.norm_epsilon, name=f"{name}_norm", dtype=self.dtype_policy
        )
        norm.build(x_shape)
        if self.layer_scale is None:
            return norm, None
        scale = LayerScale(self.layer_scale, name=f"{name}_scale", dtype=self.dtype_policy)
        scale.build(x_shape)
        return norm, scale

    def _build_feed_forward(self, x_shape):
        self.feed_forward = FeedForward(
            self.mlp_dim, self.activation, name="feed_forward", dtype=self.dtype_policy
        )
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

    def _attend(self, x, function, training=False):
        return self._residual(x, function, self.attention_norm, self.attention_scale, training)

    def _feed(self, x, function, training=False):
        norm, scale = self.feed_forward_norm, self.feed_forward_scale
        return self._residual(x, function, norm, scale, training)

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
            "mixer": keras.saving.serialize_keras_object(self.mixer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class EncoderBlock(_Block):
    """Self-attention and a feed-forward network, each with its residual connection and norm.

    Post-norm: `H' = LN(X + MHA(X))`, `H = LN(H' + FFN(H'))` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Pre-norm: `X' = X + MHA(LN(X))`,
    `X'' = X' + FFN(LN(X'))` (Xiong et al. 2020, https://arxiv.org/abs/2002.04745); a stack of
    pre-norm blocks needs one more norm at its end. An implicit Keras mask is used and carried on.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        mlp_dim: Width of the feed-forward network's hidden layer.
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
            whole stack. `num_heads` and `attention_dropout` do not concern it.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool, `(length, length)` or `(batch, length, length)`; True =
            attend.
        padding_mask: Optional bool `(batch, length)`; True = real token.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, length)` on request.

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
        return_attention_scores=False,
        training=None,
        mask=None,
        x_mask=None,
    ):
        scores = [] if return_attention_scores else None
        mix = self._call_of(
            self._mixing_layer(),
            scores,
            training,
            attention_mask=attention_mask,
            mask=combine_masks(padding_mask, mask, x_mask),
        )
        x = self._attend(x, mix, training)
        x = self._feed(x, self.feed_forward, training)
        return (x, scores[0]) if return_attention_scores else x


@keras.saving.register_keras_serializable("keras_transformers")
class DecoderBlock(_Block):
    """Causal self-attention, attention to a context, and a feed-forward network.

    Each has its residual connection and norm (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Built without a context it has no
    cross-attention: the block of a decoder-only language model.

    Args:
        num_heads, mlp_dim, dropout, activation, norm_first, ...: See `EncoderBlock`; a `mixer` must
            be causal.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`, or None.
        attention_mask: Optional bool `(batch, length, length)` on top of the causal mask.
        context_mask: Optional bool, `(batch, context_length)` for padding or
            `(batch, length, context_length)`; filled in by Keras from an implicit mask.
        padding_mask: Optional bool `(batch, length)`; True = real token.
        return_attention_scores: Whether to return the weights of the cross-attention (of the
            self-attention where there is no context) too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, context_length)` on
        request.

    Raises:
        ValueError: If `x` is not of rank 3, `num_heads` does not divide its width, a mask does not
            fit, or the block was built with a context and called without, or the other way round.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DecoderBlock
    >>> block = DecoderBlock(num_heads=2, mlp_dim=32)
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
    >>> tuple(block(x, context).shape)
    (3, 5, 8)
    """

    def build(self, x_shape, context_shape=None):
        self._check(x_shape)
        if self.mixer is not None and not getattr(self.mixer, "causal", False):
            raise ValueError(
                f"DecoderBlock '{self.name}': `mixer` must be causal. "
                f"Received: {type(self.mixer).__name__}"
            )
        self._build_mixer(CausalSelfAttention, x_shape)
        self.attention_norm, self.attention_scale = self._norm_and_scale("attention", x_shape)
        self.cross_attention = None
        if context_shape is not None:
            self.cross_attention = self._attention(CrossAttention, "cross_attention")
            self.cross_attention.build(x_shape, context_shape)
            self.cross_attention_norm, self.cross_attention_scale = self._norm_and_scale(
                "cross_attention", x_shape
            )
        self._build_feed_forward(x_shape)

    def call(
        self,
        x,
        context=None,
        attention_mask=None,
        context_mask=None,
        padding_mask=None,
        return_attention_scores=False,
        training=None,
        mask=None,
        x_mask=None,
    ):
        if (context is None) != (self.cross_attention is None):
            raise ValueError(
                f"DecoderBlock '{self.name}': `context` must be "
                f"{'None' if self.cross_attention is None else 'given'}, as when the block was "
                f"built. Received: {'None' if context is None else 'a tensor'}"
            )
        if context_mask is not None and len(context_mask.shape) == 2:
            context_mask = key_mask(context_mask)
        scores = [] if return_attention_scores else None
        mix = self._call_of(
            self._mixing_layer(),
            scores if context is None else None,
            training,
            attention_mask=attention_mask,
            mask=combine_masks(padding_mask, mask, x_mask),
        )
        x = self._attend(x, mix, training)
        if context is not None:
            attend = self._call_of(
                self.cross_attention, scores, training, context=context, attention_mask=context_mask
            )
            x = self._attend_across(x, attend, training)
        x = self._feed(x, self.feed_forward, training)
        return (x, scores[0]) if return_attention_scores else x

    def _attend_across(self, x, function, training=False):
        norm, scale = self.cross_attention_norm, self.cross_attention_scale
        return self._residual(x, function, norm, scale, training)

    def start_cache(self, batch, beams, max_length):
        """Empty keys and values of the self-attention; see `CausalSelfAttention.start_cache`."""
        layer = self._mixing_layer()
        if not hasattr(layer, "start_cache"):
            raise ValueError(
                f"DecoderBlock '{self.name}': `mixer` must be able to decode token by token. "
                f"Received: {type(layer).__name__}"
            )
        return layer.start_cache(batch, beams, max_length)

    def step(self, x, cache, index, visible=None, context_cache=None, context_mask=None):
        """Decodes one token of `beams` sequences for each batch element.

        Args:
            x: `(batch, beams, hidden_dim)`.
            cache: From `start_cache`, filled by the steps before.
            index: Position of the token, an int or a scalar tensor.
            visible: See `CausalSelfAttention.step`.
            context_cache: `cross_attention.project_context(context)`, or None.
            context_mask: Optional bool `(batch, context_length)`.

        Returns:
            `(batch, beams, hidden_dim)`, the cache with this token in it, and the weights of the
            cross-attention `(batch, heads, beams, context_length)`, None without a context.
        """
        updated, weights = {}, []

        def attend(x):
            y, cache_after = self._mixing_layer().step(x, cache, index, visible)
            updated.update(cache_after)
            return y

        def attend_across(x):
            y, cross_weights = self.cross_attention.step(x, context_cache, context_mask)
            weights.append(cross_weights)
            return y

        x = self._attend(x, attend)
        if context_cache is not None:
            x = self._attend_across(x, attend_across)
        return self._feed(x, self.feed_forward.step), updated, weights[0] if weights else None
