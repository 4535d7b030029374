"""The RMS norm whose factors are one and a learned offset."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments


@keras.saving.register_keras_serializable("keras_transformers")
class OffsetRMSNormalization(Arguments, keras.layers.Layer):
    """`y = x / sqrt(mean(x^2) + epsilon) * (1 + g)`, with `g` learned from zero.

    The norm of Gemma: that of Zhang & Sennrich 2019 (https://arxiv.org/abs/1910.07467, eq. 4) whose
    weights decay to a factor of 1. Over the last axis, computed in float32 and cast last.

    Args:
        epsilon: Added to the mean square.

    Call arguments:
        x: `(..., width)`.

    Returns:
        Same shape and dtype.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import OffsetRMSNormalization
    >>> np.asarray(OffsetRMSNormalization()(np.array([[3.0, -3.0]], "float32"))).round(3).tolist()
    [[1.0, -1.0]]
    """

    position_wise = True

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        self.offset = self.add_weight(
            name="offset", shape=(x_shape[-1],), initializer="zeros", autocast=False
        )

    def call(self, x: Tensor) -> Tensor:
        precise = keras.backend.result_type(x.dtype, "float32")
        y = ops.rms_normalization(ops.cast(x, precise), epsilon=self.epsilon)
        return ops.cast(y * (1.0 + ops.cast(self.offset, precise)), x.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
