"""What a translator does besides translating, in Python and as further signatures."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.export.alternatives import Alternatives
from keras_transformers.export.demanded_phrases import DemandedPhrases
from keras_transformers.export.given_translations import GivenTranslations
from keras_transformers.export.served import Served
from keras_transformers.export.token_scores import TokenScores
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.predictors.quality import ConfidenceCurve


class FurtherFunctions(Served):
    """Base of `Translator`: scores of pieces and of given translations, alternatives, phrases.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.export.further_functions import FurtherFunctions
    >>> issubclass(Translator, FurtherFunctions)
    True
    """

    def _make_further(self) -> None:
        """Called when all is there that they use."""
        self._scoring = GivenTranslations(self)
        self._phrases = DemandedPhrases(self)
        self._alternatives = Alternatives(self)
        self.confidence = None

    @property
    def confidence(self) -> ConfidenceCurve | None:
        """How good a translation is that it is so sure of, or None: `calibrate_confidence`."""
        curve: ConfidenceCurve | None = self._curve_of()
        return curve

    @confidence.setter
    def confidence(self, curve: ConfidenceCurve | None) -> None:
        self._curve_of = lambda: curve
        self._tokens = TokenScores(self)  # whose outputs it decides

    @property
    def languages_asked(self) -> tuple[tf.TensorSpec, ...]:
        """The input `target_language`, or none."""
        return self._languages.requests

    def log_probabilities(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """The model's: see `models.Transformer.log_probabilities`."""
        return self._model.log_probabilities(source, target)

    def given(
        self, text: tf.Tensor, translation: tf.Tensor, *language: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """What the model thinks of given translations, compiled by XLA: see `GivenTranslations`."""
        return self._scoring.compiled(text, translation, *language)

    def with_phrases(self, *given: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translations that hold phrases, compiled by XLA: see `DemandedPhrases`."""
        return self._phrases.compiled(*given)

    def with_tokens(self, text: tf.Tensor, *language: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translations and what the model thinks of each piece, compiled: see `TokenScores`."""
        return self._tokens.compiled(text, *language)

    def following(
        self, text: tf.Tensor, prefix: tf.Tensor, *language: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The pieces likeliest to follow beginnings of translations, compiled: `Alternatives`."""
        return self._alternatives.compiled(text, prefix, *language)

    def score(
        self,
        sentences: Sequence[str],
        translations: Sequence[str],
        target_language: str | None = None,
    ) -> list[dict[str, Any]]:
        """How probable translations are, token by token: see `TranslatorPredictor.score`."""
        return TranslatorPredictor(self).towards(target_language).score(sentences, translations)

    def _more_signatures(self) -> dict[str, Any]:
        more = {
            "tokens": self._tokens,
            "alternatives": self._alternatives,
            "phrases": self._phrases,
        }
        found = {name: each.portable for name, each in more.items()}
        return {"score": self._scoring.portable, **found}

    def _more_about(self) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self.target_languages:
            about["target_languages"] = list(self.target_languages)
        if self.confidence is not None:
            about["confidence"] = dataclasses.asdict(self.confidence)
        if self.context:
            about["context"] = self.context
        return about
