"""Logits of some tokens of a vocabulary."""

from typing import Any

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers import tables


class ListedTokens:
    """The part of a `TokenEmbedding` that scores some tokens, taken out of it once.

    Args:
        embedding: A built `TokenEmbedding`.
        ids: Integers `(n,)`; of a negative one any row is taken.
    """

    def __init__(self, embedding: Any, ids: Tensor) -> None:
        self._embedding = embedding
        rows, self._scale, self._bias = embedding.output_rows(ops.maximum(ids, 0))
        self._rows = rows if self._scale is not None else ops.cast(rows, embedding.compute_dtype)

    def step_logits(self, x: Tensor) -> Tensor:
        """As `TokenEmbedding.step_logits`: `(batch, beams, hidden_dim)` -> `(batch, beams, n)`."""
        alone = x.shape[0] == x.shape[1] == 1
        x, beams = self._embedding.before_logits(x), x.shape[1]
        rows = ops.cast(ops.reshape(x, (-1, x.shape[2])), self._embedding.compute_dtype)
        if self._scale is None:
            y = tables.step_product(rows, self._rows, alone)
        else:
            y = tables.int8_product(rows, self._rows, self._scale)
        y = ops.reshape(y, (-1, beams, ops.shape(self._rows)[0]))
        return y if self._bias is None else y + ops.cast(self._bias, y.dtype)
