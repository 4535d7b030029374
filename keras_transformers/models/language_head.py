"""What makes the logits of a language model, where that is not the table of tokens alone."""

from typing import Any, Unpack

import keras

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.attention.shaped_scores import soft_capped
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse


@keras.saving.register_keras_serializable("keras_transformers")
class LanguageHead(Arguments, Composite, keras.layers.Layer):
    """The `head` of a `LanguageModel`: a table of its own, a soft cap, or both.

    `logits(y) = y E^T`, and with a cap `c tanh(y E^T / c)` (Gemma 2, Riviere et al. 2024,
    https://arxiv.org/abs/2408.00118, section 2).

    Args:
        tied: Whether `E` is the table of tokens (Press & Wolf 2017,
            https://arxiv.org/abs/1608.05859); else the head has a table of its own, as Llama has.
        soft_cap: `c` above, positive; None for none.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        table: The model's `TokenEmbedding`.

    Returns:
        Logits `(batch, length, vocab_size)`.

    Raises:
        ValueError: If `soft_cap` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageHead, LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, style="modern", head=LanguageHead())
    >>> tied = LanguageModel.from_variant("tiny", 31, style="modern")
    >>> for each in (model, tied):
    ...     each.build((None, None))
    >>> model.count_params() - tied.count_params() == 31 * 128
    True
    """

    def __init__(
        self, tied: bool = False, soft_cap: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if soft_cap is not None and not soft_cap > 0:
            refuse(self, "soft_cap", "positive, or None", soft_cap)
        self.tied = tied
        self.soft_cap = soft_cap
        self.token_embedding: TokenEmbedding | None = None

    def build(self, x_shape: Shape, logits_shape: Shape) -> None:
        if not self.tied:
            self.token_embedding = TokenEmbedding(
                logits_shape[-1],
                x_shape[-1],
                scale=False,
                name="token_embedding",
                dtype=self.dtype_policy,
            )
            self.token_embedding.build()

    def table_of(self, table: TokenEmbedding) -> TokenEmbedding:
        """The `TokenEmbedding` that makes the logits of a model with this `table`."""
        return table if self.token_embedding is None else self.token_embedding

    def call(self, x: Tensor, table: TokenEmbedding) -> Tensor:
        return self._capped(self.table_of(table).logits(x))

    def step(self, x: Tensor, table: TokenEmbedding) -> Tensor:
        """`call` for one token of every sequence, `(batch, beams, hidden_dim)`."""
        return self._capped(self.table_of(table).step_logits(x))

    def _capped(self, logits: Tensor) -> Tensor:
        if self.soft_cap is None:
            return logits
        return keras.ops.cast(soft_capped(logits, self.soft_cap), logits.dtype)

    def compute_output_shape(self, x_shape: Shape, logits_shape: Shape) -> Shape:
        return logits_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tied": self.tied, "soft_cap": self.soft_cap}
