"""What a translator thinks of translations that it is given."""

from typing import Any

import tensorflow as tf

from keras_transformers.export.rounds import CompiledRounds, PortableRounds, Rounds
from keras_transformers.export.served import bounded
from keras_transformers.generation.request import most_tokens, padding_of
from keras_transformers.text.frames import cutter_of_targets, in_marks

PAIR = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="translation"),
)


class GivenTranslations(tf.Module):
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
        super().__init__(name="given_translations")
        self._translator_of = lambda: translator
        self._tokenizer = cutter_of_targets(translator._tokenizer)
        self._pieces: tf.Tensor | None = None
        self.compiled = self._traced(CompiledRounds())
        self.portable = self._traced(PortableRounds())

    def _traced(self, rounds: Rounds) -> Any:
        def answer(*given: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._answer(*given, rounds=rounds)

        languages = self._translator_of()._languages.requests
        return tf.function(answer, input_signature=(*PAIR, *languages))

    def _names(self) -> tf.Tensor:
        """The piece of each id, made when it is first needed."""
        if self._pieces is None:
            with tf.init_scope():
                vocab = self._tokenizer.vocab_size
                self._pieces = tf.constant(self._tokenizer.pieces(range(vocab)), tf.string)
        return self._pieces

    def _answer(
        self, text: tf.Tensor, translation: tf.Tensor, *language: tf.Tensor, rounds: Rounds
    ) -> dict[str, tf.Tensor]:
        translator = self._translator_of()
        sources, _, cut = translator._sources(text, *language)
        before, after = translator.target_marks
        lengths = [most_tokens(each) + len(before) for each in translator._lengths]
        translation, shortened = bounded(translation, lengths[-1])
        ids = self._tokenizer.tokenize(translation)
        room = lengths[-1] - len(before) - len(after)
        too_long = (ids.row_lengths() > room) | shortened
        targets = in_marks(ids[:, :room], (before, after))
        chosen = len(before)
        widest = lengths[-1] - chosen

        def compute(sources: tf.RaggedTensor, targets: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            padding = padding_of(translator._model)
            found = rounds.program(self._log_probabilities)(
                rounds.padded(sources, translator._lengths, padding),
                rounds.padded(targets, lengths, padding),
            )[:, chosen - 1 :]
            short = widest - tf.shape(found)[1]
            return {"log_probabilities": tf.pad(found, [[0, 0], [0, short]])}

        results = {"log_probabilities": tf.TensorSpec([None, widest], tf.float32)}
        found = rounds.run_by_length(compute, sources, results, targets)["log_probabilities"]
        tokens = tf.gather(self._names(), targets[:, chosen:]).to_tensor("")
        return {
            "score": tf.reduce_sum(found, axis=1),
            "log_probabilities": found[:, : tf.shape(tokens)[1]],
            "tokens": tokens,
            "truncated": cut | too_long,
        }

    def _log_probabilities(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return self._translator_of()._model.log_probabilities(source, target)
