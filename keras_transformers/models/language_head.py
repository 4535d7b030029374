"""What makes the logits of a language model, where that is not the table of tokens alone."""

from collections.abc import Callable
from typing import Any, Unpack

import keras

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.attention.shaped_scores import soft_capped
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse


@keras.saving.register_keras_serializable("keras_transformers")
class LanguageHead(Arguments, Composite, keras.layers.Layer):
    """The `head` of a `LanguageModel` whose logits have a soft cap.

    `c tanh(y E^T / c)` (Gemma 2, Riviere et al. 2024, https://arxiv.org/abs/2408.00118, section 2).

    Args:
        soft_cap: `c` above, positive.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        logits: Function from `(batch, length, hidden_dim)` to `(batch, length, vocab_size)`, the
            product with the model's table.

    Returns:
        Logits `(batch, length, vocab_size)`.

    Raises:
        ValueError: If `soft_cap` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageHead, LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, style="modern", head=LanguageHead(0.5))
    >>> bool(abs(np.array(model(np.array([[1, 5, 7]])))).max() < 0.5)
    True
    """

    def __init__(self, soft_cap: float, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not soft_cap > 0:
            refuse(self, "soft_cap", "positive", soft_cap)
        self.soft_cap = soft_cap

    def build(self, x_shape: Shape, logits_shape: Shape) -> None:
        """Makes nothing: the table is the model's."""

    def call(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        scores = logits(x)
        return keras.ops.cast(soft_capped(scores, self.soft_cap), scores.dtype)

    def compute_output_shape(self, x_shape: Shape, logits_shape: Shape) -> Shape:
        return logits_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "soft_cap": self.soft_cap}
