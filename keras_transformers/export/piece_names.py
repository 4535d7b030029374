"""The pieces of a vocabulary, looked up in the graph."""

from typing import Any

import tensorflow as tf


class PieceNames(tf.Module):
    """The piece of each id, a constant that is made when it is first needed.

    Args:
        tokenizer: Whose `pieces` they are.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(name="piece_names")
        self._tokenizer = tokenizer
        self._names: tf.Tensor | None = None

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Strings of the shape of `ids`, integers."""
        if self._names is None:
            with tf.init_scope():
                pieces = self._tokenizer.pieces(range(self._tokenizer.vocab_size))
                self._names = tf.constant(pieces, tf.string)
        return tf.gather(self._names, ids)
