"""Self-attention inside a window that moves along the sequence."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.layers.attention.cached import (
    CausalSelfAttention,
    attend_rows,
    block_positions,
)
from keras_transformers.layers.attention.multi_head import AttentionOptions
from keras_transformers.layers.checks import whole_number
from keras_transformers.layers.masks import combine_masks, within_window

# Tokens whose blocks are computed together: more of them would not fit into a processor's cache.
AT_A_TIME = 4096


@keras.saving.register_keras_serializable("keras_transformers")
class LocalAttention(CausalSelfAttention):
    """Self-attention to the tokens nearby: time and memory `O(length * window)`.

    A token sees those at a distance of at most `window_size // 2` in both directions (Beltagy et
    al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1) or, with `causal`, itself
    and the `window_size - 1` before it; `window_mask` is the same in words of a mask. Computed in
    blocks: the queries of a block meet the keys of it and its neighbours, at most
    `3 * (window_size // 2)` or `2 * window_size` keys a query, and no matrix of all pairs exists,
    unless the call has an `attention_mask`, which is one.

    Args:
        num_heads: Number of heads.
        window_size: Size of the window, in tokens; at least 2.
        causal: Whether later tokens are hidden.
        key_dim, value_dim, dropout, use_bias, score, position, ...: See `MultiHeadAttention`; the
            position term must be a relative one.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool `(batch, length, length)`, True = attend if it is near, too;
            for instance `segment_mask` of packed rows. See `MultiHeadAttention`.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`.

    Raises:
        ValueError: As `MultiHeadAttention`, and if `window_size` is less than 2, or `position` is
            not relative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LocalAttention
    >>> layer = LocalAttention(num_heads=2, window_size=4)
    >>> tuple(layer(np.ones((3, 37, 8), "float32")).shape)
    (3, 37, 8)
    """

    def __init__(
        self,
        num_heads: int,
        window_size: int,
        causal: bool = False,
        **kwargs: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(num_heads, **kwargs)
        if self.position is not None and not self.position.relative:
            name = type(self.position).__name__
            self._refuse("position", "a term of relative positions", name)
        self.window_size = whole_number(self, "window_size", window_size, least=2)
        self.causal = causal

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
    ) -> Any:
        return super().call(x, attention_mask, training=training, mask=mask, x_mask=x_mask)

    def make_mask(
        self,
        query: Tensor,
        key: Tensor,
        attention_mask: Tensor | None,
        padding: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        """`(batch, length)` of padding alone, or `(batch, heads, length, length)` of all pairs."""
        if attention_mask is None:
            return padding  # the window is cut out block by block
        queries = ops.arange(ops.shape(query)[1], dtype="int32")
        near = within_window(queries, queries, self.window_size, self.causal)[None, None]
        padding = None if padding is None else ops.expand_dims(padding, (1, 2))
        return combine_masks(near, attention_mask, padding)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        positions: Sequence[Tensor],
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if mask is not None and len(mask.shape) == 4:  # of all pairs
            return super().attend(query, key, value, mask, bias, positions, training)
        # Queries of a block see the blocks from `before` before theirs to `after` after it.
        block = self.window_size if self.causal else self.window_size // 2
        before, after = 1, 0 if self.causal else 1
        batch, length = ops.shape(query)[0], ops.shape(query)[2]
        is_known = isinstance(length, int)  # neither in a graph of TensorFlow nor where JAX exports
        if query.shape[2] is None:
            block = ops.maximum(ops.minimum(block, length), 1)
        elif is_known and length <= block:  # all of it is near
            block, before, after = max(length, 1), 0, 0
        real = ops.ones((1, length), "bool") if mask is None else mask
        real = ops.broadcast_to(real[:, None, :, None], (batch, 1, length, 1))
        ends = (before * block, -length % block + after * block)
        key, value, real = (ops.pad(x, ((0, 0), (0, 0), ends, (0, 0))) for x in (key, value, real))
        starts, step = [0], length
        if is_known:
            step = max(AT_A_TIME // block, 1) * block
            starts = range(0, max(length, 1), step)
        outputs = []
        for start in starts:
            part = query[:, :, start : start + step]
            seen = ops.shape(part)[2] + -ops.shape(part)[2] % block + (before + after) * block
            k, v, there = (x[:, :, start : start + seen] for x in (key, value, real))
            output = self._attend_blocks(part, k, v, there, block, before, after, training)
            outputs.append(output)
        return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=2), None

    def _attend_blocks(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        real: Tensor,
        block: Any,
        before: Any,
        after: Any,
        training: bool | None,
    ) -> Tensor:
        """Output `(batch, heads, length, value_dim)`; what is seen has its margins already."""
        batch, heads, length = ops.shape(query)[0], query.shape[1], ops.shape(query)[2]
        blocks, window = (length + block - 1) // block, before + 1 + after
        query = ops.pad(query, ((0, 0), (0, 0), (0, -length % block), (0, 0)))

        def cut(x: Tensor, window: int = 1) -> Tensor:
            """`(batch, heads, length, dim)` -> `(batch * blocks, heads, window * block, dim)`."""
            x = ops.reshape(x, (batch, x.shape[1], blocks + window - 1, block, x.shape[3]))
            parts = [x[:, :, i : i + blocks] for i in range(window)]
            x = ops.transpose(ops.concatenate(parts, axis=3), (0, 2, 1, 3, 4))
            return ops.reshape(x, (batch * blocks, x.shape[2], window * block, x.shape[4]))

        queries = ops.arange(block, dtype="int32")
        keys = ops.arange(window * block, dtype="int32") - before * block
        seen = within_window(queries, keys, self.window_size, self.causal)
        real = cut(real, window)[:, None, :, :, 0]  # (batch * blocks, 1, 1, keys)
        output, _ = super().attend(
            cut(query),
            cut(key, window),
            cut(value, window),
            combine_masks(real, seen),
            None,
            (queries, keys),
            training,
        )
        output = ops.reshape(output, (batch, blocks, heads, block, output.shape[-1]))
        output = ops.transpose(output, (0, 2, 1, 3, 4))
        output = ops.reshape(output, (batch, heads, blocks * block, output.shape[-1]))
        return output[:, :, :length]

    def attend_past(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor,
        bias: Tensor | None,
        index: Index,
    ) -> Tensor:
        if bias is not None:
            self._refuse("attention_bias", "left out, as in a call", "a tensor")
        if not self.causal:
            self._refuse("causal", "True for decoding token by token", self.causal)
        beams, index = visible.shape[1], ops.cast(index, "int32")
        length, window, first = ops.shape(value)[2], self.window_size * beams, 0
        if not isinstance(length, int) or length > window:
            window = window if isinstance(length, int) else ops.minimum(window, length)
            first = ops.clip(index + 1 - self.window_size, 0, (length - window) // beams)
            recent = first + ops.arange(window, dtype="int32") // beams > index - self.window_size
            key, value, visible = (_recent(x, first * beams, window) for x in (key, value, visible))
            visible = ops.logical_and(visible, recent)  # (batch or 1, beams, window)
        there = first + ops.arange(ops.shape(value)[2], dtype="int32") // beams
        positions = (ops.broadcast_to(index, (beams,)), there)
        return super().attend(query, key, value, visible[:, None], None, positions)[0]

    def attend_block(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor,
        bias: Tensor | None,
        index: Tensor,
    ) -> Tensor:
        past = ops.arange(ops.shape(value)[2], dtype="int32")
        first = block_positions(index, query.shape[2])[..., None] - self.window_size
        visible = ops.logical_and(visible, past > first)
        return attend_rows(super().attend, query, key, value, visible, bias, index)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "window_size": self.window_size, "causal": self.causal}


def _recent(x: Tensor, start: Any, size: int) -> Tensor:
    """As many positions of axis 2, from `start` on."""
    shape = list(ops.shape(x))
    shape[2] = size
    return ops.slice(x, [start if axis == 2 else 0 for axis in range(len(shape))], shape)
