"""Lightweight and dynamic convolution over the tokens of a sequence."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.attention.scores import masked_softmax
from keras_transformers.layers.errors import rate, whole_number
from keras_transformers.layers.masks import given_padding, hide_padding
from keras_transformers.layers.mixing.mixers import Mixer
from keras_transformers.layers.projections import batch_size
from keras_transformers.layers.regularization import Dropout


@keras.saving.register_keras_serializable("keras_transformers")
class ConvolutionMixing(Mixer):
    """Convolution over time with few weights, which sum to one.

    `GLU(X W^I)`, then for each head `y_t = sum_k softmax(w)_k x_(t + k - K/2)`, then `W^O` (Wu et
    al. 2019, "Pay less attention", https://arxiv.org/abs/1901.10430): "lightweight" with `K`
    weights a head (section 3.2), "dynamic" with weights that the token itself chooses, `w_t = x_t
    W^Q` (section 4). The features of a head share their weights. Padding enters as zeros, like all
    beyond the ends.

    Args:
        kernel_size: Number of tokens that each sees (K); odd unless `causal`.
        num_heads: Number of heads; must divide the width of `x`.
        dynamic: Whether the weights depend on the token.
        causal: Whether the `kernel_size` tokens are those up to the token itself, rather than
            around it.
        dropout: Rate on the normalised weights (the paper's DropConnect).
        seed: Optional integer for the dropout.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Whether dropout acts.
        mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If `kernel_size` is not positive, or even where it should be odd, or `num_heads`
            does not divide the width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConvolutionMixing
    >>> tuple(ConvolutionMixing(kernel_size=3, num_heads=2)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        kernel_size: int,
        num_heads: int,
        dynamic: bool = False,
        causal: bool = False,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = whole_number(self, "kernel_size", kernel_size)
        if self.kernel_size % 2 == 0 and not causal:
            self._refuse("kernel_size", "positive, and odd unless `causal`", kernel_size)
        self.num_heads = whole_number(self, "num_heads", num_heads)
        self.dynamic = dynamic
        self.causal = causal
        self.dropout = rate(self, "dropout", dropout)
        self.seed = seed

    def build(self, x_shape: Shape) -> None:
        width = self._check_heads(x_shape)
        self.input_dense = self._dense(2 * width, "input")
        self.input_dense.build(x_shape)
        size = self.num_heads * self.kernel_size
        self.kernel = None
        self.kernel_dense: Any = None
        if self.dynamic:
            self.kernel_dense = self._dense(size, "kernel", use_bias=False)
            self.kernel_dense.build(x_shape)
        else:
            self.kernel = self.add_weight(
                name="kernel",
                shape=(self.num_heads, self.kernel_size),
                initializer="glorot_uniform",
            )
        self.output_dense = self._dense(width, "output")
        self.output_dense.build(x_shape)
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def call(self, x: Tensor, training: bool | None = None, mask: Tensor | None = None) -> Tensor:
        length, width = ops.shape(x)[1], x.shape[2]
        mask = given_padding(self, x, mask=mask)
        x = hide_padding(x, mask)
        value, gate = ops.split(self.input_dense(x), 2, axis=-1)
        x = value * ops.sigmoid(gate)
        batch = batch_size(x)
        if self.dynamic:
            scores = self.kernel_dense(x)
        else:
            scores = ops.cast(self.kernel, x.dtype)
        rows = (batch, length) if self.dynamic else (1, 1)
        scores = ops.reshape(scores, (*rows, self.num_heads, self.kernel_size))
        weights = ops.cast(masked_softmax(scores), x.dtype)
        weights = self.dropout_layer(weights, training=training)
        before = self.kernel_size - 1 if self.causal else self.kernel_size // 2
        x = hide_padding(x, mask)  # again, for the biases of `input_dense`
        x = ops.reshape(x, (batch, length, self.num_heads, width // self.num_heads))
        ends = (before, self.kernel_size - 1 - before)
        x = ops.pad(x, ((0, 0), ends, (0, 0), (0, 0)))
        y = sum(
            x[:, position : position + length] * weights[..., position, None]
            for position in range(self.kernel_size)
        )
        return self.output_dense(ops.reshape(y, (batch, length, width)))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "num_heads": self.num_heads,
            "dynamic": self.dynamic,
            "causal": self.causal,
            "dropout": self.dropout,
            "seed": self.seed,
        }
