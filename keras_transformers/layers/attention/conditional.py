"""The attentions of Conditional DETR: contents and positions have projections of their own."""

from typing import Any

import keras
from keras import ops

from keras_transformers.core.backend import require, same
from keras_transformers.core.types import MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.multi_head import AttentionMasks, MultiHeadAttention
from keras_transformers.layers.attention.scores import project, swap_heads
from keras_transformers.layers.checks import named
from keras_transformers.layers.masks import as_mask, given_padding, hide_padding
from keras_transformers.layers.positions.sequence import positions_of


class ConditionalAttention(MultiHeadAttention):
    """What the attentions of Conditional DETR share: further projections, and their ending."""

    def build(self, x_shape: Shape, context_shape: Shape | None = None) -> None:
        if self.position is not None:
            self._refuse("position", "None, for positions are given", type(self.position).__name__)
        super().build(x_shape, context_shape)

    def _of_positions(self, name: str, width: int, heads: int) -> Any:
        """A projection from encodings of positions to `heads` as wide as those of the keys."""
        layer = self._projection(name, "abc,cde->abde", (None, heads, self.head_dims[1]))
        layer.build((None, None, width))
        return layer

    def _attended(
        self, inputs: tuple[Tensor, Tensor], parts: tuple[Tensor, Tensor, Tensor],
        padding: Tensor | None, return_attention_scores: bool, training: bool | None
    ) -> MaybeWeights:  # fmt: skip
        """From queries, keys and values `(batch, length, heads, dim)` to the output."""
        query, key, value = map(swap_heads, parts)  # (batch, heads, length, dim)
        heads = (self.prepare_query(query, None), self.prepare_key(key, None), value)
        return self.attend_heads(
            inputs, heads, AttentionMasks(padding), (), return_attention_scores, training
        )


def _with_batch(layer: Any, argument: str, x: Tensor, positions: Tensor) -> Tensor:
    """Positions with an axis for the batch; ValueError unless they fit the tokens `x`."""
    positions = positions_of(layer, argument, x, positions)
    positions = positions[None] if len(positions.shape) == 2 else positions
    lengths = (ops.shape(each)[1] for each in (positions, x))
    rule = f"{named(layer, argument)} must be as many as the tokens that they are of."
    return require(positions, [same(*lengths)], rule)


@keras.saving.register_keras_serializable("keras_transformers")
class ConditionalSelfAttention(ConditionalAttention):
    """Self-attention whose queries and keys are sums of projected contents and positions.

    `Q = X W^Q + P W^QP`, `K = X W^K + P W^KP`, `V = X W^V` (Meng et al. 2021, "Conditional DETR",
    https://arxiv.org/abs/2108.06152, as its authors compute it), where `SelfAttention` projects
    `X + P`.

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        positions: `(length, hidden_dim)` or `(batch, length, hidden_dim)`.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`, and the weights `(batch, heads, length, length)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`, for a `position`, and if `positions` do not fit `x`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConditionalSelfAttention
    >>> x, positions = np.ones((3, 5, 8), "float32"), np.ones((5, 8), "float32")
    >>> tuple(ConditionalSelfAttention(num_heads=2)(x, positions).shape)
    (3, 5, 8)
    """

    takes_mask = True

    causal = False
    input_names = ("x", "x", "x")

    def build(self, x_shape: Shape, positions_shape: Shape | None = None) -> None:
        super().build(x_shape)
        width, shared = x_shape[-1], self.head_dims[0]
        self.query_position_dense = self._of_positions("query_position", width, self.num_heads)
        self.key_position_dense = self._of_positions("key_position", width, shared)

    def call(
        self, x: Tensor, positions: Tensor, return_attention_scores: bool = False,
        training: bool | None = None, mask: Tensor | None = None, x_mask: Tensor | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        positions, padding = _with_batch(self, "positions", x, positions), None
        if mask is not None or x_mask is not None:
            padding = given_padding(self, x, mask=mask, x_mask=x_mask)
            x = hide_padding(x, padding)
        query, key, value = project(x, self.query_dense, self.key_dense, self.value_dense)
        denses = (self.query_position_dense, self.key_position_dense)
        of_query, of_key = project(positions, *denses)
        parts = (query + of_query, key + of_key, value)
        return self._attended((x, x), parts, padding, return_attention_scores, training)

    def compute_output_shape(self, x_shape: Shape, positions_shape: Shape | None = None) -> Shape:
        return super().compute_output_shape(x_shape)


@keras.saving.register_keras_serializable("keras_transformers")
class ConditionalCrossAttention(ConditionalAttention):
    """Attention to a map: contents are compared with contents, positions with positions.

    In each head a query is `[c_q; p_q]` and a key `[c_k; p_k]`, side by side, so that their product
    is `c_q^T c_k + p_q^T p_k`, divided by `sqrt(2 key_dim)`: `c` are projections of `x` and of
    `context`, `p_k` of the context's positions, and `p_q` of `reference`, the encoding of the point
    that the query refers to (Meng et al. 2021, "Conditional DETR",
    https://arxiv.org/abs/2108.06152, eq. 3 and 4). Built with `positions`, as in the first block,
    it adds a projection of them to `c_q`, and `p_k` to `c_k`, as the authors do.

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias, ...: See `MultiHeadAttention`; `key_dim`
            is the width of a content and of a position each.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        context: `(batch, context_length, context_width)`.
        reference: `(batch, length, hidden_dim)`.
        context_positions: `(context_length, context_width)`, or with the batch in front.
        positions: `(length, hidden_dim)`, or with the batch in front; or None, unless it was built
            with them.
        context_mask: `(batch, context_length)` padding mask; filled in by Keras.
        return_attention_scores, training: See `CrossAttention`.

    Returns:
        `(batch, length, hidden_dim)`, on request with weights `(batch, heads, length, keys)`.

    Raises:
        ValueError: As `MultiHeadAttention`, for a `position`, if an encoding does not fit its
            tokens, or if `positions` are given or not, unlike when it was built.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConditionalCrossAttention
    >>> x, context = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
    >>> tuple(ConditionalCrossAttention(num_heads=2)(x, context, x, context).shape)
    (3, 5, 8)
    """

    input_names = ("x", "context", "context")

    def build(
        self, x_shape: Shape, context_shape: Shape, reference_shape: Shape | None = None,
        context_positions_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> None:  # fmt: skip
        super().build(x_shape, context_shape)
        width, shared = x_shape[-1], self.head_dims[0]
        self.query_position_dense = None
        if positions_shape is not None:
            self.query_position_dense = self._of_positions("query_position", width, self.num_heads)
        self.reference_dense = self._of_positions("reference", width, self.num_heads)
        self.key_position_dense = self._of_positions("key_position", context_shape[-1], shared)

    def call(
        self, x: Tensor, context: Tensor, reference: Tensor, context_positions: Tensor,
        positions: Tensor | None = None, context_mask: Tensor | None = None,
        return_attention_scores: bool = False, training: bool | None = None
    ) -> MaybeWeights:  # fmt: skip
        x = ops.cast(x, self.compute_dtype)
        context = ops.cast(context, self.compute_dtype)
        if (positions is None) != (self.query_position_dense is None):
            expected, received = ("given", "None") if positions is None else ("None", "a tensor")
            self._refuse("positions", f"{expected}, as when it was built", received)
        if context_mask is not None:
            context_mask = as_mask(context_mask, named(self, "context_mask"))
            context_mask = given_padding(self, context, context_mask=context_mask)
            context = hide_padding(context, context_mask)
        at = _with_batch(self, "context_positions", context, context_positions)
        reference = _with_batch(self, "reference", x, reference)
        (query,) = project(x, self.query_dense)
        key, value = project(context, self.key_dense, self.value_dense)
        (position,) = project(at, self.key_position_dense)
        (point,) = project(reference, self.reference_dense)
        if positions is not None:
            positions = _with_batch(self, "positions", x, positions)
            query = query + project(positions, self.query_position_dense)[0]
            key = key + position
        query = ops.concatenate([query, ops.broadcast_to(point, ops.shape(query))], axis=-1)
        key = ops.concatenate([key, ops.broadcast_to(position, ops.shape(key))], axis=-1)
        parts = (query, key, value)  # (batch, length, heads, 2 key_dim or value_dim)
        inputs = (x, context)
        return self._attended(inputs, parts, context_mask, return_attention_scores, training)

    def compute_output_shape(
        self, x_shape: Shape, context_shape: Shape, reference_shape: Shape | None = None,
        context_positions_shape: Shape | None = None, positions_shape: Shape | None = None
    ) -> Shape:  # fmt: skip
        return super().compute_output_shape(x_shape)
