"""Further signatures of a translator: scores, alternatives, and phrases that must be there."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.generation import BeamSearch, Shortlisted
from keras_transformers.generation.request import padding_of, vocabularies_of
from keras_transformers.generation.search import Search
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.text_signatures import TextSignature
from keras_transformers.tasks.translation_predictor import MOST_ALTERNATIVES, MOST_PHRASES
from keras_transformers.tasks.translation_quality import ConfidenceCurve
from keras_transformers.text.tokenizers import rows_of

PAIR = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="translation"),
)


class GivenTranslations(TextSignature):
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


class TokenScores(TextSignature):
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


def _on_curve(x: tf.Tensor, curve: ConfidenceCurve) -> tf.Tensor:
    """What `curve(x)` gives, in the graph."""
    scores, qualities = (tf.constant(x, tf.float32) for x in (curve.scores, curve.qualities))
    x = tf.clip_by_value(x, scores[0], scores[-1])
    right = tf.minimum(tf.searchsorted(scores, x, side="right"), len(curve.scores) - 1)
    left = tf.maximum(right - 1, 0)
    (x0, x1), (y0, y1) = ([tf.gather(of, i) for i in (left, right)] for of in (scores, qualities))
    return y0 + tf.math.divide_no_nan(x - x0, x1 - x0) * (y1 - y0)


PHRASES = tf.TensorSpec([None, None], tf.string, name="phrases")
FORMS = 3  # of each phrase
MARKS = (".", ",", "'")  # what stands between the digits of a number
PROBE = "a"  # any letter will do


class DemandedPhrases(TextSignature):
    """The signature "phrases" of a `Translator`.

    It takes what `serving_default` takes, and `phrases`, strings `(batch, number)` of at most 12:
    what must stand in the translation of each, as often as it is there; "" is nothing. It gives
    what `serving_default` gives. A phrase begins a word; one that begins with no letter may stand
    right behind something else as well. A number is not part of a longer one; one like 1.5 may have
    the other decimal mark. What does not fit into the limit on tokens is left out with all behind
    it, and so is a phrase with a character that the vocabulary lacks. The search is over the whole
    vocabulary, and has twice the beams, which are shared out by phrases.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__("demanded_phrases", translator, (*translator._requests, PHRASES))
        self._known: tuple[Any, ...] | None = None

    @property
    def joints(self) -> tuple[Any, Any, Any]:
        """Which ids go on with a number, and behind which numbers go on: see `Request`."""
        return self._of_tokenizer()[0]

    @staticmethod
    def search_of(search: Search) -> Search:
        """The search for translations that hold phrases, in the place of a translator's own."""
        search = search.search if isinstance(search, Shortlisted) else search
        if isinstance(search, BeamSearch):
            return dataclasses.replace(search, beam_size=2 * search.beam_size)
        return search

    def _of_tokenizer(self) -> tuple[Any, ...]:
        """Joints, the blank that begins a word, the ids of the probe, and the unknown id."""
        if self._known is None:
            with tf.init_scope():
                tokenizer = self._tokenizer
                pieces = tokenizer.pieces(range(tokenizer.vocab_size))
                short = (0, self._vocab() - len(pieces))
                first = np.pad([piece[:1].isdecimal() for piece in pieces], short)
                links = np.pad([piece in MARKS for piece in pieces], short)
                last = np.pad([piece[-1:].isdecimal() for piece in pieces], short) | links
                one, two = tokenizer.tokenize([PROBE, f"{PROBE} {PROBE}"]).to_list()
                blank = "" if one + one == two else " "
                self._known = (first, last, links), blank, one
        return self._known

    def _vocab(self) -> int:
        of_targets = vocabularies_of(self._exporter._model)[1]
        return of_targets or self._tokenizer.vocab_size

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        *request, phrases = given
        translator = self._exporter
        shape = tf.shape(phrases)
        said = f"Translator: `phrases` must have a row for each text, of at most {MOST_PHRASES}."
        fits = [tf.debugging.assert_equal(shape[0], tf.size(request[0]), said)]
        fits += [tf.debugging.assert_less_equal(shape[1], MOST_PHRASES, said)]
        with tf.control_dependencies(fits):
            ids = self._forms(tf.identity(phrases), rounds)
        # The number is known beforehand, so that a search knows how many candidates there are.
        short = [[0, 0], [0, MOST_PHRASES - shape[1]], [0, 0], [0, 0]]
        ids = tf.pad(ids, short, constant_values=padding_of(translator._model))
        ids = tf.ensure_shape(ids, [None, MOST_PHRASES, FORMS, None])
        return translator.answer(request, rounds, ids)

    def _forms(self, phrases: tf.Tensor, rounds: Rounds) -> tf.Tensor:
        """Ids `(batch, number, 3, length)` of the forms of each.

        As a word; right behind something else; and as a word with the other decimal mark.
        """
        _, blank, probe = self._of_tokenizer()
        translator, flat = self._exporter, tf.reshape(phrases, [-1])
        padding = padding_of(translator._model)
        words = self._tokenizer.tokenize(tf.where(flat == "", "", blank + flat))
        behind = self._tokenizer.tokenize(PROBE + flat)
        apart = tf.reduce_all(
            behind[:, : len(probe)].to_tensor(-1, shape=[None, len(probe)]) == probe, axis=1
        )
        apart &= ~tf.strings.regex_full_match(flat, r"(?s)(\pL.*)?")
        most = translator.most_tokens(translator.longest)
        other = tf.where(
            tf.strings.regex_full_match(flat, r"\d+[.,]\d+"), _with_other_mark(flat), ""
        )
        others = self._tokenizer.tokenize(tf.where(other == "", "", blank + other))
        unknown = getattr(self._tokenizer, "unknown_id", -1)
        forms = []
        for ids, may_be in ((words, True), (behind[:, len(probe) :], apart), (others, True)):
            lacks = tf.reduce_any(ids == unknown, axis=1)
            may_be &= ~lacks & (ids.row_lengths() <= most)
            forms.append(tf.where(may_be[:, None], ids[:, :most].to_tensor(padding), padding))
        length = tf.reduce_max([tf.shape(each)[1] for each in forms])
        if rounds.compiled:  # few lengths: powers of two from 8 on
            powers = tf.constant([1 << i for i in range(3, 31)])
            length = tf.reduce_min(tf.boolean_mask(powers, powers >= length))
        forms = [
            tf.pad(x, [[0, 0], [0, length - tf.shape(x)[1]]], constant_values=padding)
            for x in forms
        ]
        return tf.reshape(tf.stack(forms, axis=1), [*tf.unstack(tf.shape(phrases)), FORMS, length])


def _with_other_mark(numbers: tf.Tensor) -> tf.Tensor:
    """Numbers with a comma for a point, or a point for a comma."""
    point = tf.strings.regex_full_match(numbers, r".*\..*")
    swapped = tf.strings.regex_replace(numbers, ",", ".")
    return tf.where(point, tf.strings.regex_replace(numbers, r"\.", ","), swapped)


PREFIX = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="prefix"),
)


class Alternatives(TextSignature):
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
        number = min(MOST_ALTERNATIVES, self._tokenizer.vocab_size)

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
        values, ids = tf.math.top_k(found[:, :vocab], min(MOST_ALTERNATIVES, vocab))
        return values, ids
