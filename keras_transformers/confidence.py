"""From how sure a model is to how good its answers may be expected to be."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.annotations import Array

BINS = 20  # of the sentences it is made of


@dataclasses.dataclass(frozen=True)
class ConfidenceCurve:
    """The quality that may be expected where a model is so sure: a rising, piecewise-linear curve.

    Args:
        scores: What a model thinks of its answers, increasing: for translations the mean
            log-probability of their tokens, END included.
        qualities: What is expected there, never decreasing; below the first score and above the
            last it stays.
        rows: Number of answers that it was made of.

    Raises:
        ValueError: If the two differ in length, are empty or not finite, or do not rise.

    Example:
    >>> from keras_transformers.confidence import ConfidenceCurve
    >>> curve = ConfidenceCurve((-2.0, -1.0), (40.0, 80.0), rows=9)
    >>> curve([-3.0, -1.5, 0.0]).tolist()
    [40.0, 60.0, 80.0]
    """

    scores: tuple[float, ...]
    qualities: tuple[float, ...]
    rows: int = 0

    def __post_init__(self) -> None:
        scores, qualities = np.asarray(self.scores), np.asarray(self.qualities)
        fine = scores.ndim == qualities.ndim == 1 and 0 < len(scores) == len(qualities)
        fine = fine and bool(np.isfinite([scores, qualities]).all())
        if not fine or (np.diff(scores) <= 0).any() or (np.diff(qualities) < 0).any():
            raise ValueError(
                "ConfidenceCurve: `scores` must increase and `qualities` never decrease, as many "
                f"of each. Received: {str(self.scores)[:60]} and {str(self.qualities)[:60]}"
            )

    def __call__(self, scores: Any) -> Array:
        """The expected quality of each score, an array."""
        return np.interp(scores, self.scores, self.qualities)

    @classmethod
    def fit(cls, scores: Sequence[float], qualities: Sequence[float], bins: int = BINS) -> Self:
        """The curve of answers whose quality is known.

        Answers are sorted into bins of as many each by their scores, and the means of these made to
        rise by isotonic regression (the pool-adjacent-violators algorithm; Zadrozny & Elkan 2002,
        https://doi.org/10.1145/775047.775151, calibrate so).

        Args:
            scores, qualities: Of each answer.
            bins: Most bins; each has 10 answers or more, where there are so many.

        Raises:
            ValueError: If the two differ in length, are empty, or hold what is not finite.

        Example:
        >>> from keras_transformers.confidence import ConfidenceCurve
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
        values, same = np.unique(means[:, 0], return_inverse=True)
        weights = np.bincount(same, means[:, 2])
        levels = np.bincount(same, means[:, 1] * means[:, 2]) / weights
        return cls(tuple(values.tolist()), tuple(isotonic(levels, weights).tolist()), len(x))


def isotonic(values: Any, weights: Any = None) -> Array:
    """The never decreasing numbers that are nearest to `values` by (weighted) squared distance.

    Args:
        values: `(number,)`.
        weights: `(number,)`, positive; by default all the same.

    Returns:
        float64 `(number,)`.

    Example:
    >>> from keras_transformers.confidence import isotonic
    >>> isotonic([1.0, 3.0, 2.0, 4.0]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    values = np.asarray(values, "float64")
    weights = np.ones_like(values) if weights is None else np.asarray(weights, "float64")
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of what is pooled
    for mean, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (mean, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            before, heavy, number = pools.pop()
            total = heavy + pool[1]
            pool = ((before * heavy + pool[0] * pool[1]) / total, total, number + pool[2])
        pools.append(pool)
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
