"""What a translator thinks of translations that it is given."""

from typing import Any

import tensorflow as tf

from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds
from keras_transformers.generation.request import padding_of

PAIR = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="translation"),
)


class GivenTranslations(Besides):
    """The signature "score" of a `Translator`.

    It takes `text` and `translation`, UTF-8 strings `(batch,)` each (and `target_language`, if the
    translator does), and gives `score` float32 `(batch,)`, the logarithm of the translation's
    probability; `tokens`, strings, and `log_probabilities`, float32, both `(batch, length)`, END
    the last of each row, empty and 0 behind it; and `truncated` bool `(batch,)`, whether one of the
    two was cut. The token of a language that a translation begins with is none of them. With XLA,
    lengths are those of the translator, and what a source of such a length may become.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__("given_translations", translator, (*PAIR, *translator.languages_asked))

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, translation, *language = given
        translator = self._translator_of()
        sources, _, cut = translator._sources(text, *language)
        before, after = translator.target_marks
        targets, too_long, lengths = self._targets(translation, before, after)
        chosen = len(before)
        widest = lengths[-1] - chosen

        def compute(sources: tf.RaggedTensor, targets: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            padding = padding_of(translator._model)
            found = rounds.program(translator.log_probabilities)(
                rounds.padded(sources, translator._lengths, padding),
                rounds.padded(targets, lengths, padding),
            )[:, chosen - 1 :]
            short = widest - tf.shape(found)[1]
            return {"log_probabilities": tf.pad(found, [[0, 0], [0, short]])}

        results = {"log_probabilities": tf.TensorSpec([None, widest], tf.float32)}
        found = rounds.run_by_length(compute, sources, results, targets)["log_probabilities"]
        tokens = tf.ragged.map_flat_values(self._pieces, targets[:, chosen:]).to_tensor("")
        return {
            "score": tf.reduce_sum(found, axis=1),
            "log_probabilities": found[:, : tf.shape(tokens)[1]],
            "tokens": tokens,
            "truncated": cut | too_long,
        }
