"""The quality of translations that have no reference."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.core.types import Array

Scored = list[dict[str, Any]]


class QualityEstimator:
    """Estimates the quality of translations by the log-probabilities of translators.

    The quality of a translation is its mean log-probability by a translator, END included, given
    the source (Fomicheva et al. 2020, https://aclanthology.org/2020.tacl-1.35, "TP", of a
    translator's own translations; Thompson & Post 2020, https://aclanthology.org/2020.emnlp-main.8,
    of any translations). With a translator of the other direction, it is the mean of both: a
    translation that lacks half of the source may be likely, but makes the source unlikely.

    Args:
        forward: A translator from sources to translations: a predictor of `load`, or an
            `export.Translator`.
        backward: A translator from translations to sources, or None.

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
        """Returns the quality of each translation, at most 0: higher is better.

        Numbers of one estimator can be compared with each other, but not with those of another
        estimator. `fitting.calibrate_confidence` gives numbers on a known scale.

        Args:
            sources, translations: Lists of str of one length.
            target_language, source_language: Languages that `forward` and `backward` translate
                into, if they have a choice.

        Raises:
            ValueError: If the lists differ in length, or hold items that are no texts.
        """
        rows = self._forward.score(sources, translations, target_language=target_language)
        forward_means = [mean_log_probability(row) for row in rows]
        if self._backward is None:
            return forward_means
        rows = self._backward.score(translations, sources, target_language=source_language)
        backward_means = [mean_log_probability(row) for row in rows]
        pairs = zip(forward_means, backward_means, strict=True)
        return [(forward + backward) / 2 for forward, backward in pairs]


def mean_log_probability(row: dict[str, Any]) -> float:
    """Returns the mean log-probability of the tokens in an answer with scores.

    Example:
    >>> from keras_transformers.tasks.translation_quality import mean_log_probability
    >>> mean_log_probability({"tokens": [("a", -1.0), ("</s>", -0.5)]})
    -0.75
    """
    values = [value for _, value in row["tokens"]]
    return sum(values) / max(len(values), 1)


BINS = 20  # of the sentences that a curve is made of


@dataclasses.dataclass(frozen=True)
class ConfidenceCurve:
    """The expected quality of answers by their scores: a rising, piecewise-linear curve.

    Args:
        scores: Increasing scores that a model gives its answers: for translations the mean
            log-probability of their tokens, END included.
        qualities: The expected quality at each score, never decreasing. Below the first score and
            above the last it is constant.
        rows: Number of answers that the curve was made of.

    Raises:
        ValueError: If the two differ in length, are empty or not finite, or do not rise.

    Example:
    >>> from keras_transformers.tasks.translation_quality import ConfidenceCurve
    >>> curve = ConfidenceCurve((-2.0, -1.0), (40.0, 80.0), rows=9)
    >>> curve([-3.0, -1.5, 0.0]).tolist()
    [40.0, 60.0, 80.0]
    """

    scores: tuple[float, ...]
    qualities: tuple[float, ...]
    rows: int = 0

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores)
        qualities = np.asarray(self.qualities)
        is_pair = scores.ndim == qualities.ndim == 1 and 0 < len(scores) == len(qualities)
        is_valid = is_pair and bool(np.isfinite([scores, qualities]).all())
        if not is_valid or (np.diff(scores) <= 0).any() or (np.diff(qualities) < 0).any():
            raise ValueError(
                "ConfidenceCurve: `scores` must increase and `qualities` never decrease, as many "
                f"of each. Received: {str(self.scores)[:60]} and {str(self.qualities)[:60]}"
            )

    def __call__(self, scores: Any) -> Array:
        """Returns the expected quality for each score, an array."""
        return np.interp(scores, self.scores, self.qualities)

    @classmethod
    def fit(cls, scores: Sequence[float], qualities: Sequence[float], bins: int = BINS) -> Self:
        """Makes the curve from answers whose quality is known.

        Answers are sorted by their scores into bins of equal size, and isotonic regression makes
        the means of the bins rise (the pool-adjacent-violators algorithm, which Zadrozny & Elkan
        2002, https://doi.org/10.1145/775047.775151, use for calibration).

        Args:
            scores, qualities: Score and quality of each answer.
            bins: Most bins; each has 10 answers or more, if there are so many.

        Raises:
            ValueError: If the two differ in length, are empty, or hold numbers that are not finite.

        Example:
        >>> from keras_transformers.tasks.translation_quality import ConfidenceCurve
        >>> ConfidenceCurve.fit([-3, -2, -1], [30, 20, 70], bins=3).qualities
        (25.0, 25.0, 70.0)
        """
        x, y = np.asarray(scores, "float64"), np.asarray(qualities, "float64")
        if x.ndim != 1 or x.shape != y.shape or not len(x) or not np.isfinite([x, y]).all():
            raise ValueError(
                "ConfidenceCurve.fit: `scores` and `qualities` must be finite numbers, as many of "
                f"each, one or more. Received: shapes {x.shape} and {y.shape}"
            )
        number = len(x) if len(x) <= bins else max(1, min(bins, len(x) // 10))
        parts = np.array_split(np.argsort(x, kind="stable"), number)
        means = np.array([[x[part].mean(), y[part].mean(), len(part)] for part in parts])
        # Scores that are equal may fill several bins, and a curve has one value at each.
        values, groups = np.unique(means[:, 0], return_inverse=True)
        weights = np.bincount(groups, means[:, 2])
        levels = np.bincount(groups, means[:, 1] * means[:, 2]) / weights
        return cls(tuple(values.tolist()), tuple(isotonic(levels, weights).tolist()), len(x))


def isotonic(values: Any, weights: Any = None) -> Array:
    """Returns the never decreasing numbers nearest to `values` by (weighted) squared distance.

    Args:
        values: `(number,)`.
        weights: `(number,)`, positive; by default all 1.

    Returns:
        float64 `(number,)`.

    Example:
    >>> from keras_transformers.tasks.translation_quality import isotonic
    >>> isotonic([1.0, 3.0, 2.0, 4.0]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    values = np.asarray(values, "float64")
    weights = np.ones_like(values) if weights is None else np.asarray(weights, "float64")
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of the pooled values
    for mean, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (mean, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            before, heavy, number = pools.pop()
            total = heavy + pool[1]
            pool = ((before * heavy + pool[0] * pool[1]) / total, total, number + pool[2])
        pools.append(pool)
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
