"""SavedModels that give a number for a raw text."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_transformers.core.types import Array, Tokenizer
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import LENGTHS, Served, bounded, lengths_for, strings
from keras_transformers.generation.request import padding_of
from keras_transformers.text import framed


class TextRegressor(Served):
    """A trained encoder and its tokenizer as one function from raw text to a number.

    It takes UTF-8 strings `(batch,)` and gives a dict of `value` float32 and `truncated` bool, each
    `(batch,)`. Texts are padded as by `TextClassifier`.

    Args:
        model: A `models.TextEncoder` whose head has one class and problem type "regression", or any
            model from ids `(batch, length)` to `(batch, 1)`.
        tokenizer: As for `TextClassifier`.
        lengths: As for `TextClassifier`.

    Raises:
        ValueError: If the model gives more than a number, the lengths do not increase or exceed the
            model's positions, or the tokenizer has ids that are none of the model's.

    Example:
    >>> from keras_transformers.export import TextRegressor
    >>> from keras_transformers.models import ClassificationHead, TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> head = ClassificationHead(1, problem_type="regression")
    >>> model = TextEncoder.from_variant("tiny", 14, head=head)
    >>> TextRegressor(model, tokenizer, lengths=(8,)).values(["a cat", ""]).shape
    (2,)
    """

    kind = "text_regressor"

    def __init__(
        self, model: keras.Model, tokenizer: Tokenizer, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__("text_regressor", tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("TextRegressor", model, tokenizer, lengths, LENGTHS)
        shape = model(tf.ones((1, 2), tf.int32), training=False).shape
        if tuple(shape) != (1, 1):
            raise ValueError(
                "TextRegressor: `model` must give one number for each text, (batch, 1). Received: "
                f"output of shape {tuple(shape)} for one text"
            )
        self._hold(model)
        self._tokenizer, self._padding = tokenizer, padding_of(model)
        self._lengths = lengths

    def _answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, cut = bounded(text, self._lengths[-1])
        ids, truncated = framed(self._tokenizer, text, self._lengths[-1])
        find, results = rounds.program(self._find), {"value": tf.TensorSpec([None], tf.float32)}
        found = rounds.run_by_length(
            lambda ids: find(rounds.padded(ids, self._lengths, self._padding)), ids, results
        )
        return {**found, "truncated": truncated | cut}

    def _find(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"value": tf.cast(self._model(ids, training=False)[:, 0], tf.float32)}

    def values(self, texts: Sequence[str]) -> Array:
        """Numbers `(n,)`, NumPy float32, of a list of str."""
        return self(strings(texts))["value"].numpy()
