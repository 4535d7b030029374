"""Attention whose weights are learned for positions and see no token."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.scores import masked_softmax
from keras_transformers.layers.errors import rate, whole_number
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    given_padding,
    given_pairs,
    hide_padding,
)
from keras_transformers.layers.mixing.mixers import Mixer
from keras_transformers.layers.projections import batch_size
from keras_transformers.layers.regularization import Dropout
from keras_transformers.layers.traced import Traced


@keras.saving.register_keras_serializable("keras_transformers")
class RandomSynthesizer(Traced, Mixer):
    """Attention whose scores are learned for each pair of positions and see no token.

    `Concat(softmax(R_h) X W_h^V) W^O` (Tay et al. 2021, https://arxiv.org/abs/2005.00743, section
    3.2), with `R_h = A_h B_h^T` of a lower rank on request (the paper's factorised one).

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        max_length: Longest sequence; by default the length `x` is built with.
        rank: Width of the two factors; None for a whole matrix in each head.
        dropout: Rate on the weights.
        causal: Whether later tokens are hidden.
        seed: Optional integer for the dropout.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        attention_mask: Optional bool `(length, length)` or `(batch, length, length)`; True =
            attend. See `MultiHeadAttention`.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout acts.
        mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`, and the weights `(batch or 1, heads, length, length)` on request.

    Raises:
        ValueError: If `num_heads` does not divide the width, the length is not known, or `x` is too
            long.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RandomSynthesizer
    >>> tuple(RandomSynthesizer(num_heads=2)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int | None = None,
        rank: int | None = None,
        dropout: float = 0.0,
        causal: bool = False,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.max_length = whole_number(self, "max_length", max_length, optional=True)
        self.rank = whole_number(self, "rank", rank, optional=True)
        self.dropout = rate(self, "dropout", dropout)
        self.causal = causal
        self.seed = seed

    @property
    def most_positions(self) -> int | None:
        """The longest sequence; None if `build` decides."""
        return self.max_length

    def build(self, x_shape: Shape) -> None:
        width = self._check_heads(x_shape)
        self._length = self._known_length(self.max_length, x_shape)
        columns = self._length if self.rank is None else self.rank
        names = ("scores",) if self.rank is None else ("query_factor", "key_factor")
        self.factors = [
            self.add_weight(
                name=name,
                shape=(self.num_heads, self._length, columns),
                initializer="glorot_uniform",
            )
            for name in names
        ]
        self.value_dense = self._dense(width, "value")
        self.value_dense.build(x_shape)
        self.output_dense = self._dense(width, "attention_output")
        self.output_dense.build(x_shape)
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor | None = None,
    ) -> MaybeWeights:
        x = self._at_most(x, self._length)
        length, width = ops.shape(x)[1], x.shape[2]
        factors = [ops.cast(factor, x.dtype)[:, :length] for factor in self.factors]
        if self.rank is None:
            scores = factors[0][:, :, :length]
        else:
            scores = ops.matmul(factors[0], ops.swapaxes(factors[1], 1, 2))
        mask = given_padding(self, x, mask=mask)
        full = (x.shape[0], self.num_heads, x.shape[1], x.shape[1])
        visible = combine_masks(
            given_pairs(self, "attention_mask", attention_mask, full),
            causal_mask(length) if self.causal else None,
            None if mask is None else mask[:, None, None],
        )
        weights = ops.cast(masked_softmax(scores[None], visible), x.dtype)
        dropped = self.dropout_layer(weights, training=training)
        value = self.value_dense(hide_padding(x, mask))
        value = ops.reshape(value, (batch_size(x), length, self.num_heads, width // self.num_heads))
        y = ops.matmul(dropped, ops.transpose(value, (0, 2, 1, 3)))
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (batch_size(x), length, width))
        y = self.output_dense(y)
        return (y, weights) if return_attention_scores else y

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "max_length": self.max_length,
            "rank": self.rank,
            "dropout": self.dropout,
            "causal": self.causal,
            "seed": self.seed,
        }
