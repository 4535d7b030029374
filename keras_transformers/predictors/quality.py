"""How good translations are, where nobody has a reference."""

from collections.abc import Sequence
from typing import Any

Scored = list[dict[str, Any]]


class QualityEstimator:
    """Estimates how good translations are by what translators think of them.

    The quality of a translation is its mean log-probability by a translator, END included, given
    the source (Fomicheva et al. 2020, https://aclanthology.org/2020.tacl-1.35, "TP", of a
    translator's own translations; Thompson & Post 2020, https://aclanthology.org/2020.emnlp-main.8,
    of anybody's). With a translator of the other direction, the mean of both: what lacks half of
    the source may be a likely translation, and makes the source an unlikely one.

    Args:
        forward: A translator from sources to translations: what `load` gives, or an
            `export.Translator`.
        backward: One from translations to sources, or None.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.predictors import QualityEstimator
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> estimator = QualityEstimator(Translator(model, tokenizer, source_lengths=(8,)))
    >>> [value < 0 for value in estimator.estimate(["a cat"], ["a mat"])]
    [True]
    """

    def __init__(self, forward: Any, backward: Any = None) -> None:
        self._forward, self._backward = forward, backward

    def estimate(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        target_language: str | None = None,
        source_language: str | None = None,
    ) -> list[float]:
        """The quality of each translation, at most 0: higher is better.

        Numbers of one estimator can be compared with one another, not with those of another; see
        `fitting.calibrate_confidence` for numbers that mean something by themselves.

        Args:
            sources, translations: Lists of str of one length.
            target_language, source_language: What `forward` and `backward` are asked for, where
                they are of several languages.

        Raises:
            ValueError: If the lists differ in length, or hold something that is no text.
        """
        there = self._forward.score(sources, translations, target_language=target_language)
        means = [mean_log_probability(row) for row in there]
        if self._backward is None:
            return means
        back = self._backward.score(translations, sources, target_language=source_language)
        both = zip(means, map(mean_log_probability, back), strict=True)
        return [(one + other) / 2 for one, other in both]


def mean_log_probability(row: dict[str, Any]) -> float:
    """The mean over the tokens of what `score`, or `predict(..., scores=True)`, says of a text.

    Example:
    >>> from keras_transformers.predictors.quality import mean_log_probability
    >>> mean_log_probability({"tokens": [("a", -1.0), ("</s>", -0.5)]})
    -0.75
    """
    values = [value for _, value in row["tokens"]]
    return sum(values) / max(len(values), 1)
