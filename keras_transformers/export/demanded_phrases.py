"""Translations that must hold phrases."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.export.besides import Besides
from keras_transformers.export.rounds import Rounds
from keras_transformers.generation import BeamSearch, Shortlisted
from keras_transformers.generation.request import padding_of, vocabularies_of
from keras_transformers.generation.search import Search
from keras_transformers.predictors.demands import MOST

PHRASES = tf.TensorSpec([None, None], tf.string, name="phrases")
FORMS = 3  # of each phrase
MARKS = (".", ",", "'")  # what stands between the digits of a number
PROBE = "a"  # any letter will do


class DemandedPhrases(Besides):
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
        said = f"Translator: `phrases` must have a row for each text, of at most {MOST}."
        fits = [tf.debugging.assert_equal(shape[0], tf.size(request[0]), said)]
        fits += [tf.debugging.assert_less_equal(shape[1], MOST, said)]
        with tf.control_dependencies(fits):
            ids = self._forms(tf.identity(phrases), rounds)
        # The number is known beforehand, so that a search knows how many candidates there are.
        short = [[0, 0], [0, MOST - shape[1]], [0, 0], [0, 0]]
        ids = tf.pad(ids, short, constant_values=padding_of(translator._model))
        ids = tf.ensure_shape(ids, [None, MOST, FORMS, None])
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
