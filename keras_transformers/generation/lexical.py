"""Which target token a source token is translated by, learned from pairs of sentences."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformers.annotations import Array

AT_ONCE = 1 << 22  # pairs of tokens that are in memory as floats together


class Lexicon(NamedTuple):
    """Probabilities of all pairs of tokens that occur in one pair of sentences.

    Args:
        sources, targets: int64 `(pairs,)`, ids, sorted by the source, then by the target.
        probabilities: float64 `(pairs,)`: `t(target | source)`, which sum to 1 for each source.
    """

    sources: Array
    targets: Array
    probabilities: Array


def learn_lexicon(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], iterations: int = 5
) -> Lexicon:
    """IBM model 1: expectation and maximisation from equal probabilities on.

    Each target token comes from one token of the source, or from none (Brown et al. 1993,
    https://aclanthology.org/J93-2003, section 4.1). The order of tokens says nothing. It holds 4
    bytes for each pair of a source and a target token in one pair of sentences.

    Args:
        sources, targets: Lists as long as each other, of ids without marks or padding.
        iterations: Number of iterations.

    Returns:
        A `Lexicon`.

    Raises:
        ValueError: If the lists differ in length, hold no tokens, or `iterations` is not positive.

    Example:
    >>> from keras_transformers.generation.lexical import learn_lexicon
    >>> found = learn_lexicon([[5, 6], [5]], [[8, 9], [8]], iterations=9)
    >>> [(int(s), int(t)) for s, t, p in zip(*found) if p > 0.6]
    [(5, 8), (6, 9)]
    """
    if len(sources) != len(targets) or iterations < 1:
        raise ValueError(
            "learn_lexicon: `sources` and `targets` must be as long as each other, and `iterations`"
            f" positive. Received: {len(sources)} and {len(targets)}, iterations={iterations}"
        )
    left, right = _Sentences(sources), _Sentences(targets)
    if not left.ids.size or not right.ids.size:
        raise ValueError("learn_lexicon: `sources` and `targets` must hold tokens.")
    none, width = int(left.ids.max()) + 1, int(right.ids.max()) + 1
    left = left.behind(none)
    keys, indexed = np.zeros(0, np.int64), []

    def of_chunks() -> Iterator[tuple[Array, Array]]:
        for start, stop in _chunks(left, right):
            from_source, of_target, slots = _pairs(left, right, start, stop)
            yield left.ids[from_source] * width + right.ids[of_target], slots

    for chunk, _ in of_chunks():
        keys = np.union1d(keys, chunk)
    for chunk, slots in of_chunks():
        indexed.append((np.searchsorted(keys, chunk).astype(np.int32), slots))
    found, target = keys // width, keys % width
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for pairs, slots in indexed:
            weights = probabilities[pairs]
            # Each target token counts as one, shared out among the tokens that it may come from.
            shares = weights / np.repeat(np.add.reduceat(weights, slots[:-1]), np.diff(slots))
            counts += np.bincount(pairs, shares, len(keys))
        probabilities = counts / np.bincount(found, counts)[found]
    kept = found != none
    return Lexicon(found[kept], target[kept], probabilities[kept])


class _Sentences:
    """Ids of sentences one after another, and where each begins and ends."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.splits = np.concatenate([[0], np.cumsum(lengths)])
        empty = np.zeros(0, np.int64)
        self.ids: Array = np.concatenate([empty, *(np.asarray(row, np.int64) for row in rows)])

    def behind(self, token: int) -> "_Sentences":
        """The sentences with a token before each."""
        made = _Sentences([])
        made.ids = np.insert(self.ids, self.splits[:-1], token)
        made.splits = self.splits + np.arange(len(self.splits))
        return made


def _chunks(left: _Sentences, right: _Sentences) -> list[tuple[int, int]]:
    """First and last sentences of parts with about `AT_ONCE` pairs of tokens each."""
    products = np.cumsum(np.diff(left.splits) * np.diff(right.splits))
    cuts = np.searchsorted(products, np.arange(AT_ONCE, products[-1], AT_ONCE)) + 1
    edges = np.unique(np.concatenate([[0], cuts, [len(products)]]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _pairs(left: _Sentences, right: _Sentences, start: int, stop: int) -> Any:
    """Positions in the sources and in the targets of all pairs, those of a target token together.

    And where the pairs of each target token begin and end.
    """
    lengths = np.diff(left.splits)[start:stop]
    sentence = np.repeat(np.arange(stop - start), np.diff(right.splits)[start:stop])
    slots = np.concatenate([[0], np.cumsum(lengths[sentence])])
    first = left.splits[start:stop][sentence] - slots[:-1]
    from_source = np.arange(slots[-1]) + np.repeat(first, lengths[sentence])
    of_target = np.arange(right.splits[start], right.splits[stop])
    return from_source, np.repeat(of_target, lengths[sentence]), slots
