"""Translations and what the translator thinks of each of their pieces."""

from typing import Any

import tensorflow as tf

from keras_transformers.confidence import ConfidenceCurve
from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds
from keras_transformers.generation.request import padding_of
from keras_transformers.text.frames import rows_of


class TokenScores(Besides):
    """The signature "tokens" of a `Translator`.

    It takes what the translator takes, and gives beside `translation`, `score`, `finished` and
    `truncated` of each text the pieces that the search has chosen and how probable the model finds
    them: `tokens`, strings, and `log_probabilities`, float32, both `(batch, length)`, END the last
    of each row that has come to it, empty and 0 behind it; and `log_probability`, float32
    `(batch,)`, their sum. A piece has the probability that the model gives it after those before
    it, whatever the search makes of that: its length penalty, temperature or constraints are not in
    it. The token of a language that a translation begins with is none of them. Where the translator
    has a `confidence` there is `confidence` besides, float32 `(batch,)`: the quality to be expected
    of a translation whose pieces have this mean log-probability.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__("token_scores", translator, translator._requests)

    def _answer(self, *request: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        translator = self._translator_of()
        sources, empty, cut = translator._sources(*request)
        before, _ = translator.target_marks
        # The search starts behind START, and puts itself what a language begins with.
        starts, chosen = before[:1], max(len(before) - 1, 0)
        padding = padding_of(translator._model)
        widest = translator.most_tokens(translator.longest)

        def compute(ids: tf.RaggedTensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
            tokens, scores, finished = translator._found(ids, rows, rounds)
            target = tf.concat([rows_of(starts, tf.shape(tokens)[0]), tokens], axis=1)
            source = rounds.padded(ids, translator._lengths, padding)
            found = rounds.program(translator.log_probabilities)(source, target)
            short = [[0, 0], [0, widest - tf.shape(tokens)[1]]]
            return {
                "translation": translator._tokenizer.detokenize(tokens),
                "score": scores,
                "finished": finished,
                "ids": tf.pad(tokens, short, constant_values=padding),
                "log_probabilities": tf.pad(found, short),
            }

        results = {
            "translation": tf.TensorSpec([None], tf.string),
            "score": tf.TensorSpec([None], tf.float32),
            "finished": tf.TensorSpec([None], tf.bool),
            "ids": tf.TensorSpec([None, widest], tf.int32),
            "log_probabilities": tf.TensorSpec([None, widest], tf.float32),
        }
        found = rounds.run_by_length(compute, sources, results, translator._row_numbers(sources))
        ids = found["ids"][:, chosen:]
        real = (ids != padding) & ~empty[:, None]
        length = tf.reduce_max(tf.reduce_sum(tf.cast(real, tf.int32), axis=1))
        real, ids = real[:, :length], ids[:, :length]
        values = found["log_probabilities"][:, chosen : chosen + length]
        values = tf.where(real, values, 0.0)
        scores = {"log_probabilities": values, "log_probability": tf.reduce_sum(values, axis=1)}
        if translator.confidence is not None:
            mean = tf.math.divide_no_nan(
                scores["log_probability"], tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
            )
            scores["confidence"] = _on_curve(mean, translator.confidence)
        return {
            "translation": tf.where(empty, "", found["translation"]),
            "score": tf.where(empty, 0.0, found["score"]),
            "finished": found["finished"] | empty,
            "truncated": cut,
            "tokens": tf.where(real, self._pieces(ids), ""),
            **scores,
        }


def _on_curve(x: tf.Tensor, curve: ConfidenceCurve) -> tf.Tensor:
    """What `curve(x)` gives, in the graph."""
    scores, qualities = (tf.constant(x, tf.float32) for x in (curve.scores, curve.qualities))
    x = tf.clip_by_value(x, scores[0], scores[-1])
    right = tf.minimum(tf.searchsorted(scores, x, side="right"), len(curve.scores) - 1)
    left = tf.maximum(right - 1, 0)
    (x0, x1), (y0, y1) = ([tf.gather(of, i) for i in (left, right)] for of in (scores, qualities))
    return y0 + tf.math.divide_no_nan(x - x0, x1 - x0) * (y1 - y0)
