"""What finds the answer to a question inside a text."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import Dropout
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate
from keras_transformers.layers.parts import part_or_numbers
from keras_transformers.models.head_transform import HeadTransform

NEVER = -1e4  # the logit where no answer starts or ends, which half precision has too


@keras.saving.register_keras_serializable("keras_transformers")
class SpanHead(Arguments, Composite, keras.layers.Layer):
    """Where an answer starts and where it ends: two logits of each token.

    `S h_i` and `E h_i` for question and text in one row (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805, section 4.2). Positions are the last axis, so that
    `SparseCategoricalCrossentropy(from_logits=True)` trains it with labels `(batch, 2)`: the
    positions of the answer's first and last token.

    Args:
        dropout: Rate before the layer.
        transform: What every token goes through first, a `HeadTransform`, or None; copied.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        real: Bool `(batch, length)`; True = real token. No answer starts or ends at another.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, 2, length)`, of the start and of the end.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import SpanHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=SpanHead())
    >>> tuple(model(np.array([[2, 5, 3, 7, 9, 8, 3, 0]])).shape)
    (1, 2, 8)
    """

    def __init__(
        self, dropout: float = 0.0, transform: Part | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = rate(self, "dropout", dropout)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform)

    def build(self, x_shape: Shape, real_shape: Shape | None = None) -> None:
        self.transform: Any = None
        if self._transform is not None:
            self.transform = self._transform.copy(self, "transform")
            self.transform.build(x_shape)
            x_shape = self.transform.compute_output_shape(x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.ends = keras.layers.Dense(2, name="ends", dtype=self.dtype_policy)
        self.ends.build(x_shape)

    def call(self, x: Tensor, real: Tensor, training: bool | None = None) -> Tensor:
        x = x if self.transform is None else self.transform(x)
        logits = self.ends(self.dropout_layer(x, training=training))  # (batch, length, 2)
        never = ops.cast(NEVER, logits.dtype)
        return ops.transpose(ops.where(real[..., None], logits, never), (0, 2, 1))

    def compute_output_shape(self, x_shape: Shape, real_shape: Shape | None = None) -> Shape:
        return (x_shape[0], 2, x_shape[1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "transform": None if self._transform is None else self._transform.serialized(),
        }
