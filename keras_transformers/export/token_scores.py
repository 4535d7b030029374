"""Written texts with the log-probability of each token: the signatures "tokens"."""

from typing import Any

import tensorflow as tf

from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds, sequences_of
from keras_transformers.generation.request import padding_of
from keras_transformers.predictors.quality import ConfidenceCurve
from keras_transformers.text.tokenizers import rows_of


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
        translator = self._exporter
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
        scores = self._token_scores(ids, found["log_probabilities"][:, chosen:], real)
        if translator.confidence is not None:
            number = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
            mean = tf.math.divide_no_nan(scores["log_probability"], number)
            scores["confidence"] = _on_curve(mean, translator.confidence)
        return {
            "translation": tf.where(empty, "", found["translation"]),
            "score": tf.where(empty, 0.0, found["score"]),
            "finished": found["finished"] | empty,
            "truncated": cut,
            **scores,
        }


class ContinuationScores(Besides):
    """The signature "tokens" of a `TextGenerator`.

    It takes `text`, as `serving_default`, and gives besides what that gives `tokens`, strings, and
    `log_probabilities`, float32, both `(batch, length)`: the tokens of `continuation` and how
    probable the model finds each after those before it, END the last where the model chose it; ""
    and 0 behind the last. `log_probability`, float32 `(batch,)`, is their sum. Where the search
    gives n texts, there are `all_tokens` and `all_log_probabilities` `(batch, n, length)`, and
    `all_log_probability` `(batch, n)`. Probabilities are the model's own, the softmax of its
    logits: temperature, penalties and constraints of the search do not change them. An END that the
    search forces at the limit is left out.

    Args:
        generator: The `TextGenerator`, whose model, tokenizer and search are used.
    """

    def __init__(self, generator: Any) -> None:
        super().__init__("continuation_scores", generator, generator._requests)

    def _answer(self, *request: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        generator = self._exporter
        number, width = sequences_of(generator._search), generator._new_tokens

        def score(start: tf.Tensor, prompts: tf.Tensor, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._scored(start, prompts, tokens, rounds)

        results = {
            "ids": tf.TensorSpec([None, number, width], tf.int32),
            "log_probabilities": tf.TensorSpec([None, number, width], tf.float32),
        }
        answer = generator._answer(*request, rounds, score, results)
        ids, values = answer.pop("ids"), answer.pop("log_probabilities")
        is_real = (ids != padding_of(generator._model)) & ~self._is_forced_end(ids)
        scores = self._token_scores(ids, values, is_real)
        answer |= {name: of_all[:, 0] for name, of_all in scores.items()}
        if number > 1:
            answer |= {f"all_{name}": of_all for name, of_all in scores.items()}
        return answer

    def _scored(
        self, start: tf.Tensor, prompts: tf.Tensor, tokens: tf.Tensor, rounds: Rounds
    ) -> dict[str, tf.Tensor]:
        """Returns the continuations alone, and their log-probabilities, `(batch, n, new_tokens)`.

        Args:
            start: The first token of each row, int32 `(batch, 1)`.
            prompts: The tokens of the prompt behind it, int32 `(batch, length)`, and padding.
            tokens: Prompts and continuations, int32 `(batch, n, length)`.
            rounds: The `Rounds` that compute.
        """
        generator = self._exporter
        lengths = tf.reduce_sum(tf.cast(prompts != padding_of(generator._model), tf.int32), axis=1)
        positions = lengths[:, None] + tf.range(generator._new_tokens)
        ids, values = [], []
        # One after the other: logits of all n at once would need n times the memory.
        for i in range(sequences_of(generator._search)):
            rows = tf.concat([start, tokens[:, i]], axis=1)
            found = rounds.program(generator.log_probabilities)(rows)
            ids.append(tf.gather(tokens[:, i], positions, batch_dims=1))
            values.append(tf.gather(found, positions, batch_dims=1))
        return {"ids": tf.stack(ids, axis=1), "log_probabilities": tf.stack(values, axis=1)}

    def _is_forced_end(self, ids: tf.Tensor) -> tf.Tensor:
        """Tells which ids are an END that the search puts at the limit of a continuation."""
        generator = self._exporter
        boundaries = generator._search.constraints.boundaries
        ends = boundaries.ends or (self._tokenizer.end_id,)
        if boundaries.last not in ends:
            return tf.zeros_like(ids, tf.bool)
        at_limit = tf.range(generator._new_tokens) == generator._new_tokens - 1
        return (ids == boundaries.last) & at_limit


def _on_curve(x: tf.Tensor, curve: ConfidenceCurve) -> tf.Tensor:
    """What `curve(x)` gives, in the graph."""
    scores, qualities = (tf.constant(x, tf.float32) for x in (curve.scores, curve.qualities))
    x = tf.clip_by_value(x, scores[0], scores[-1])
    right = tf.minimum(tf.searchsorted(scores, x, side="right"), len(curve.scores) - 1)
    left = tf.maximum(right - 1, 0)
    (x0, x1), (y0, y1) = ([tf.gather(of, i) for i in (left, right)] for of in (scores, qualities))
    return y0 + tf.math.divide_no_nan(x - x0, x1 - x0) * (y1 - y0)
