"""The predictor that translates."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath
from keras_transformers.core.words import kept_as_written, refused_context, without_context
from keras_transformers.generation.search import Search
from keras_transformers.localization.glossary import Glossary
from keras_transformers.tasks.predictor import received
from keras_transformers.tasks.text_predictor import (
    TextPredictor,
    TextStream,
    pairs_of,
    scores_of,
    text_of,
)

MOST_PHRASES = 12  # phrases of one sentence; what is behind them is not demanded
AnyGlossary = Glossary | Mapping[str, str] | StrPath


class Demanded:
    """What translations must hold.

    Args:
        glossary: A `Glossary`, a dict of its terms, or the path of its file.
        keep_placeables: Whether placeables are phrases, too: see `placeables.kept_as_written`.
        language: The target language, for a glossary that names several.
    """

    def __init__(
        self,
        glossary: AnyGlossary | None = None,
        keep_placeables: bool = False,
        language: str | None = None,
    ) -> None:
        self._keep_placeables = keep_placeables
        if glossary is None or isinstance(glossary, Mapping):
            glossary = Glossary(glossary or {})
        elif not isinstance(glossary, Glossary):
            glossary = Glossary.read(glossary)
        self._glossary = glossary if language is None else glossary.towards(language)

    def __bool__(self) -> bool:
        return self._keep_placeables or len(self._glossary) > 0

    def rows(
        self, owner: str, sentences: Sequence[str], phrases: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """The phrases of each sentence, at most `MOST_PHRASES`.

        First those that are given, then those of the glossary, then placeables.

        Raises:
            ValueError: If `phrases` are not one list for each.
        """
        given = [()] * len(sentences) if phrases is None else phrases
        if len(given) != len(sentences) or any(isinstance(row, str | bytes) for row in given):
            raise ValueError(
                f"{owner}: `phrases` must be a list of phrases for each of {len(sentences)} "
                f"sentences. Received: {given!r:.100}"
            )
        rows = []
        for sentence, row in zip(without_context(sentences), given, strict=True):
            kept = kept_as_written(sentence) if self._keep_placeables else []
            rows.append([*filter(None, row), *self._glossary.find(sentence), *kept][:MOST_PHRASES])
        return rows


def answer_with(
    rows: Sequence[Sequence[str]],
    run: Callable[..., Any],
    demanding: Callable[..., Any],
    *given: tf.Tensor,
) -> dict[str, Any]:
    """A dict of arrays for texts: those with phrases from `demanding`, the others from `run`.

    Args:
        rows: Phrases of each text.
        run: Function of texts, `(batch,)`, and what is asked besides, that gives a dict of tensors.
        demanding: The same with `phrases` `(batch, number)` behind it.
        *given: Texts, and what is asked besides.
    """
    having = np.array([bool(row) for row in rows], bool)
    if not having.any():
        return {name: np.asarray(values) for name, values in run(*given).items()}
    found: dict[str, Any] = {}
    for which, function in ((having, demanding), (~having, run)):
        (chosen,) = np.nonzero(which)
        if not len(chosen):
            continue
        part = [tf.gather(each, chosen) for each in given]
        part += [dense([rows[int(i)] for i in chosen])] if function is demanding else []
        for name, values in function(*part).items():
            values = np.asarray(values)
            whole = np.empty((len(rows), *values.shape[1:]), values.dtype)
            found.setdefault(name, whole)[chosen] = values
    return found


def dense(phrases: Sequence[Sequence[str]]) -> tf.Tensor:
    """Lists of phrases as strings `(batch, number)`, "" where there is none."""
    number = max(map(len, phrases), default=0)
    rows = [[*row, *[""] * (number - len(row))] for row in phrases]
    return tf.constant(rows, tf.string, shape=[len(rows), number])


MOST_ALTERNATIVES = 64  # alternatives that an export gives


class TranslatorPredictor(TextPredictor):
    """Translates: a str for each text; with `details` a dict.

    That has `translation`, `score`, the search's, `finished`, whether the model ended the
    translation itself, and `truncated`, whether the end of the text was cut off. Where there are
    several languages, one is asked for: `predict(texts, target_language="de")`. What the model
    thinks of its own translations comes with `predict(texts, scores=True)` and `confidence=True`,
    of others from `score`; `alternatives` are what may follow the beginning of a translation, and
    `align` links words. Where there is `context`, a text can have so many previous sentences in
    front: see `contexts.in_context`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TranslatorPredictor
    >>> def upper(text):
    ...     ended = tf.ones(len(text), tf.bool)
    ...     return {"translation": tf.strings.upper(text), "score": tf.zeros(len(text)),
    ...             "finished": ended, "truncated": ~ended}
    >>> translator = TranslatorPredictor(upper)
    >>> translator.predict("open the door"), translator.predict(["open", b"shut"])
    ('OPEN THE DOOR', ['OPEN', 'SHUT'])
    >>> translator.predict("open", details=True)
    {'translation': 'OPEN', 'score': 0.0, 'finished': True, 'truncated': False}
    """

    kind = "translator"
    may_take = ("target_language",)
    _asked: str | None = None
    _tells: tuple[bool, bool] = (False, False)  # of tokens, and of confidence

    @property
    def search(self) -> Any:
        """What chooses tokens, see `export.Translator`; None of a SavedModel, which hides it."""
        return getattr(self._run, "search", None)

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        target_language: str | None = None,
        glossary: AnyGlossary | None = None,
        keep_placeables: bool = False,
        scores: bool = False,
        confidence: bool = False,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
    ) -> Any:
        """Translates one text, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            target_language: The code of one of `target_languages`, where there are some.
            glossary: A `localization.Glossary`, a dict of its terms, or the path of its file: what
                terms must be in the translation.
            keep_placeables: Whether tags, placeholders, addresses and numbers of a text must be in
                its translation, see `placeables`.
            scores: Whether to say how probable the model finds its translation: adds
                `log_probability`, of the whole, and `tokens`, a list of `(piece, log-probability)`,
                END the last where the translation has come to it.
            confidence: Whether to say how good the translation may be expected to be: adds
                `confidence`, the mean sentence chrF, 0 to 100, of validation translations of which
                the model was as sure; see `fitting.calibrate_confidence`.

            new_tokens: Most tokens of a translation; by default as it was loaded.
            search: `Greedy()`, `BeamSearch(...)` or `Sampling(...)` in place of the one that it was
                loaded with, whose boundaries it takes (START, END, the token of a language), and
                whose constraints if it has none of its own. Each new search compiles anew.
            seed: Seed of what is drawn, for the same translations every time. The random numbers of
                a text follow from the seed and its place among all, whatever `batch_size` is.
            n_best: Number of translations of each text; a list of them is then the answer, best
                first, or in the order in which they were drawn.

        Returns:
            A str, or with `n_best` a list of str; for many texts a list of those. With `details`,
            `scores` or `confidence` dicts in place of a str or a list; where there are several
            translations of each, they have with `details` also `translations` and `scores`, lists.

        Raises:
            ValueError: If there is no such language, an item is no text, `confidence` is asked
                for where it was not calibrated, `scores` or `confidence` beside phrases or
                `n_best`, `confidence` beside another search or length, for which it was not
                calibrated; a setting is impossible, or there is only a SavedModel, whose search and
                length are fixed.
            AttributeError: If what was exported takes no phrases, or cannot give `scores`.
        """
        writing = self._writing(new_tokens, search, seed, n_best)
        if writing is not self and (confidence or scores and n_best is not None):
            raise ValueError(
                "predict: `confidence` must be False beside `new_tokens`, `search`, `seed` and "
                "`n_best`, and `scores` beside `n_best`. "
                f"Received: scores={scores}, confidence={confidence}"
            )
        asked = writing.towards(target_language)
        demanding = asked.demanding(glossary, keep_placeables)
        telling = asked.telling(scores, confidence)
        if demanding is not asked and telling is not asked:
            raise ValueError(
                "predict: `scores` and `confidence` must be False beside `glossary` and "
                f"`keep_placeables`. Received: scores={scores}, confidence={confidence}"
            )
        chosen = demanding if telling is asked else telling
        return super(TranslatorPredictor, chosen).predict(raw, batch_size, verbose, details)

    def stream(
        self,
        text: str | bytes,
        target_language: str | None = None,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        tokens_at_a_time: int | None = None,
    ) -> TextStream:
        """Translates one text, and hands over the translation while it is written.

        Args:
            text: The text.
            target_language, new_tokens, seed: As `predict` takes them.
            search: `Greedy()` or `Sampling(...)` of one sample, where the own search is another.
            tokens_at_a_time: Most tokens that are chosen between two looks at them. By default the
                first comes alone, and then as many as take about a tenth of a second.

        Returns:
            An iterator of str. Joined, they are the translation of `predict`, by the same seed. Its
            attributes are `truncated`, and `finished`, whether the model ended the translation. It
            may be left at any time.

        Raises:
            ValueError: If it is no text, there is no such language, a setting is impossible, the
                search chooses several sequences, as a beam search does, or there is only a
                SavedModel.
        """
        writing = self._writing(new_tokens, search, seed, None).towards(target_language)
        return writing._streamed(text, tokens_at_a_time, writing._asked)

    def demanding(self, glossary: AnyGlossary | None = None, keep_placeables: bool = False) -> Self:
        """The translator whose translations hold what must be in them, see `predict`."""
        demanded = Demanded(glossary, keep_placeables, self._asked)
        if not demanded:
            return self
        language = self.may_take if self.target_languages else ()
        run = self._run
        holding = self._function("phrases", ("text", *language, "phrases"))

        def answer(text: tf.Tensor, *besides: tf.Tensor) -> dict[str, Any]:
            rows = demanded.rows("predict", [each.decode() for each in text.numpy()])
            return answer_with(rows, run, holding, text, *besides)

        made = copy.copy(self)
        made._run, made._drawing = answer, self._drawing or run
        return made

    def each(
        self,
        items: Iterable[Any],
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        target_language: str | None = None,
        glossary: AnyGlossary | None = None,
        keep_placeables: bool = False,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
    ) -> Iterator[Any]:
        """As `Predictor.each`, into a language and with what `predict` takes besides."""
        writing = self._writing(new_tokens, search, seed, n_best)
        chosen = writing.towards(target_language).demanding(glossary, keep_placeables)
        return super(TranslatorPredictor, chosen).each(items, batch_size, verbose, details)

    @property
    def context(self) -> int:
        """How many previous sentences it reads before each, see `export.Translator`; often 0."""
        return vars(self).get("previous", 0) or getattr(self._run, "context", 0)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes of the languages to choose from; none where there is no choice."""
        found: tuple[str, ...] = vars(self).get("languages", ())
        return found or getattr(self._run, "target_languages", ())

    def towards(self, target_language: str | None) -> Self:
        """The translator into one of the languages that there are; None where there is one alone.

        Raises:
            ValueError: If there is no such language, or none was given where there are several.
        """
        known = self.target_languages
        if target_language is None and (not known or self._asked is not None):
            return self
        if target_language not in known:
            allowed = f"one of {', '.join(known)}" if known else "None: there is no choice"
            raise ValueError(
                f"translator: `target_language` must be {allowed}. Received: {target_language!r}"
            )
        made = copy.copy(self)
        made._asked = target_language
        return made

    def score(
        self,
        texts: Sequence[str | bytes],
        translations: Sequence[str | bytes],
        batch_size: int | None = None,
        target_language: str | None = None,
    ) -> list[dict[str, Any]]:
        """How probable given translations are, by the model.

        Args:
            texts, translations: Lists of one length.
            batch_size: Pairs of a request; by default 1,024.
            target_language: As `predict` takes it.

        Returns:
            A dict for each pair: `score`, the logarithm of the translation's probability, the sum
            over its tokens and END; `tokens`, a list of `(piece, log-probability)`, END the last;
            and `truncated`, whether a text or its translation was cut.

        Raises:
            ValueError: If the lists differ in length, or one holds something that is no text.
            AttributeError: If what was exported cannot score.
        """
        sides = [texts, translations]
        if any(isinstance(side, str | bytes) for side in sides) or len(texts) != len(translations):
            shown = [side if isinstance(side, str | bytes) else len(side) for side in sides]
            raise ValueError(
                "score: `texts` and `translations` must be lists as long as each other. "
                f"{received(shown)}"
            )
        asked = self.towards(target_language)
        score = self._function("score", ("text", "translation"))
        return asked._scores(score, sides, batch_size)

    def alternatives(
        self,
        text: str | bytes | Sequence[str | bytes],
        prefix: str | bytes | Sequence[str | bytes],
        k: int = 10,
        target_language: str | None = None,
    ) -> Any:
        """The pieces that the model finds likeliest to follow the beginning of a translation.

        Args:
            text: A text, or a list of them.
            prefix: The beginning of its translation, "" for nothing; or a list.
            k: How many pieces, at most 64.
            target_language: As `predict` takes it.

        Returns:
            A list of `(piece, log-probability)`, the likeliest first; or a list of such lists. A
            piece goes on with the last word of the prefix, or begins another, with a blank as the
            tokenizer writes it.

        Raises:
            ValueError: If texts and prefixes differ in number, `k` is out of its range, or a text
                or a prefix is longer than the translator takes.
            AttributeError: If what was exported cannot do this.
        """
        alone = isinstance(text, str | bytes)
        sides: list[Any] = [[text], [prefix]] if alone else [text, prefix]
        if len(sides[0]) != len(sides[1]) or not alone and isinstance(prefix, str | bytes):
            raise ValueError(
                "alternatives: `prefix` must be as `text` is, one or a list as long. "
                f"{received(prefix)}"
            )
        if not 1 <= k <= MOST_ALTERNATIVES:
            raise ValueError(
                f"alternatives: `k` must be from 1 to {MOST_ALTERNATIVES}. Received: {k}"
            )
        asked = self.towards(target_language)
        run = self._function("alternatives", ("text", "prefix"))
        encoded = [[self._encoded(item) for item in side] for side in sides]
        given = [tf.constant(side, tf.string, [len(side)]) for side in encoded]
        found = {
            name: tensor.numpy()
            for name, tensor in run(*given, *asked._besides(len(sides[0]))).items()
        }
        if found["truncated"].any():
            number = int(np.argmax(found["truncated"]))
            raise ValueError(f"alternatives: item {number} is longer than the translator takes.")
        rows = zip(found["tokens"][:, :k], found["log_probabilities"][:, :k], strict=True)
        answers = [pairs_of(*row) for row in rows]
        return answers[0] if alone else answers

    def align(
        self, texts: Sequence[str], translations: Sequence[str], **options: Any
    ) -> list[list[tuple[int, int]]]:
        """Links words of translations to those of their texts: see `alignment.align_words`.

        A run with a head of guided alignment takes that, where nothing else is asked for.

        Args:
            texts, translations: Lists of str of one length.
            **options: `layer`, `heads`, `at` and `learned`; and `target_language`, where there are
                several.

        Raises:
            ValueError: As `alignment.align_words`.
            AttributeError: If there is no model, as of a SavedModel alone.
        """
        from keras_transformers.alignment import align_words  # where tokenizers can be made

        language = self.towards(options.pop("target_language", None))._asked
        tokenizer = self.tokenizer if language is None else self.tokenizer.towards(language)
        options["target_marks"] = getattr(self._run, "target_marks", None)
        if "alignment" in self._parts and len(options) == 1:
            options["learned"] = self._part("alignment")
        return align_words(self.model, tokenizer, texts, translations, **options)

    def telling(self, scores: bool = True, confidence: bool = False) -> Self:
        """Returns the translator whose answers have `scores` or `confidence`, see `predict`."""
        if not scores and not confidence:
            return self
        made = copy.copy(self)
        made._drawing = self._drawing or self._run
        made._run = self._function("tokens", ("text",))
        made._tells = (scores, confidence)
        return made

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """What an answer has besides."""
        scores, confidence = self._tells
        found: dict[str, Any] = {}
        if scores:
            found = scores_of(row)
        if confidence and "confidence" not in row:
            raise ValueError(
                f"predict: `confidence` must be False, for {self.source} was not calibrated; see "
                "fitting.calibrate_confidence. Received: True"
            )
        return found | ({"confidence": float(row["confidence"])} if confidence else {})

    def _encoded(self, item: Any) -> Any:
        encoded = super()._encoded(item)
        if refused := refused_context(encoded, self.context):
            raise ValueError(refused)
        return encoded

    def _besides(self, number: int) -> tuple[tf.Tensor, ...]:
        return () if self._asked is None else (tf.fill([number], self._asked),)

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        translation = text_of(row["translation"])
        more = self._told(row)
        every = [text_of(text) for text in row["translations"]] if "translations" in row else []
        if not details and not more:
            return (every or [translation]) if self._lists else translation
        # SavedModels of 0.2.0 do not tell whether they ended a translation.
        flags = {name: bool(row[name]) for name in ("finished", "truncated") if name in row}
        answer: dict[str, Any] = {"translation": translation, "score": float(row["score"])}
        answer |= flags | more
        if every:
            answer |= {"translations": every, "scores": row["scores"].tolist()}
        return answer
