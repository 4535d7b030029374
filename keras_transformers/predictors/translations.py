"""The predictor that translates, and says what the model thinks of translations."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.predictors.base import received
from keras_transformers.predictors.texts import TextPredictor, text_of


class TranslatorPredictor(TextPredictor):
    """Translates: a str for each text; with `details` a dict.

    That has `translation`, `score` and `truncated`, whether the end of the text was cut off.

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

    def score(
        self,
        texts: Sequence[str | bytes],
        translations: Sequence[str | bytes],
        batch_size: int | None = None,
    ) -> list[dict[str, Any]]:
        """How probable given translations are, by the model.

        Args:
            texts, translations: Lists of one length.
            batch_size: Pairs of a request; by default 1,024.

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
        given, size = self._given(), batch_size or self.rows
        encoded = [[self._encoded(item) for item in side] for side in sides]
        rows: list[dict[str, Any]] = []
        for start in range(0, len(texts), size):
            part = (tf.constant(side[start : start + size], tf.string) for side in encoded)
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
            run = signatures["score"]
            return lambda text, translation: run(text=text, translation=translation)
        given: Callable[..., Any] | None = getattr(self._run, "given", None)
        if given is None:
            raise AttributeError(
                f"score: {self._source} has no signature 'score'; export it by this version."
            )
        return given

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        translation = text_of(row["translation"])
        if not details:
            return translation
        score, truncated = float(row["score"]), bool(row["truncated"])
        return {"translation": translation, "score": score, "truncated": truncated}
