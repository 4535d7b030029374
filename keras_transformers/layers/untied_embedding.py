"""Token vectors and logits of two tables."""

from typing import Any

import keras

from keras_transformers.annotations import Shape
from keras_transformers.layers.embeddings import TokenEmbedding


@keras.saving.register_keras_serializable("keras_transformers")
class UntiedTokenEmbedding(TokenEmbedding):
    """A `TokenEmbedding` whose logits have a table of their own.

    `x = E[ids]` and `logits(y) = y U^T`, as in T5 from version 1.1 on (Shazeer 2020,
    https://arxiv.org/abs/2002.05202; the released models), and in most large language models.
    Arguments and calls are those of `TokenEmbedding`. It is not quantised.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import UntiedTokenEmbedding
    >>> embedding = UntiedTokenEmbedding(vocab_size=11, hidden_dim=6, scale=False)
    >>> x = embedding(np.array([[1, 2, 3]]))
    >>> tuple(embedding.logits(x).shape), embedding.count_params()
    ((1, 3, 11), 132)
    """

    def build(self, ids_shape: Shape | None = None) -> None:
        super().build(ids_shape)
        self.output_embedding = self.add_weight(
            name="output_embedding",
            shape=(self.vocab_size, self.hidden_dim),
            initializer=keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5),
            autocast=False,
        )

    @property
    def output_table(self) -> Any:
        """The weights `(vocab_size, hidden_dim)` that make logits."""
        return self.output_embedding

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Refused: Keras then leaves the layer as it is.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"UntiedTokenEmbedding '{self.name}' has no 8-bit form. Received: mode={mode!r}"
        )
