"""What can stand in attention's place: the Fourier transform, and a network over the positions.

A mixer takes `x` `(batch, length, hidden_dim)`, gives the same shape, and is handed to a block as
`mixer`. Where a padding mask can be honoured, padding changes no real token, whatever stands there
and however much there is of it.
"""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, Shape, Tensor
from keras_transformers.assertions import at_most, require
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import check_sequence, named, rate, refuse, whole_number
from keras_transformers.layers.masks import given_padding, hide_padding
from keras_transformers.layers.regularization import Dropout


class Mixer(Arguments, Composite, keras.layers.Layer):
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
        self.seed = seed

    @property
    def most_positions(self) -> int | None:
        """The longest sequence; None if `build` decides."""
        return self.max_length

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self._length = self._known_length(self.max_length, x_shape)
        shapes = {"hidden": (self._length, self.mlp_dim), "output": (self.mlp_dim, self._length)}
        for name, shape in shapes.items():
            kernel = self.add_weight(
                name=f"{name}_kernel", shape=shape, initializer="glorot_uniform"
            )
            bias = self.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros")
            setattr(self, f"{name}_weights", (kernel, bias))
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def call(self, x: Tensor, training: bool | None = None, mask: Tensor | None = None) -> Tensor:
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
