"""The predictor that translates, and says what the model thinks of translations."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_transformers.contexts import refused_context
from keras_transformers.predictors.base import received
from keras_transformers.predictors.texts import TextPredictor, text_of


class TranslatorPredictor(TextPredictor):
    """Translates: a str for each text; with `details` a dict.

    That has `translation`, `score` and `truncated`, whether the end of the text was cut off. Where
    there are several languages, one is asked for: `predict(texts, target_language="de")`. A text
    can have `context` previous sentences in front: `predict(in_context("It is.", ["The door."]))`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TranslatorPredictor
    >>> def upper(text):
    ...     truncated, scores = tf.zeros(len(text), tf.bool), tf.zeros(len(text))
    ...     return {"translation": tf.strings.upper(text), "score": scores, "truncated": truncated}
    >>> translator = TranslatorPredictor(upper)
    >>> translator.predict("open the door"), translator.predict(["open", b"shut"])
    ('OPEN THE DOOR', ['OPEN', 'SHUT'])
    >>> translator.predict("open", details=True)
    {'translation': 'OPEN', 'score': 0.0, 'truncated': False}
    """

    kind = "translator"
    may_take = ("target_language",)
    _asked: str | None = None

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

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        target_language: str | None = None,
    ) -> Any:
        """Translates one text, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            target_language: The code of one of `target_languages`, where there are some.

        Returns:
            A str, or a list; with `details` dicts.

        Raises:
            ValueError: If there is no such language, or an item is no text.
        """
        return super(TranslatorPredictor, self.towards(target_language)).predict(
            raw, batch_size, verbose, details
        )

    def each(
        self,
        items: Iterable[Any],
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        target_language: str | None = None,
    ) -> Iterator[Any]:
        """As `Predictor.each`, into a language as `predict` takes it."""
        return super(TranslatorPredictor, self.towards(target_language)).each(
            items, batch_size, verbose, details
        )

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
        given, size = self._given(), batch_size or self.rows
        encoded = [[self._encoded(item) for item in side] for side in sides]
        rows: list[dict[str, Any]] = []
        for start in range(0, len(texts), size):
            part = [tf.constant(side[start : start + size], tf.string) for side in encoded]
            part += asked._besides(len(part[0]))
            found = {name: tensor.numpy() for name, tensor in given(*part).items()}
            names = ("score", "log_probabilities", "tokens", "truncated")
            for score, values, tokens, cut in zip(*(found[x] for x in names), strict=True):
                pieces = [text_of(piece) for piece in tokens if piece]
                pairs = list(zip(pieces, map(float, values), strict=False))
                rows.append({"score": float(score), "tokens": pairs, "truncated": bool(cut)})
        return rows

    def _given(self) -> Callable[..., Any]:
        """The function of texts and translations."""
        signatures = getattr(vars(self).get("loaded"), "signatures", {})
        if "score" in signatures:
            run, names = signatures["score"], ("text", "translation", *self.may_take)
            return lambda *given: run(**dict(zip(names, given, strict=False)))
        given: Callable[..., Any] | None = getattr(self._run, "given", None)
        if given is None:
            raise AttributeError(
                f"score: {self._source} has no signature 'score'; export it by this version."
            )
        return given

    def _besides(self, number: int) -> tuple[tf.Tensor, ...]:
        return () if self._asked is None else (tf.fill([number], self._asked),)

    def _encoded(self, item: Any) -> Any:
        encoded = super()._encoded(item)
        if refused := refused_context(encoded, self.context):
            raise ValueError(refused)
        return encoded

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        translation = text_of(row["translation"])
        if not details:
            return translation
        score, truncated = float(row["score"]), bool(row["truncated"])
        return {"translation": translation, "score": score, "truncated": truncated}
