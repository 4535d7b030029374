"""The inputs of a translator besides texts, and its further signatures."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Tokenizer
from keras_transformers.generation import BeamSearch, Shortlisted
from keras_transformers.generation.request import SMALLEST, most_tokens, vocabularies_of
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlists import Within, list_sizes
from keras_transformers.tasks.rounds import Rounds, plain_search
from keras_transformers.tasks.served import bounded
from keras_transformers.tasks.text_signatures import TextSignature
from keras_transformers.tasks.translation_quality import ConfidenceCurve
from keras_transformers.text.tokenizers import in_marks, rows_of

INPUT = tf.TensorSpec([None], tf.string, name="target_language")


class LanguageChoice:
    """The input `target_language` of a translator; a translator without a choice has none.

    Args:
        owner: Name of the exporter, for messages.
        tokenizer: The tokenizer. One with `language_marks` and no `target` leaves a choice.
    """

    def __init__(self, owner: str, tokenizer: Tokenizer) -> None:
        self._owner = owner
        marks = dict(getattr(tokenizer, "language_marks", {}))
        self._banned = (*marks.values(), *getattr(tokenizer, "tags", {}).values())
        has_target = getattr(tokenizer, "target", None) is not None
        self._marks: dict[str, int] = {} if has_target else marks

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the languages to choose from."""
        return tuple(self._marks)

    @property
    def requests(self) -> tuple[tf.TensorSpec, ...]:
        """The input, or none."""
        return (INPUT,) if self._marks else ()

    @property
    def _sentence(self) -> str:
        return f"{self._owner}: `target_language` must be one of {', '.join(self.codes)}."

    def without_marks(self, search: Any) -> Search:
        """Returns a search that writes no marks of languages and no tags."""
        if not self._banned:
            return search
        constraints = search.constraints
        banned = (*constraints.banned, *self._banned)
        constraints = dataclasses.replace(constraints, banned=banned)
        return dataclasses.replace(search, constraints=constraints)

    def marks(self, text: tf.Tensor, *language: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the mark of each text, int32 `(batch, 1)`, or nothing if there is no choice.

        The graph fails if a language is unknown, or there is not one language for each text.
        """
        if not language:
            return ()
        (codes,) = language
        tf.debugging.assert_equal(
            tf.size(codes),
            tf.size(text),
            f"{self._owner}: `target_language` must have one language for each text.",
        )
        matches = tf.equal(codes[:, None], tf.constant(self.codes))
        is_known = tf.reduce_any(matches, axis=1)
        message = [f"{self._sentence} Received:", tf.boolean_mask(codes, ~is_known)]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_known), message)]):
            index = tf.argmax(tf.cast(matches, tf.int32), axis=1)
        marks = tf.constant(tuple(self._marks.values()), tf.int32)
        return (tf.gather(marks, index)[:, None],)

    def encode_choice(
        self, languages: str | Sequence[str] | None, number: int
    ) -> tuple[tf.Tensor, ...]:
        """Converts a choice in Python to the input for a number of texts.

        Args:
            languages: A code for all texts, or a list of one for each; None if there is no choice.
            number: Number of texts.

        Raises:
            ValueError: If a code is unknown, or there is nothing to choose from.
        """
        if not self._marks:
            if languages is not None:
                raise ValueError(
                    f"{self._owner}: `target_language` must be None, there is nothing to choose "
                    f"from. Received: {languages!r}"
                )
            return ()
        codes: list[Any]
        if languages is None or isinstance(languages, str):
            codes = [languages] * number
        else:
            codes = list(languages)
        if len(codes) != number:
            received = f"{len(codes)} for {number} texts"
            raise ValueError(f"{self._sentence} Received: {received:.100}")
        if languages is None or not set(codes) <= set(self._marks):
            raise ValueError(f"{self._sentence} Received: {languages!r:.100}")
        return (tf.constant(codes, tf.string, shape=[number]),)


class Lists(tf.Module):
    """The function `Shortlist.within` in TensorFlow's operations, for SavedModels.

    Args:
        search: The `Shortlisted`.
        padding_id, start_id, end_id: Ids of padding, START and END in a request.
    """

    def __init__(
        self, search: Shortlisted, padding_id: int, start_id: int | None, end_id: int
    ) -> None:
        super().__init__(name="shortlist")
        shortlist = search.shortlist
        self._named = search.named(padding_id, end_id, start_id)
        self._vocab = shortlist.vocab_size
        self._sizes = list_sizes(shortlist.vocab_size)
        self._likeliest = tf.Variable(shortlist.likeliest, trainable=False, dtype=tf.int32)
        splits = np.append(shortlist.splits, shortlist.splits[-1])  # + an empty list, of padding
        self._splits = tf.Variable(splits, trainable=False, dtype=tf.int64)
        always = np.zeros(shortlist.vocab_size, bool)
        always[[token for token in (*self._named, *shortlist.frequent) if token >= 0]] = True
        self._always = tf.Variable(always, trainable=False)

    def within(self, source: tf.Tensor, compiled: bool) -> Within:
        """Returns the `Within` of dense ids `(batch, length)`.

        If it is compiled, it has one of a few sizes; otherwise it is as short as possible.
        """
        batch = tf.shape(source, tf.int64)[0]
        vocab = self._vocab
        lists = tf.RaggedTensor.from_row_splits(self._likeliest, self._splits, validate=False)
        source = tf.where(source < 0, lists.nrows(tf.int32) - 1, source)
        candidates = tf.gather(lists, source).merge_dims(1, 2)
        rows = candidates.value_rowids()
        tokens = candidates.flat_values
        named = tf.constant(self._named, tf.int32)
        real = tf.constant([token for token in self._named if token >= 0], tf.int32)[:, None]
        present = tf.scatter_nd(tokens[:, None], tf.ones_like(tokens), [vocab]) > 0
        present = tf.tensor_scatter_nd_update(
            present | self._always, real, tf.zeros_like(real[:, 0], tf.bool)
        )
        rest = tf.cast(tf.where(present)[:, 0], tf.int32)
        ids = tf.concat([named, rest], axis=0)
        number = tf.size(ids)
        positions = tf.scatter_nd(ids[1:, None], tf.range(1, number), [vocab])
        size = tf.maximum(number, SMALLEST)
        if compiled:
            size = tf.gather(self._sizes, tf.searchsorted(self._sizes, [number])[0])
        cells = tf.stack([rows, tf.cast(tf.gather(positions, tokens), tf.int64)], axis=1)
        shape = tf.stack([batch, tf.cast(size, tf.int64)])
        is_candidate = tf.scatter_nd(cells, tf.ones_like(tokens), shape) > 0
        is_common = tf.gather(self._always, tf.maximum(ids, 0)) & (ids >= 0)
        missing = [[0, size - number]]
        allowed = is_candidate | tf.pad(is_common, missing)[None]
        return Within(tf.pad(ids, missing, constant_values=self._named[0]), allowed)


MOST_PHRASES = 12  # most phrases of one sentence; further phrases do not count
MOST_ALTERNATIVES = 64  # most alternatives that an export gives
PAIR = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="translation"),
)


class Targets(NamedTuple):
    """Translations of a request as the model reads them.

    Attributes:
        ids: Token ids between marks, int32 `(batch, None)`.
        is_cut: Texts of which the end was cut off, bool `(batch,)`.
        lengths: Lengths that rows are padded to.
    """

    ids: tf.RaggedTensor
    is_cut: tf.Tensor
    lengths: list[int]


def encode_targets(
    signature: TextSignature, texts: tf.Tensor, before: tuple[int, ...], after: tuple[int, ...] = ()
) -> Targets:
    """Tokenizes translations, and puts marks before and behind them."""
    translator = signature.exporter
    limits = set(map(most_tokens, translator.lengths))
    limits |= set(map(translator.most_tokens, translator.lengths))
    lengths = [limit + len(before) for limit in sorted(limits)]
    texts, is_shortened = bounded(texts, lengths[-1])
    ids = signature.tokenizer.tokenize(texts)
    room = lengths[-1] - len(before) - len(after)
    marked = in_marks(ids[:, :room], (before, after))
    return Targets(marked, (ids.row_lengths() > room) | is_shortened, lengths)


class GivenTranslations(TextSignature):
    """The signature "score" of a `Translator`.

    It takes `text` and `translation`, UTF-8 strings `(batch,)` each (and `target_language`, if the
    translator does), and gives `score` float32 `(batch,)`, the logarithm of the translation's
    probability; `tokens`, strings, and `log_probabilities`, float32, both `(batch, length)`, END
    the last of each row, empty and 0 behind it; and `truncated` bool `(batch,)`, whether one of the
    two was cut. The token of a language that begins a translation does not count. With XLA, sources
    have the lengths of the translator, and translations the greatest lengths for these.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__(translator, *PAIR, *translator.languages.requests)

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        text, translation, *language, rounds = arguments
        translator = self.exporter
        sources = translator.encode(text, *language)
        before, after = translator.target_marks
        targets = encode_targets(self, translation, before, after)
        num_marks = len(before)
        width = targets.lengths[-1] - num_marks

        def score(source_ids: tf.RaggedTensor, ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            values = rounds.program(translator.model.log_probabilities)(
                rounds.padded(source_ids, translator.lengths, translator.padding),
                rounds.padded(ids, targets.lengths, translator.padding),
            )[:, num_marks - 1 :]
            missing = width - tf.shape(values)[1]
            return {"log_probabilities": tf.pad(values, [[0, 0], [0, missing]])}

        results = {"log_probabilities": tf.TensorSpec([None, width], tf.float32)}
        outputs = rounds.run_by_length(score, sources.ids, results, targets.ids)
        values = outputs["log_probabilities"]
        pieces = tf.ragged.map_flat_values(self.pieces, targets.ids[:, num_marks:]).to_tensor("")
        return {
            "score": tf.reduce_sum(values, axis=1),
            "log_probabilities": values[:, : tf.shape(pieces)[1]],
            "tokens": pieces,
            "truncated": sources.is_cut | targets.is_cut,
        }


class TokenScores(TextSignature):
    """The signature "tokens" of a `Translator`.

    It takes the inputs of the translator, and gives `translation`, `score`, `finished` and
    `truncated` of each text. Further outputs are the pieces that the search has chosen and their
    log-probabilities by the model: `tokens`, strings, and `log_probabilities`, float32, both
    `(batch, length)`, with END at the end of a finished translation, empty and 0 behind it; and
    `log_probability`, float32 `(batch,)`, their sum. The probability of a piece is the model's,
    after the pieces before it; length penalty, temperature and constraints of the search do not
    change it. The token of a language that begins a translation does not count. If the translator
    has a `confidence`, so have the outputs, float32 `(batch,)`: the expected quality of a
    translation with this mean log-probability.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__(translator, *translator.requests)

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        *request, rounds = arguments
        translator = self.exporter
        sources = translator.encode(*request)
        before, _ = translator.target_marks
        # The search starts behind START, and writes the token of a language itself.
        start = before[:1]
        num_marks = max(len(before) - 1, 0)
        padding = translator.padding
        width = translator.most_tokens(translator.longest)

        def translate(ids: tf.RaggedTensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
            tokens, scores, finished = translator.find_tokens(rounds, ids, rows)
            if tokens.shape.rank == 3:  # only the best of several translations, or the first
                tokens, scores, finished = tokens[:, 0], scores[:, 0], finished[:, 0]
            target = tf.concat([rows_of(start, tf.shape(tokens)[0]), tokens], axis=1)
            source = rounds.padded(ids, translator.lengths, padding)
            values = rounds.program(translator.model.log_probabilities)(source, target)
            missing = [[0, 0], [0, width - tf.shape(tokens)[1]]]
            return {
                "translation": translator.tokenizer.detokenize(tokens),
                "score": scores,
                "finished": finished,
                "ids": tf.pad(tokens, missing, constant_values=padding),
                "log_probabilities": tf.pad(values, missing),
            }

        results = {
            "translation": tf.TensorSpec([None], tf.string),
            "score": tf.TensorSpec([None], tf.float32),
            "finished": tf.TensorSpec([None], tf.bool),
            "ids": tf.TensorSpec([None, width], tf.int32),
            "log_probabilities": tf.TensorSpec([None, width], tf.float32),
        }
        numbers = translator.row_numbers(sources.ids)
        outputs = rounds.run_by_length(translate, sources.ids, results, numbers)
        ids = outputs["ids"][:, num_marks:]
        is_real = (ids != padding) & ~sources.is_empty[:, None]
        values = outputs["log_probabilities"][:, num_marks:]
        answer = translator.finish(sources, outputs) | self.score_tokens(ids, values, is_real)
        if translator.confidence is not None:
            number = tf.reduce_sum(tf.cast(is_real, tf.float32), axis=1)
            mean = tf.math.divide_no_nan(answer["log_probability"], number)
            answer["confidence"] = _on_curve(mean, translator.confidence)
        return answer


def _on_curve(x: tf.Tensor, curve: ConfidenceCurve) -> tf.Tensor:
    """Returns `curve(x)`, computed in the graph."""
    scores = tf.constant(curve.scores, tf.float32)
    qualities = tf.constant(curve.qualities, tf.float32)
    x = tf.clip_by_value(x, scores[0], scores[-1])
    index = tf.minimum(tf.searchsorted(scores, x, side="right"), len(curve.scores) - 1)
    previous = tf.maximum(index - 1, 0)
    start, end = tf.gather(scores, previous), tf.gather(scores, index)
    lower, upper = tf.gather(qualities, previous), tf.gather(qualities, index)
    return lower + tf.math.divide_no_nan(x - start, end - start) * (upper - lower)


PHRASES = tf.TensorSpec([None, None], tf.string, name="phrases")
FORMS = 3  # of each phrase
MARKS = (".", ",", "'")  # characters between the digits of a number
PROBE = "a"  # any letter will do


class DemandedPhrases(TextSignature):
    """The signature "phrases" of a `Translator`.

    It has the inputs and outputs of `serving_default`, and the input `phrases`, strings `(batch,
    number)` of at most 12. The translation of each text must hold its phrases, a repeated phrase
    repeatedly; "" is no phrase. A phrase begins a word; a phrase that does not begin with a letter
    may also follow directly on another character. A number is not part of a longer number; a number
    like 1.5 may have the other decimal mark. A phrase that exceeds the limit on tokens does not
    count, nor do the phrases behind it. A phrase with a character that the vocabulary lacks does
    not count. The search is over the whole vocabulary, and has twice the beams, which the phrases
    share.

    Args:
        translator: The `Translator`, whose model, tokenizer and search are used.
    """

    def __init__(self, translator: Any) -> None:
        super().__init__(translator, *translator.requests, PHRASES)
        self._properties: tuple[Any, ...] | None = None

    @property
    def joints(self) -> tuple[Any, Any, Any]:
        """Ids that continue a number, and ids behind which a number continues: see `Request`."""
        return self._tokenizer_properties()[0]

    @staticmethod
    def search_of(search: Search) -> Search:
        """Returns the search for translations that hold phrases."""
        search = plain_search(search)
        if isinstance(search, BeamSearch):
            return dataclasses.replace(search, beam_size=2 * search.beam_size)
        return search

    def _tokenizer_properties(self) -> tuple[Any, ...]:
        """Returns the joints, the blank that begins a word, and the ids of the probe."""
        if self._properties is None:
            with tf.init_scope():
                tokenizer = self.tokenizer
                pieces = tokenizer.pieces(range(tokenizer.vocab_size))
                vocab_size = vocabularies_of(self.exporter.model)[1] or tokenizer.vocab_size
                missing = (0, vocab_size - len(pieces))
                first = np.pad([piece[:1].isdecimal() for piece in pieces], missing)
                links = np.pad([piece in MARKS for piece in pieces], missing)
                last = np.pad([piece[-1:].isdecimal() for piece in pieces], missing) | links
                probe, double_probe = tokenizer.tokenize([PROBE, f"{PROBE} {PROBE}"]).to_list()
                blank = "" if probe + probe == double_probe else " "
                self._properties = (first, last, links), blank, probe
        return self._properties

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        *request, phrases, rounds = arguments
        translator = self.exporter
        shape = tf.shape(phrases)
        message = f"Translator: `phrases` must have a row for each text, of at most {MOST_PHRASES}."
        checks = [
            tf.debugging.assert_equal(shape[0], tf.size(request[0]), message),
            tf.debugging.assert_less_equal(shape[1], MOST_PHRASES, message),
        ]
        with tf.control_dependencies(checks):
            ids = self._encode_forms(tf.identity(phrases), rounds)
        # The number is fixed, so that a search knows how many candidates there are.
        missing = [[0, 0], [0, MOST_PHRASES - shape[1]], [0, 0], [0, 0]]
        ids = tf.pad(ids, missing, constant_values=translator.padding)
        ids = tf.ensure_shape(ids, [None, MOST_PHRASES, FORMS, None])
        return translator.answer(*request, rounds, phrases=[ids])

    def _encode_forms(self, phrases: tf.Tensor, rounds: Rounds) -> tf.Tensor:
        """Returns the ids of three forms of each phrase, `(batch, number, 3, length)`.

        The phrase as a word; directly behind another character; and as a word with the other
        decimal mark.
        """
        _, blank, probe = self._tokenizer_properties()
        translator = self.exporter
        padding = translator.padding
        flat = tf.reshape(phrases, [-1])
        words = self.tokenizer.tokenize(tf.where(flat == "", "", blank + flat))
        behind_probe = self.tokenizer.tokenize(PROBE + flat)
        start = behind_probe[:, : len(probe)].to_tensor(-1, shape=[None, len(probe)])
        is_separate = tf.reduce_all(start == probe, axis=1)
        is_separate &= ~tf.strings.regex_full_match(flat, r"(?s)(\pL.*)?")
        behind = behind_probe[:, len(probe) :]
        is_decimal = tf.strings.regex_full_match(flat, r"\d+[.,]\d+")
        swapped = tf.where(is_decimal, _swap_decimal_mark(flat), "")
        swapped_words = self.tokenizer.tokenize(tf.where(swapped == "", "", blank + swapped))
        limit = translator.most_tokens(translator.longest)
        unknown = getattr(self.tokenizer, "unknown_id", -1)
        forms = []
        for ids, is_form in ((words, True), (behind, is_separate), (swapped_words, True)):
            has_unknown = tf.reduce_any(ids == unknown, axis=1)
            is_form &= ~has_unknown & (ids.row_lengths() <= limit)
            forms.append(tf.where(is_form[:, None], ids[:, :limit].to_tensor(padding), padding))
        length = tf.reduce_max([tf.shape(form)[1] for form in forms])
        if rounds.compiled:  # few lengths: powers of two from 8 on
            powers = tf.constant([1 << i for i in range(3, 31)])
            length = tf.reduce_min(tf.boolean_mask(powers, powers >= length))
        for i, form in enumerate(forms):
            missing = [[0, 0], [0, length - tf.shape(form)[1]]]
            forms[i] = tf.pad(form, missing, constant_values=padding)
        return tf.reshape(tf.stack(forms, axis=1), [*tf.unstack(tf.shape(phrases)), FORMS, length])


def _swap_decimal_mark(numbers: tf.Tensor) -> tf.Tensor:
    """Replaces the point of a number by a comma, or the comma by a point."""
    has_point = tf.strings.regex_full_match(numbers, r".*\..*")
    swapped = tf.strings.regex_replace(numbers, ",", ".")
    return tf.where(has_point, tf.strings.regex_replace(numbers, r"\.", ","), swapped)


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
        super().__init__(translator, *PREFIX, *translator.languages.requests)

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        text, prefix, *language, rounds = arguments
        translator = self.exporter
        sources = translator.encode(text, *language)
        before, _ = translator.target_marks
        prefixes = encode_targets(self, prefix, before)
        number = min(MOST_ALTERNATIVES, self.tokenizer.vocab_size)

        def find(source_ids: tf.RaggedTensor, ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            values, best = rounds.program(self._find_likeliest)(
                rounds.padded(source_ids, translator.lengths, translator.padding),
                rounds.padded(ids, prefixes.lengths, translator.padding),
            )
            return {"log_probabilities": values, "ids": best}

        results = {
            "log_probabilities": tf.TensorSpec([None, number], tf.float32),
            "ids": tf.TensorSpec([None, number], tf.int32),
        }
        outputs = rounds.run_by_length(find, sources.ids, results, prefixes.ids)
        return {
            "tokens": self.pieces(outputs["ids"]),
            "log_probabilities": outputs["log_probabilities"],
            "truncated": sources.is_cut | prefixes.is_cut,
        }

    def _find_likeliest(self, source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the log-probabilities and ids of the likeliest next pieces."""
        values = self.exporter.model.next_log_probabilities(source, target)
        vocab_size = self.tokenizer.vocab_size  # a table may have more rows, for its shape's sake
        values, ids = tf.math.top_k(values[:, :vocab_size], min(MOST_ALTERNATIVES, vocab_size))
        return values, ids
