"""A recurrent network that reads in both directions."""

from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.initializers import Orthogonal

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
class BidirectionalRNN(Composite, keras.layers.Layer):
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
