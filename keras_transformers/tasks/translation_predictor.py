"""The predictor that translates, and its confidence in translations."""

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
from keras_transformers.tasks.translation_quality import ConfidenceCurve, mean_log_probability
from keras_transformers.tasks.translation_signatures import MOST_ALTERNATIVES, MOST_PHRASES
from keras_transformers.training import sentence_chrf

AnyGlossary = Glossary | Mapping[str, str] | StrPath


class Demanded:
    """Phrases that translations must hold.

    Args:
        glossary: A `Glossary`, a dict of its terms, or the path of its file.
        keep_placeables: Whether placeables are phrases, too, see `words.kept_as_written`.
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
        """Returns the phrases of each sentence, at most `MOST_PHRASES`.

        Args:
            owner: Name of the calling class or function, for messages.
            sentences: The sentences.
            phrases: Phrases of each sentence, which come before those of the glossary and the
                placeables.

        Raises:
            ValueError: If `phrases` are not one list for each sentence.
        """
        if phrases is None:
            phrases = [()] * len(sentences)
        if len(phrases) != len(sentences) or any(isinstance(row, str | bytes) for row in phrases):
            raise ValueError(
                f"{owner}: `phrases` must be a list of phrases for each of {len(sentences)} "
                f"sentences. Received: {phrases!r:.100}"
            )
        rows = []
        for sentence, first in zip(without_context(sentences), phrases, strict=True):
            terms = self._glossary.find(sentence)
            placeables = kept_as_written(sentence) if self._keep_placeables else []
            rows.append([*filter(None, first), *terms, *placeables][:MOST_PHRASES])
        return rows


def answer_with(
    rows: Sequence[Sequence[str]],
    run: Callable[..., Any],
    demanding: Callable[..., Any],
    *inputs: tf.Tensor,
) -> dict[str, Any]:
    """Answers texts, a dict of arrays: by `demanding` if they have phrases, otherwise by `run`.

    Args:
        rows: Phrases of each text.
        run: Function of the inputs that returns a dict of tensors.
        demanding: Function of the inputs and `phrases` `(batch, number)` that returns the same.
        *inputs: Texts `(batch,)`, and their languages, if there is a choice.
    """
    has_phrases = np.array([bool(row) for row in rows], bool)
    if not has_phrases.any():
        return {name: np.asarray(values) for name, values in run(*inputs).items()}
    answer: dict[str, Any] = {}
    for is_chosen, function in ((has_phrases, demanding), (~has_phrases, run)):
        (numbers,) = np.nonzero(is_chosen)
        if not len(numbers):
            continue
        arguments = [tf.gather(x, numbers) for x in inputs]
        if function is demanding:
            arguments.append(dense([rows[int(i)] for i in numbers]))
        for name, values in function(*arguments).items():
            values = np.asarray(values)
            whole = np.empty((len(rows), *values.shape[1:]), values.dtype)
            answer.setdefault(name, whole)[numbers] = values
    return answer


def dense(phrases: Sequence[Sequence[str]]) -> tf.Tensor:
    """Pads lists of phrases with "" to strings `(batch, number)`."""
    number = max(map(len, phrases), default=0)
    rows = [[*row, *[""] * (number - len(row))] for row in phrases]
    return tf.constant(rows, tf.string, shape=[len(rows), number])


class TranslatorPredictor(TextPredictor):
    """Translates texts: a str for each text; with `details` a dict.

    The dict has `translation`, `score`, the score of the search, `finished`, whether the model
    ended the translation itself, and `truncated`, whether the end of the text was cut off. A
    translator into several languages needs one: `predict(texts, target_language="de")`.
    `predict(texts, scores=True)` and `confidence=True` add the model's opinion of its translations,
    and `score` gives that of other translations. `alternatives` lists the pieces that may follow
    the beginning of a translation, and `align` links words. If there is a `context`, a text can
    have that number of previous sentences in front, see `contexts.in_context`.

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
    _language: str | None = None
    _tells: tuple[bool, bool] = (False, False)  # whether answers have scores, and confidence

    @property
    def search(self) -> Any:
        """The search, see `export.Translator`; None for a SavedModel, which hides it."""
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
            target_language: The code of one of `target_languages`, if there is a choice.
            glossary: Terms that must be in the translation: a `localization.Glossary`, a dict, or
                the path of its file.
            keep_placeables: Whether tags, placeholders, addresses and numbers of a text must be in
                its translation, see `placeables`.
            scores: Whether to add `log_probability`, that of the whole translation by the model,
                and `tokens`, a list of `(piece, log-probability)`, with END at the end of a
                finished translation.
            confidence: Whether to add `confidence`, the expected quality of the translation: the
                mean sentence chrF, 0 to 100, of validation translations with the same mean
                log-probability, see `fitting.calibrate_confidence`.
            new_tokens: Most tokens of a translation; by default the number of the loaded model.
            search: `Greedy()`, `BeamSearch(...)` or `Sampling(...)` in place of the loaded model's
                search. It takes the boundaries of that search (START, END, the token of a
                language), and its constraints if it has none of its own. Each new search compiles
                anew.
            seed: Seed of the samples, for the same translations every time. The random numbers of a
                text follow from the seed and the number of the text, whatever `batch_size` is.
            n_best: Number of translations of each text. The answer is then a list of them, the best
                first, or in the order in which they were drawn.

        Returns:
            A str, or with `n_best` a list of str; for many texts a list of those. With `details`,
            `scores` or `confidence` a dict in place of a str or a list. If there are several
            translations of each text, the dict of `details` also has the lists `translations` and
            `scores`.

        Raises:
            ValueError: If there is no such language; an item is no text; a setting is impossible;
                there are settings and only a SavedModel, whose search and length are fixed;
                `confidence` was not calibrated, or not for this search or length; or `scores` or
                `confidence` stand beside phrases or `n_best`.
            AttributeError: If the export takes no phrases, or cannot give `scores`.
        """
        predictor = self._change_settings(new_tokens, search, seed, n_best)
        if predictor is not self and (confidence or scores and n_best is not None):
            raise ValueError(
                "predict: `confidence` must be False beside `new_tokens`, `search`, `seed` and "
                "`n_best`, and `scores` beside `n_best`. "
                f"Received: scores={scores}, confidence={confidence}"
            )
        predictor = predictor.towards(target_language)
        demanding = predictor.demanding(glossary, keep_placeables)
        telling = predictor.telling(scores, confidence)
        if demanding is not predictor and telling is not predictor:
            raise ValueError(
                "predict: `scores` and `confidence` must be False beside `glossary` and "
                f"`keep_placeables`. Received: scores={scores}, confidence={confidence}"
            )
        predictor = demanding if telling is predictor else telling
        return super(TranslatorPredictor, predictor).predict(raw, batch_size, verbose, details)

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
            search: `Greedy()` or `Sampling(...)` of one sample, in place of the translator's own.
            tokens_at_a_time: Most tokens that are chosen before they are handed over. By default
                the first comes alone, and then as many as take about a tenth of a second.

        Returns:
            An iterator of str. Joined, they are the translation of `predict`, by the same seed. Its
            attributes are `truncated`, and `finished`, whether the model ended the translation. It
            may be left at any time.

        Raises:
            ValueError: If `text` is no text, there is no such language, a setting is impossible,
                the search chooses several sequences, as a beam search does, or there is only a
                SavedModel.
        """
        predictor = self._change_settings(new_tokens, search, seed, None).towards(target_language)
        return predictor._stream_text(text, tokens_at_a_time, predictor._language)

    def demanding(self, glossary: AnyGlossary | None = None, keep_placeables: bool = False) -> Self:
        """Returns the translator whose translations hold terms or placeables, see `predict`."""
        demanded = Demanded(glossary, keep_placeables, self._language)
        if not demanded:
            return self
        language = self.may_take if self.target_languages else ()
        run = self._run
        run_with_phrases = self._find_function("phrases", ("text", *language, "phrases"))

        def answer(text: tf.Tensor, *languages: tf.Tensor) -> dict[str, Any]:
            rows = demanded.rows("predict", [sentence.decode() for sentence in text.numpy()])
            return answer_with(rows, run, run_with_phrases, text, *languages)

        return self._replace_function(answer)

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
        """Yields answers as `Predictor.each` does, with the arguments of `predict`."""
        predictor = self._change_settings(new_tokens, search, seed, n_best)
        predictor = predictor.towards(target_language).demanding(glossary, keep_placeables)
        return super(TranslatorPredictor, predictor).each(items, batch_size, verbose, details)

    @property
    def context(self) -> int:
        """Number of previous sentences that the model reads, see `export.Translator`; often 0."""
        return self.previous or getattr(self._run, "context", 0)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes of the languages to choose from; empty if there is no choice."""
        languages: tuple[str, ...] = getattr(self._run, "target_languages", ())
        return self.languages or languages

    def towards(self, target_language: str | None) -> Self:
        """Returns the translator into one of its languages.

        Args:
            target_language: Code of the language; None if there is no choice.

        Raises:
            ValueError: If there is no such language, or a choice and no code.
        """
        codes = self.target_languages
        if target_language is None and (not codes or self._language is not None):
            return self
        if target_language not in codes:
            allowed = f"one of {', '.join(codes)}" if codes else "None: there is no choice"
            raise ValueError(
                f"translator: `target_language` must be {allowed}. Received: {target_language!r}"
            )
        predictor = copy.copy(self)
        predictor._language = target_language
        return predictor

    def score(
        self,
        texts: Sequence[str | bytes],
        translations: Sequence[str | bytes],
        batch_size: int | None = None,
        target_language: str | None = None,
    ) -> list[dict[str, Any]]:
        """Computes the log-probabilities of translations by the model.

        Args:
            texts, translations: Lists of one length.
            batch_size: Pairs of a request; by default 1,024.
            target_language: As `predict` takes it.

        Returns:
            A dict for each pair: `score`, the logarithm of the translation's probability, the sum
            over its tokens and END; `tokens`, a list of `(piece, log-probability)`, END the last;
            and `truncated`, whether a text or its translation was cut.

        Raises:
            ValueError: If the lists differ in length, or an item is no text.
            AttributeError: If the export cannot score.
        """
        sides = [texts, translations]
        if any(isinstance(side, str | bytes) for side in sides) or len(texts) != len(translations):
            sizes = [side if isinstance(side, str | bytes) else len(side) for side in sides]
            raise ValueError(
                "score: `texts` and `translations` must be lists as long as each other. "
                f"{received(sizes)}"
            )
        predictor = self.towards(target_language)
        score = self._find_function("score", ("text", "translation"))
        return predictor._score_items(score, sides, batch_size)

    def alternatives(
        self,
        text: str | bytes | Sequence[str | bytes],
        prefix: str | bytes | Sequence[str | bytes],
        k: int = 10,
        target_language: str | None = None,
    ) -> Any:
        """Returns the pieces that most probably follow the beginning of a translation.

        Args:
            text: A text, or a list of them.
            prefix: The beginning of its translation, "" for nothing; or a list.
            k: Number of pieces, at most 64.
            target_language: As `predict` takes it.

        Returns:
            A list of `(piece, log-probability)`, the likeliest first; or a list of such lists. A
            piece continues the last word of the prefix, or begins another, with a blank as the
            tokenizer writes it.

        Raises:
            ValueError: If texts and prefixes differ in number, `k` is out of its range, or a text
                or a prefix is longer than the translator takes.
            AttributeError: If the export cannot do this.
        """
        is_alone = isinstance(text, str | bytes)
        sides: list[Any] = [[text], [prefix]] if is_alone else [text, prefix]
        if len(sides[0]) != len(sides[1]) or not is_alone and isinstance(prefix, str | bytes):
            raise ValueError(
                "alternatives: `prefix` must be as `text` is, one or a list as long. "
                f"{received(prefix)}"
            )
        if not 1 <= k <= MOST_ALTERNATIVES:
            raise ValueError(
                f"alternatives: `k` must be from 1 to {MOST_ALTERNATIVES}. Received: {k}"
            )
        predictor = self.towards(target_language)
        run = self._find_function("alternatives", ("text", "prefix"))
        encoded = [[self._encoded(item) for item in side] for side in sides]
        inputs = [tf.constant(side, tf.string, [len(side)]) for side in encoded]
        outputs = run(*inputs, *predictor._further_inputs(len(sides[0])))
        outputs = {name: tensor.numpy() for name, tensor in outputs.items()}
        if outputs["truncated"].any():
            number = int(np.argmax(outputs["truncated"]))
            raise ValueError(f"alternatives: item {number} is longer than the translator takes.")
        rows = zip(outputs["tokens"][:, :k], outputs["log_probabilities"][:, :k], strict=True)
        answers = [pairs_of(*row) for row in rows]
        return answers[0] if is_alone else answers

    def align(
        self, texts: Sequence[str], translations: Sequence[str], **options: Any
    ) -> list[list[tuple[int, int]]]:
        """Links words of translations to those of their texts: see `alignment.align_words`.

        By default a run with a head of guided alignment uses this head.

        Args:
            texts, translations: Lists of str of one length.
            **options: `layer`, `heads`, `at` and `learned`; and `target_language`, if there is a
                choice.

        Raises:
            ValueError: As `alignment.align_words`.
            AttributeError: If there is no model, only a SavedModel.
        """
        from keras_transformers.alignment import align_words  # it needs tensorflow-text

        language = self.towards(options.pop("target_language", None))._language
        tokenizer = self.tokenizer if language is None else self.tokenizer.towards(language)
        options["target_marks"] = getattr(self._run, "target_marks", None)
        if "alignment" in self._parts and len(options) == 1:
            options["learned"] = self._part("alignment")
        return align_words(self.model, tokenizer, texts, translations, **options)

    def telling(self, scores: bool = True, confidence: bool = False) -> Self:
        """Returns the translator whose answers have `scores` or `confidence`, see `predict`."""
        if not scores and not confidence:
            return self
        predictor = self._replace_function(self._find_function("tokens", ("text",)))
        predictor._tells = (scores, confidence)
        return predictor

    def _describe_scores(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the scores and the confidence of an answer, if it has them."""
        has_scores, has_confidence = self._tells
        entries = scores_of(row) if has_scores else {}
        if not has_confidence:
            return entries
        if "confidence" not in row:
            raise ValueError(
                f"predict: `confidence` must be False, for {self.source} was not calibrated; see "
                "fitting.calibrate_confidence. Received: True"
            )
        return entries | {"confidence": float(row["confidence"])}

    def _encoded(self, item: Any) -> Any:
        encoded = super()._encoded(item)
        reason = refused_context(encoded, self.context)
        if reason:
            raise ValueError(reason)
        return encoded

    def _further_inputs(self, number: int) -> tuple[tf.Tensor, ...]:
        return () if self._language is None else (tf.fill([number], self._language),)

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        translation = text_of(row["translation"])
        scores = self._describe_scores(row)
        translations = []
        if "translations" in row:
            translations = [text_of(text) for text in row["translations"]]
        if not details and not scores:
            return (translations or [translation]) if self._lists else translation
        # SavedModels of 0.2.0 do not tell whether they ended a translation.
        flags = {name: bool(row[name]) for name in ("finished", "truncated") if name in row}
        answer: dict[str, Any] = {"translation": translation, "score": float(row["score"])}
        answer |= flags | scores
        if translations:
            answer |= {"translations": translations, "scores": row["scores"].tolist()}
        return answer


def calibrate_confidence(
    translator: Any,
    sources: Sequence[str],
    references: Sequence[str],
    target_language: str | None = None,
) -> ConfidenceCurve:
    """Calibrates the quality that a translator expects of its translations.

    It translates validation sentences that the model has not learned from, and sets
    `translator.confidence`: the mean sentence chrF of translations by the mean log-probability of
    their tokens. The curve holds for similar texts, this search and these weights. `save` writes
    it, too.

    Args:
        translator: An `export.Translator`.
        sources, references: Lists of str of one length; some hundreds or more.
        target_language: The code of the references' language, if there is a choice.

    Returns:
        The `ConfidenceCurve`.

    Raises:
        ValueError: If the lists differ in length or hold nothing.
        ImportError: If sacreBLEU is not installed.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.fitting import calibrate_confidence
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> translator = Translator(model, tokenizer, source_lengths=(8,))
    >>> curve = calibrate_confidence(translator, ["a cat", "a mat"], ["a cat", "a mat"])
    >>> 0 <= translator.predict("a cat", confidence=True)["confidence"] <= 100
    True
    """
    if len(sources) != len(references) or not sources:
        raise ValueError(
            "calibrate_confidence: `sources` and `references` must be lists as long as each other "
            f"and not empty. Received: {len(sources)} and {len(references)}"
        )
    predictor = TranslatorPredictor(translator)
    rows = predictor.predict(list(sources), scores=True, target_language=target_language)
    numbers = [i for i, row in enumerate(rows) if row["tokens"]]  # an empty text has none
    scores = [mean_log_probability(rows[i]) for i in numbers]
    translations = [rows[i]["translation"] for i in numbers]
    qualities = sentence_chrf(translations, [references[i] for i in numbers])
    curve = ConfidenceCurve.fit(scores, qualities)
    translator.confidence = curve
    return curve
