"""What a translator thinks: of translations, and of what may stand in them."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.words import refused_context
from keras_transformers.predictors.base import received
from keras_transformers.predictors.texts import TextPredictor, pairs_of, scores_of

MOST = 64  # alternatives that an export gives


class Inspected(TextPredictor):
    """A predictor that translates, for `TranslatorPredictor`: its languages, and what it thinks.

    Example:
    >>> from keras_transformers.predictors import TranslatorPredictor
    >>> from keras_transformers.predictors.inspected import Inspected
    >>> issubclass(TranslatorPredictor, Inspected)
    True
    """

    may_take = ("target_language",)
    _asked: str | None = None
    _tells: tuple[bool, bool] = (False, False)  # of tokens, and of confidence

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
        score = self._function("score", "given", ("text", "translation"))
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
        if not 1 <= k <= MOST:
            raise ValueError(f"alternatives: `k` must be from 1 to {MOST}. Received: {k}")
        asked = self.towards(target_language)
        run = self._function("alternatives", "following", ("text", "prefix"))
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
        made._run = self._function("tokens", "with_tokens", ("text",))
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
                f"predict: `confidence` must be False, for {self._source} was not calibrated; see "
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
