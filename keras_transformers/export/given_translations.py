"""Log-probabilities of texts that the model has not written: the signatures "score"."""

from typing import Any

import tensorflow as tf

from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import bounded
from keras_transformers.generation.request import padding_of

PAIR = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="translation"),
)
PROMPTED = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="prompt"),
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
        translator = self._exporter
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


class GivenTexts(Besides):
    """The signature "score" of a `TextGenerator`.

    It takes `text` and `prompt`, UTF-8 strings `(batch,)` each, and gives `score` float32
    `(batch,)`, the log-probability of the text after its prompt, which may be ""; `tokens`,
    strings, and `log_probabilities`, float32, both `(batch, length)`, the tokens of the text, ""
    and 0 behind the last; and `truncated` bool `(batch,)`, whether the beginning of a prompt or the
    end of a text was cut off.

    Prompt and text become tokens together. The tokens of the prompt are those that it would have
    alone, up to the first that differs; all from there on are the text's, so that a token in which
    the prompt ends is the text's. START stands before the first token, as when the generator
    writes; without START, END stands there where no token of a prompt does. END behind the text
    does not count, unless the text contains it.

    Args:
        generator: The `TextGenerator`, whose model and tokenizer are used. Together prompt and text
            may have as many tokens as its longest prompt and continuation.
    """

    def __init__(self, generator: Any) -> None:
        super().__init__("given_texts", generator, PROMPTED)

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, prompt = given
        generator = self._exporter
        most = generator._lengths[-1] + generator._new_tokens
        rows, numbers, truncated = self._rows(text, prompt, most)
        begins = rows.row_lengths() - numbers
        longest = tf.maximum(tf.reduce_max(numbers), 0)
        lengths = [length + 1 for length in (*generator._lengths, most)]

        def compute(
            rows: tf.RaggedTensor, begins: tf.Tensor, numbers: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            padding = padding_of(generator._model)
            ids = rounds.padded(rows, lengths, padding)
            short = tf.maximum(2 - tf.shape(ids)[1], 0)  # a kernel may refuse no position
            ids = tf.pad(ids, [[0, 0], [0, short]], constant_values=padding)
            found = rounds.program(generator.log_probabilities)(ids)
            columns = tf.range(longest, dtype=tf.int64)
            last = tf.cast(tf.shape(found)[1] - 1, tf.int64)
            columns = tf.minimum(begins[:, None] - 1 + columns, last)
            values = tf.gather(found, columns, batch_dims=1)
            counts = tf.range(longest, dtype=tf.int64) < numbers[:, None]
            return {"log_probabilities": tf.where(counts, values, 0.0)}

        results = {"log_probabilities": tf.TensorSpec([None, None], tf.float32)}
        values = tf.cond(
            tf.size(text) > 0,
            lambda: rounds.run_by_length(compute, rows, results, begins, numbers),
            lambda: {"log_probabilities": tf.zeros((0, longest))},
        )["log_probabilities"]
        positions = tf.ragged.range(rows.row_lengths())
        is_text = positions.flat_values >= tf.gather(begins, rows.value_rowids())
        ids = tf.ragged.boolean_mask(rows, rows.with_flat_values(is_text))
        return {
            "score": tf.reduce_sum(values, axis=1),
            "log_probabilities": values,
            "tokens": tf.ragged.map_flat_values(self._pieces, ids).to_tensor(""),
            "truncated": truncated,
        }

    def _rows(
        self, text: tf.Tensor, prompt: tf.Tensor, most: int
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns the tokens that the model reads of prompts and texts.

        Args:
            text, prompt: Strings `(batch,)`.
            most: Most tokens of a prompt and its text.

        Returns:
            int32 `(batch, None)`, START or what stands for it first; int64 `(batch,)`, how many of
            them at the end of each row are the text's; and bool `(batch,)`, where some are cut off.
        """
        generator = self._exporter
        text, is_text_cut = bounded(text, most)
        prompt, is_prompt_cut = bounded(prompt, most, end=True)
        ids = generator._ids(prompt + text)
        size, before = ids.row_lengths(), _common(ids, generator._ids(prompt))
        of_text = tf.minimum(size - before, most)
        of_prompt = tf.minimum(before, most - of_text)
        positions = tf.ragged.range(size).flat_values
        first, last = (
            tf.gather(limit, ids.value_rowids()) for limit in (before - of_prompt, before + of_text)
        )
        is_read = (positions >= first) & (positions < last)
        read = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_read))
        rows = tf.concat([generator._beginnings(of_prompt == 0), read], axis=1)
        return rows, of_text, (of_prompt + of_text < size) | is_text_cut | is_prompt_cut


def _common(ids: tf.RaggedTensor, others: tf.RaggedTensor) -> tf.Tensor:
    """Counts the tokens with which both of two rows begin, int64 `(batch,)`."""
    second = others.to_tensor(-2)
    width = tf.shape(second)[1]
    first = ids.to_tensor(-1)[:, :width]
    first = tf.pad(first, [[0, 0], [0, width - tf.shape(first)[1]]], constant_values=-1)
    is_same = tf.cast(first == second, tf.int64)
    return tf.reduce_sum(tf.math.cumprod(is_same, axis=1), axis=1)
