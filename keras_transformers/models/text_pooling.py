"""The heads of text encoders that make one vector of a text from one of its positions."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import whole_number
from keras_transformers.layers.ids import as_ids


@keras.saving.register_keras_serializable("keras_transformers")
class EndPooling(Arguments, Composite, keras.layers.Layer):
    """The vector of a text is that of its END (Radford et al. 2021, "CLIP", section 2.4).

    https://arxiv.org/abs/2103.00020. In a causal encoder END is the first token that has seen all
    of the text. A `head` of `TextEncoder`.

    Args:
        end_id: The id of END, whose first position counts; a text without it is taken at its first
            token. None for the greatest id of each text, as OpenAI's code has it, in whose
            vocabulary END is the last.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        ids: Integers `(batch, length)`.

    Returns:
        `(batch, hidden_dim)`.

    Raises:
        ValueError: If `end_id` is negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import EndPooling, TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head=EndPooling(3))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 16)
    """

    def __init__(self, end_id: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.end_id = whole_number(self, "end_id", end_id, least=0, optional=True)
        self.autocast = False  # half precision would round ids that are held in floats

    def build(self, x_shape: Shape, ids_shape: Shape | None = None) -> None:
        """Nothing to make."""

    def call(self, x: Tensor, ids: Tensor) -> Tensor:
        ids = as_ids(self, "ids", ids)
        ends = ids if self.end_id is None else ops.cast(ids == self.end_id, "int32")
        first = ops.argmax(ends, axis=1)
        return ops.take_along_axis(x, first[:, None, None], axis=1)[:, 0]

    def compute_output_shape(self, x_shape: Shape, ids_shape: Shape | None = None) -> Shape:
        return (x_shape[0], x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "end_id": self.end_id}


@keras.saving.register_keras_serializable("keras_transformers")
class LastPooling(Arguments, Composite, keras.layers.Layer):
    """The vector of a text is that of its last position, padding or not, through a dense layer.

    `W h_n + b`, for texts that are all of one length, filled with a token that the encoder sees
    (Zhai et al. 2023, "SigLIP", https://arxiv.org/abs/2303.15343, in the code of big_vision). A
    `head` of `TextEncoder`.

    Args:
        units: Width of the vector.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, units)`.

    Raises:
        ValueError: If `units` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LastPooling, TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head=LastPooling(24))
    >>> tuple(model(np.array([[2, 5, 7, 3, 3]])).shape)
    (1, 24)
    """

    def __init__(self, units: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.units = whole_number(self, "units", units)

    def build(self, x_shape: Shape) -> None:
        self.projection = keras.layers.Dense(self.units, name="projection", dtype=self.dtype_policy)
        self.projection.build((None, x_shape[-1]))

    def call(self, x: Tensor) -> Tensor:
        return self.projection(x[:, -1])

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}
