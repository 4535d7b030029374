"""Lattices of words: the ways to put a word together from pieces, and how probable each is."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformers.annotations import Array, Values

WORD_END = 0x110000  # stands after each word: no character has this number
BITS = 32  # of a random number, and of a probability


def concatenated_characters(words: Sequence[str]) -> tuple[Array, Array]:
    """The characters of all words as numbers, WORD_END after each; where each word begins.

    The positions in this array are the nodes of the words' lattices.
    """
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    characters = np.frombuffer("".join(words).encode("utf-32-le"), "<u4").astype(np.int64)
    text = np.insert(characters, ends, WORD_END)
    return text, np.concatenate([[0], ends[:-1] + np.arange(1, len(ends))])[: len(ends)]


def edges(text: Array, pieces: Mapping[str, int], unknown_id: int) -> tuple[Array, Array, Array]:
    """All pieces in the text: where they begin and end, sorted, and their ids.

    A character that is no piece by itself is an unknown one as well.
    """
    keys, targets, numbers = _trie(pieces)
    positions, states = np.flatnonzero(text != WORD_END), 0
    alone = np.zeros(len(text), bool)
    found = []
    for length in itertools.count(1):
        wanted = states << BITS | text[positions + length - 1]
        where = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        there = keys[where] == wanted
        positions, states = positions[there], targets[where[there]]
        if not positions.size:
            break
        whole = numbers[states] >= 0
        found.append((positions[whole], positions[whole] + length, numbers[states[whole]]))
        if length == 1:
            alone[positions[whole]] = True
    unknown = np.flatnonzero(~alone & (text != WORD_END))
    found.append((unknown, unknown + 1, np.full(len(unknown), unknown_id)))
    starts, ends, ids = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order], ids[order]


def _trie(pieces: Mapping[str, int]) -> tuple[Array, Array, Array]:
    """Sorted keys `state << BITS | character` and the states they lead to; the ids of states.

    State 0 is the beginning; the id of a state that is no piece is -1.
    """
    states = {"": 0}
    for piece in pieces:
        for length in range(1, len(piece) + 1):
            states.setdefault(piece[:length], len(states))
    keys = [states[prefix[:-1]] << BITS | ord(prefix[-1]) for prefix in states if prefix]
    order = np.argsort(keys)
    return np.array(keys)[order], order + 1, np.array([pieces.get(each, -1) for each in states])


def bounds(text: Array, starts: Array, ends: Array, logits: Array) -> Array:
    """For each edge `node << BITS`, plus the probability, in BITS, of it or of one before it.

    A random number of so many bits behind the number of a node then lies below the bound of the
    edge to take, and not below that of the one before. Integers, because a sum of floats could be
    rounded up to the next node.
    """
    logits = _of_all_ways(text, starts, ends, logits)
    first = np.searchsorted(starts, starts)  # of the edges from the same node
    shares = np.cumsum(np.exp(logits))
    shares = np.clip(shares - np.append(0.0, shares)[first], 0, 1)
    bounds = (starts << BITS) + np.rint(shares * (1 << BITS)).astype(np.int64)
    last = np.diff(starts, append=-1) != 0
    bounds[last] = (starts[last] + 1) << BITS
    return bounds


def _of_all_ways(text: Array, starts: Array, ends: Array, logits: Array) -> Array:
    """Log-probability of each edge among those from its node, for all ways that go on from them."""
    stops = np.flatnonzero(text == WORD_END)
    left = stops[np.searchsorted(stops, starts)] - starts  # characters to the end of the word
    by_left = np.argsort(left, kind="stable")
    splits = summed(np.bincount(left))
    logits, sums = np.array(logits), np.zeros(len(text))
    for first, last in zip(splits[1:-1], splits[2:], strict=True):  # all words, from their ends
        chosen = by_left[first:last]
        logits[chosen] += sums[ends[chosen]]
        nodes, where = np.unique(starts[chosen], return_index=True)
        sums[nodes] = np.logaddexp.reduceat(logits[chosen], where)
    return logits - sums[starts]


def summed(lengths: Values) -> Array:
    """0 and the sums of the first, the first two ... of the lengths: where rows begin and end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class LatticeSampling:
    """Splits of words by a unigram model, see `SubwordSampler`.

    Args:
        words: The different words.
        pieces: Piece -> id.
        scores: Of each id, logarithms of probabilities.
        alpha: Inverse temperature.
        unknown_id: Id of a character that is no piece.

    Attributes:
        characters: int64 `(edges,)`: the number of the first character of each edge.
        ids: int64 `(edges,)`: ids of the edges.
    """

    def __init__(
        self,
        words: Sequence[str],
        pieces: Mapping[str, int],
        scores: Array,
        alpha: float,
        unknown_id: int,
    ) -> None:
        text, self._first_nodes = concatenated_characters(words)
        starts, self._ends, self.ids = edges(text, pieces, unknown_id)
        self._bounds = bounds(text, starts, self._ends, alpha * scores[self.ids])
        self._last = text[self._ends] == WORD_END
        self.characters = text[starts]

    def draw(self, words: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Edges of splits of words, by their numbers, and where each word's begin and end."""
        nodes = self._first_nodes[words]
        steps, active, lengths = [], np.arange(len(nodes)), np.zeros(len(nodes), np.int64)
        while active.size:
            drawn = generator.integers(0, 1 << BITS, active.size, np.uint32)
            taken = np.searchsorted(self._bounds, nodes << BITS | drawn, side="right")
            steps.append((active, taken))
            lengths[active] += 1
            on = ~self._last[taken]
            active, nodes = active[on], self._ends[taken[on]]
        splits = summed(lengths)
        edges = np.empty(splits[-1], np.int64)
        for number, (active, drawn) in enumerate(steps):
            edges[splits[active] + number] = drawn
        return edges, splits
