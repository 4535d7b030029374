"""What may follow the beginning of a translation."""

from typing import Any

import tensorflow as tf

from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds
from keras_transformers.generation.request import padding_of
from keras_transformers.predictors.inspected import MOST

PREFIX = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="prefix"),
)


class Alternatives(Besides):
    """The signature "alternatives" of a `Translator`.

    It takes `text` and `prefix`, the beginning of its translation, UTF-8 strings `(batch,)` each
    (and `target_language`, if the translator does), and gives the 64 pieces, or as many as there
    are, that the model finds most probable next, the likeliest first: `tokens`, strings, and
    `log_probabilities`, float32, both `(batch, pieces)`; and `truncated` bool `(batch,)`, whether
    text or prefix was cut. A prefix becomes pieces as a whole translation does, so that the next
    piece may begin a word or go on with the last one.

    Args:
        translator: The `Translator`, whose model and tokenizer are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__("alternatives", translator, (*PREFIX, *translator.languages_asked))

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, prefix, *language = given
        translator = self._exporter
        sources, _, cut = translator._sources(text, *language)
        before, _ = translator.target_marks
        targets, too_long, lengths = self._targets(prefix, before)
        number = min(MOST, self._tokenizer.vocab_size)

        def compute(sources: tf.RaggedTensor, targets: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            padding = padding_of(translator._model)
            values, ids = rounds.program(self._likeliest)(
                rounds.padded(sources, translator._lengths, padding),
                rounds.padded(targets, lengths, padding),
            )
            return {"log_probabilities": values, "ids": ids}

        results = {
            "log_probabilities": tf.TensorSpec([None, number], tf.float32),
            "ids": tf.TensorSpec([None, number], tf.int32),
        }
        found = rounds.run_by_length(compute, sources, results, targets)
        return {
            "tokens": self._pieces(found["ids"]),
            "log_probabilities": found["log_probabilities"],
            "truncated": cut | too_long,
        }

    def _likeliest(self, source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = self._exporter._model.next_log_probabilities(source, target)
        vocab = self._tokenizer.vocab_size  # a table may have rows beyond, for its shape's sake
        values, ids = tf.math.top_k(found[:, :vocab], min(MOST, vocab))
        return values, ids
