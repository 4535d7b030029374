"""Mixers, which stand in the place of attention: Fourier, MLP, convolution, LSTM, synthesizer.

A mixer takes `x` `(batch, length, hidden_dim)` and returns the same shape. A block takes it as
`mixer`. Where a mixer takes a padding mask, padding has no influence on real tokens.
"""

from collections.abc import Sequence
from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import at_most, require, same
from keras_transformers.core.types import Activation, LayerOptions, MaybeWeights, Shape, Tensor
from keras_transformers.layers.attention.scores import batch_size, masked_softmax
from keras_transformers.layers.base import BaseLayer, ReadByBuild, frozen_like, output_spec_of_call
from keras_transformers.layers.checks import check_sequence, named, rate, refuse, whole_number
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    given_padding,
    given_pairs,
    hide_padding,
)
from keras_transformers.layers.regularization import Dropout, Orthogonal


class Mixer(BaseLayer):
    """What the mixers share: shapes and errors."""

    takes_mask = True

    _refuse = refuse

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def _check_heads(self, x_shape: Shape) -> int:
        """The width of `x`, which the heads share evenly."""
        check_sequence(self, x_shape)
        width = x_shape[-1]
        if width % self.num_heads:
            self._refuse("num_heads", f"a divisor of the width of `x`, {width}", self.num_heads)
        return width

    def _known_length(self, max_length: int | None, x_shape: Shape) -> int:
        """Number of positions that the weights are made for."""
        length = x_shape[1] if max_length is None else max_length
        if length is None:
            self._refuse("max_length", "given where the length of `x` is not known", None)
        return length

    def _at_most(self, x: Tensor, length: int) -> Tensor:
        """`x`, if it is no longer than the weights."""
        rule = f"{named(self, 'x')} must be at most {length} long, as its weights are."
        return require(x, [at_most(ops.shape(x)[1], length)], rule)

    def _hidden(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`x` with zeros at padding."""
        return hide_padding(x, given_padding(self, x, mask=mask))

    def _dense(
        self, units: int, name: str, activation: Activation | None = None, use_bias: bool = True
    ) -> keras.layers.Dense:
        return keras.layers.Dense(units, activation, use_bias, name=name, dtype=self.dtype_policy)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape


@keras.saving.register_keras_serializable("keras_transformers")
class FourierMixing(Mixer):
    """The real part of the Fourier transform over tokens and features; it has no weights.

    `y = Re(F_length(F_hidden(x)))` (Lee-Thorp et al. 2021, "FNet", https://arxiv.org/abs/2105.03824,
    eq. 3), in float32 whatever the compute dtype. The transform depends on the number of tokens, so
    padding cannot be hidden from it.

    Args:
        ignore_mask: False refuses a padding mask; True takes padding as tokens like others, as
            FNet did: then always pad to the same length.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If there is a mask and `ignore_mask` is False, or `x` is not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import FourierMixing
    >>> tuple(FourierMixing()(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(self, ignore_mask: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.ignore_mask = ignore_mask

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)

    def call(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if mask is not None and not self.ignore_mask:
            expected = "None, for padding changes the transform; see `ignore_mask`"
            self._refuse("mask", expected, "a mask")
        precise = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        return ops.cast(ops.fft2((precise, ops.zeros_like(precise)))[0], x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ignore_mask": self.ignore_mask}


@keras.saving.register_keras_serializable("keras_transformers")
class MLPMixing(Mixer):
    """A small network over the positions of a sequence, the same for every feature.

    `Y^T = act(X^T W1 + b1) W2 + b2` (Tolstikhin et al. 2021, "MLP-Mixer",
    https://arxiv.org/abs/2105.01601, eq. 1, the token-mixing half). Padding enters as zeros and so
    changes nothing; a shorter sequence uses the weights of its positions.

    Args:
        mlp_dim: Width of the hidden layer (the paper's D_S).
        max_length: Longest sequence; by default the length `x` is built with.
        activation: Any Keras activation.
        dropout: Rate on the hidden layer.
        seed: Optional integer for the dropout.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Whether dropout acts.
        mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If `mlp_dim` is not positive, the length is not known, or `x` is too long.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import MLPMixing
    >>> tuple(MLPMixing(mlp_dim=16)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    dropout: Any = ReadByBuild()

    def __init__(
        self,
        mlp_dim: int,
        max_length: int | None = None,
        activation: Activation | None = "gelu",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim)
        self.max_length = whole_number(self, "max_length", max_length, optional=True)
        self.activation = keras.activations.get(activation)
        self.dropout = rate(self, "dropout", dropout)
        self.seed = None if seed is None else int(seed)

    @property
    def most_positions(self) -> int | None:
        """The longest sequence; None if `build` decides."""
        return self.max_length

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self._length = self._known_length(self.max_length, x_shape)
        self.hidden_weights = self._add_product("hidden", (self._length, self.mlp_dim))
        self.output_weights = self._add_product("output", (self.mlp_dim, self._length))
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _add_product(self, name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
        """Adds a kernel and a bias."""
        kernel = self.add_weight(name=f"{name}_kernel", shape=shape, initializer="glorot_uniform")
        bias = self.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros")
        return kernel, bias

    def call(self, x: Tensor, training: bool | None = None, mask: Tensor | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        x = self._at_most(x, self._length)
        length = ops.shape(x)[1]
        kernels, biases = zip(self.hidden_weights, self.output_weights, strict=True)
        into, out = (ops.cast(kernel, x.dtype) for kernel in kernels)
        inner, outer = (ops.cast(bias, x.dtype) for bias in biases)
        columns = ops.transpose(self._hidden(x, mask), (0, 2, 1))
        hidden = self.activation(ops.matmul(columns, into[:length]) + inner)
        hidden = self.dropout_layer(hidden, training=training)
        y = ops.matmul(hidden, out[:, :length]) + outer[:length]
        return ops.transpose(y, (0, 2, 1))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "max_length": self.max_length,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
        }


KINDS = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}


def with_a_step(x: Tensor) -> Tensor:
    """`x`, or one row of zeros where it has no row: Keras's loops refuse to make no step.

    Args:
        x: `(batch, length, ...)`.
    """
    batch, length, *others = ops.shape(x)
    if x.shape[1] is None:
        short = ops.maximum(1 - length, 0)
    elif isinstance(length, int) and length == 0:
        short = 1
    else:  # where JAX exports a program, a length is an expression, of at least 1
        return x
    return ops.concatenate([x, ops.zeros((batch, short, *others), x.dtype)], axis=1)


@keras.saving.register_keras_serializable("keras_transformers")
class BidirectionalRNN(BaseLayer):
    """A recurrent layer and one that reads backwards, side by side: `[RNN(x); RNN reversed(x)]`.

    In place of Keras's `Bidirectional`, which copies its layer by way of a configuration. While a
    file is loaded Keras takes objects for the same that had the same address, one after the other,
    and such a copy then was, now and then, an initialiser.

    Args:
        kind: "gru" or "lstm".
        units: Width of the state of each direction.

    Call arguments:
        x: `(batch, length, width)`.
        mask: Optional bool `(batch, length)`; padding is passed over in both directions.

    Returns:
        `(batch, length, 2 * units)`, and the last state of either direction `(batch, units)`.
    """

    takes_mask = True

    def __init__(
        self, kind: Literal["gru", "lstm"], units: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.units = units
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        self.forward_layer, self.backward_layer = (
            KINDS[self.kind](
                self.units,
                return_sequences=True,
                return_state=True,
                go_backwards=backwards,
                recurrent_initializer=Orthogonal(),
                name=f"{'backward' if backwards else 'forward'}_{self.kind}",
                dtype=self.dtype_policy,
            )
            for backwards in (False, True)
        )
        for layer in (self.forward_layer, self.backward_layer):
            layer.build((None, None, x_shape[-1]))

    def call(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        length, x = ops.shape(x)[1], with_a_step(x)
        mask = None if mask is None else with_a_step(mask)
        forward, state, *_ = self.forward_layer(x, mask=mask)
        backward, last, *_ = self.backward_layer(x, mask=mask)
        outputs = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        return outputs[:, :length], state, last

    def compute_output_shape(self, x_shape: Shape) -> tuple[Shape, Shape, Shape]:
        batch, length, _ = x_shape
        return (batch, length, 2 * self.units), (batch, self.units), (batch, self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kind": self.kind, "units": self.units}


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

    dropout: Any = ReadByBuild()

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
        self.seed = None if seed is None else int(seed)

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
        x = ops.cast(x, self.compute_dtype)
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


@keras.saving.register_keras_serializable("keras_transformers")
class LSTMMixing(Mixer):
    """LSTMs in both directions over a sequence, or along the rows and columns of a grid.

    `[LSTM(x); LSTM reversed(x)] W`; on a grid, those along the columns and those along the rows
    side by side, `[h_vertical; h_horizontal] W` (Tatsunami and Taki 2022, "Sequencer",
    https://arxiv.org/abs/2205.01972, section 3.2, BiLSTM2D). Padding at the end of a sequence is
    passed over in both directions.

    Args:
        units: Width of the state of each LSTM; by default a half of the width of `x`, a quarter on
            a grid.
        grid: `(rows, columns)` of the tokens, or None for a sequence.
        causal: Whether the LSTM that reads backwards is left out.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        mask: `(batch, length)` padding mask, filled in by Keras; None on a grid.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If a grid is combined with `causal` or a mask, or `x` does not fill it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LSTMMixing
    >>> tuple(LSTMMixing()(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    >>> tuple(LSTMMixing(grid=(2, 3))(np.ones((3, 6, 8), "float32")).shape)
    (3, 6, 8)
    """

    def __init__(
        self,
        units: int | None = None,
        grid: Sequence[int] | None = None,
        causal: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = whole_number(self, "units", units, optional=True)
        self.grid = None if grid is None else tuple(grid)
        self.causal = causal
        if causal and grid is not None:
            self._refuse("causal", "False on a grid", causal)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        width = x_shape[-1]
        share = width // (2 if self.grid is None else 4)
        units = self.units or max(share, 1)
        names = ("sequence",) if self.grid is None else ("vertical", "horizontal")
        self.lstms: list[Any] = []
        for name in names:
            if self.causal:
                lstm = keras.layers.LSTM(
                    units,
                    return_sequences=True,
                    return_state=True,
                    recurrent_initializer=Orthogonal(),
                    name=name,
                    dtype=self.dtype_policy,
                )
            else:
                lstm = BidirectionalRNN("lstm", units, name=name, dtype=self.dtype_policy)
            lstm.build((None, None, width))
            self.lstms.append(frozen_like(self, lstm))
        self.output_dense = self._dense(width, "output")
        directions = len(names) * (1 if self.causal else 2)
        self.output_dense.build((*x_shape[:-1], directions * units))

    def call(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if self.grid is None:
            mask = given_padding(self, x, mask=mask)
            rows, real = (
                with_a_step(hide_padding(x, mask)),
                mask if mask is None else with_a_step(mask),
            )
            y = self.lstms[0](rows, mask=real)[0]
            return self.output_dense(y[:, : ops.shape(x)[1]])
        if mask is not None:
            self._refuse("mask", "None on a grid", "a mask")
        rows, columns = self.grid
        rule = f"{named(self, 'x')} must be {rows} x {columns} tokens long."
        x = require(x, [same(ops.shape(x)[1], rows * columns)], rule)
        vertical, horizontal = self.lstms
        grid = ops.reshape(x, (-1, rows, columns, x.shape[2]))
        down, *_ = vertical(ops.reshape(ops.swapaxes(grid, 1, 2), (-1, rows, x.shape[2])))
        down = ops.reshape(down, (-1, columns, rows, down.shape[2]))
        across, *_ = horizontal(ops.reshape(grid, (-1, columns, x.shape[2])))
        across = ops.reshape(across, (-1, rows, columns, across.shape[2]))
        y = self.output_dense(ops.concatenate([ops.swapaxes(down, 1, 2), across], axis=-1))
        return ops.reshape(y, (-1, rows * columns, x.shape[2]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "grid": None if self.grid is None else list(self.grid),
            "causal": self.causal,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class RandomSynthesizer(Mixer):
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

    dropout: Any = ReadByBuild()

    compute_output_spec = output_spec_of_call

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
        self.seed = None if seed is None else int(seed)

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
        x = self._at_most(ops.cast(x, self.compute_dtype), self._length)
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
