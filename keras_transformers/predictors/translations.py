"""The predictor that translates."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import tensorflow as tf

from keras_transformers.predictors.demands import AnyGlossary, Demanded, answer_with
from keras_transformers.predictors.inspected import Inspected
from keras_transformers.predictors.texts import text_of

if TYPE_CHECKING:
    from keras_transformers.generation.search import Search
    from keras_transformers.predictors.text_streams import TextStream


class TranslatorPredictor(Inspected):
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
        holding = self._function("phrases", "with_phrases", ("text", *language, "phrases"))

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
