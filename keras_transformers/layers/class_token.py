"""A learned token in front of a sequence."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Initializer, LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import check_sequence


@keras.saving.register_keras_serializable("keras_transformers")
class ClassToken(Arguments, keras.layers.Layer):
    """Puts one learned token in front of a sequence; its output stands for the whole.

    `[x_class; x_1; ...; x_N]` (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3;
    Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, eq. 1). An implicit Keras mask gets
    one more position.

    Args:
        initializer: Initialiser of the token.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, 1 + length, hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassToken
    >>> tuple(ClassToken()(np.ones((2, 5, 8), "float32")).shape)
    (2, 6, 8)
    """

    def __init__(self, initializer: Initializer = "zeros", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.token = self.add_weight(
            name="class_token", shape=(1, 1, x_shape[-1]), initializer=self.initializer
        )

    def call(self, x: Tensor) -> Tensor:
        token = ops.cast(self.token, x.dtype)
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        if previous_mask is None:
            return None
        return ops.pad(previous_mask, ((0, 0), (1, 0)), constant_values=True)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + 1, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
        }
