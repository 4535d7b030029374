"""The predictor that translates."""

from collections.abc import Iterable, Iterator
from typing import Any

from keras_transformers.predictors.inspected import Inspected
from keras_transformers.predictors.texts import text_of


class TranslatorPredictor(Inspected):
    """Translates: a str for each text; with `details` a dict.

    That has `translation`, `score`, the search's, and `truncated`, whether the end of the text was
    cut off. Where there are several languages, one is asked for: `predict(texts,
    target_language="de")`. What the model thinks of its own translations comes with
    `predict(texts, scores=True)` and `confidence=True`, of others from `score`; `alternatives` are
    what may follow the beginning of a translation, and `align` links words.

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

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        target_language: str | None = None,
        scores: bool = False,
        confidence: bool = False,
    ) -> Any:
        """Translates one text, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            target_language: The code of one of `target_languages`, where there are some.
            scores: Whether to say how probable the model finds its translation: adds
                `log_probability`, of the whole, and `tokens`, a list of `(piece, log-probability)`,
                END the last where the translation has come to it.
            confidence: Whether to say how good the translation may be expected to be: adds
                `confidence`, the mean sentence chrF, 0 to 100, of validation translations of which
                the model was as sure; see `fitting.calibrate_confidence`.

        Returns:
            A str, or a list; with `details`, `scores` or `confidence` dicts.

        Raises:
            ValueError: If there is no such language, an item is no text, or `confidence` is asked
                for where it was not calibrated.
            AttributeError: If what was exported cannot give `scores`.
        """
        asked = self.towards(target_language)._telling(scores, confidence)
        return super(TranslatorPredictor, asked).predict(raw, batch_size, verbose, details)

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

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        translation = text_of(row["translation"])
        more = self._told(row)
        if not details and not more:
            return translation
        score, truncated = float(row["score"]), bool(row["truncated"])
        return {"translation": translation, "score": score, "truncated": truncated, **more}
