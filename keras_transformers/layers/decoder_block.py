"""The decoder block: self-attention, attention to a context, feed-forward network."""

import keras

from keras_transformers.layers.blocks import Block
from keras_transformers.layers.cross_attention import CrossAttention
from keras_transformers.layers.errors import named, refuse
from keras_transformers.layers.given_masks import given_padding
from keras_transformers.layers.masks import as_mask
from keras_transformers.layers.self_attention import CausalSelfAttention, SelfAttention


@keras.saving.register_keras_serializable("keras_transformers")
class DecoderBlock(Block):
    """Self-attention, causal by default, attention to a context, and a feed-forward network.

    Each has its residual connection and norm (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.1). Built without a context it has no
    cross-attention: the block of a decoder-only language model. A call takes no cache: token by
    token, `start_cache` and `step` decode.

    Args:
        num_heads, mlp_dim, dropout, activation, norm_first, ...: See `EncoderBlock`; a `mixer` must
            be causal if the block is, and `num_heads` beside it is that of the attention to
            `context`.
        causal: Whether no token sees a later one. False for a set without order, as DETR's queries
            are (Carion et al. 2020, https://arxiv.org/abs/2005.12872, section 3.2).

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`, or None.
        attention_mask: Optional bool `(batch, length, length)` on top of the causal mask.
        context_mask: Optional bool, `(batch, context_length)` for padding or
            `(batch, length, context_length)`; filled in by Keras from an implicit mask.
        padding_mask: Optional bool `(batch, length)`; True = real token.
        positions: Optional, added to what queries and keys of the self-attention and queries of the
            cross-attention are made of; see `SelfAttention`.
        context_positions: The same for the keys of the cross-attention; see `CrossAttention`.
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

    heads_of_mixer = False  # it is the cross-attention's too

    def __init__(self, num_heads=None, mlp_dim=None, causal=True, **kwargs):
        super().__init__(num_heads, mlp_dim, **kwargs)
        self.causal = causal

    def build(self, x_shape, context_shape=None):
        self._check(x_shape)
        if self.causal and self.mixer is not None and not getattr(self.mixer, "causal", False):
            raise ValueError(
                f"DecoderBlock '{self.name}': `mixer` must be causal. "
                f"Received: {type(self.mixer).__name__}"
            )
        self._build_mixer(CausalSelfAttention if self.causal else SelfAttention, x_shape)
        self.attention_norm, self.attention_scale = self._norm_and_scale("attention", x_shape)
        self.cross_attention = None
        if context_shape is not None:
            if self.num_heads is None:
                refuse(self, "num_heads", "given, for the attention to `context`", None)
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
        positions=None,
        context_positions=None,
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
        padding = given_padding(self, x, padding_mask=padding_mask, mask=mask, x_mask=x_mask)
        x = self._without_padding(x, padding)
        scores = [] if return_attention_scores else None
        mix = self._call_of(
            self._mixing_layer(),
            scores if context is None else None,
            training,
            attention_mask=attention_mask,
            positions=positions,
            mask=padding,
        )
        x = self._attend(x, mix, training)
        if context is not None:
            attend = self._call_of(
                self.cross_attention,
                scores,
                training,
                context=context,
                **self._context_mask(context, context_mask),
                positions=positions,
                context_positions=context_positions,
            )
            x = self._attend_across(x, attend, training)
        x = self._feed(x, self.feed_forward, training)
        return (x, scores[0]) if return_attention_scores else x

    def compute_output_shape(self, x_shape, context_shape=None):
        return super().compute_output_shape(x_shape)

    def _context_mask(self, context, mask):
        """The argument of the cross-attention that a mask of padding, or of pairs, is."""
        if mask is None:
            return {}
        mask = as_mask(mask, named(self, "context_mask"))
        if len(mask.shape) == 2:
            return {"context_mask": given_padding(self, context, context_mask=mask)}
        return {"attention_mask": mask}

    def _attend_across(self, x, function, training=False):
        norm, scale = self.cross_attention_norm, self.cross_attention_scale
        return self._residual(x, function, norm, scale, training)

    def start_cache(self, batch, beams, max_length):
        """Empty keys and values of the self-attention; see `CausalSelfAttention.start_cache`."""
        layer = self._mixing_layer()
        if not hasattr(layer, "start_cache"):
            raise ValueError(
                f"DecoderBlock '{self.name}': what mixes the tokens must be able to decode token "
                f"by token. Received: {type(layer).__name__}"
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
        feed = getattr(self.feed_forward, "step", self.feed_forward)
        return self._feed(x, feed), updated, weights[0] if weights else None

    def prefill(self, x, cache, beams):
        """Decodes the first tokens of every sequence at once, in a block without a context.

        Args:
            x: `(batch, length, hidden_dim)`, tokens that all beams begin with.
            cache: From `start_cache`.
            beams: The number it was started with.

        Returns:
            `(batch, length, hidden_dim)`, and the cache with these tokens in it.
        """
        updated = {}

        def attend(x):
            y, cache_after = self._mixing_layer().prefill(x, cache, beams)
            updated.update(cache_after)
            return y

        return self._feed(self._attend(x, attend), self.feed_forward), updated

    def get_config(self):
        return {**super().get_config(), "causal": self.causal}
