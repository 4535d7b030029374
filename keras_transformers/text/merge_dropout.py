"""Words put together by merges, of which some are left out at random."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_transformers.annotations import Array

AT_ONCE = 1 << 20  # symbols of words that are merged together


class MergeDropout:
    """BPE-dropout: before each merge of a word, each possible one is left out at random.

    Of those that remain the best is taken; where none remains, the word is done (Provilkov et al.
    2020, https://arxiv.org/abs/1910.13267, algorithm 1).

    Args:
        words: The different words.
        pieces: Piece -> id.
        scores: Of each id; of two merges the one into the piece with the higher is the better.
        dropout: Probability that a merge is left out: 0 gives the split of BPE, 1 characters.
        unknown_id: Id of a character that is no piece.
        whole: Pieces that stand in a word as they are, and are merged with nothing.

    Attributes:
        characters: int64 `(symbols,)`: the number of the character that a symbol is, or -1.
        ids: int64 `(symbols,)`: ids of the symbols.
    """

    def __init__(
        self,
        words: Sequence[str],
        pieces: Mapping[str, int],
        scores: Array,
        dropout: float,
        unknown_id: int,
        whole: Iterable[str] = (),
    ) -> None:
        self._dropout, whole = dropout, set(whole)
        longest_first = sorted((re.escape(each) for each in whole), key=len, reverse=True)
        cut = re.compile("|".join([*longest_first, "(?s:.)"])).findall
        rows = [cut(word) for word in words]
        symbols = {symbol: number for number, symbol in enumerate(pieces)}
        for symbol in sorted({symbol for row in rows for symbol in row}):
            symbols.setdefault(symbol, len(symbols))
        self.ids = np.array([pieces.get(symbol, unknown_id) for symbol in symbols], np.int64)
        self.characters = np.array([ord(s) if len(s) == 1 else -1 for s in symbols], np.int64)
        self._lengths = np.array([len(row) for row in rows], np.int64)
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._flat = np.array([symbols[symbol] for row in rows for symbol in row], np.int64)
        self._number, merges = len(symbols), {}
        for piece, number in pieces.items():
            for i in range(1, len(piece)):
                left, right = symbols.get(piece[:i]), symbols.get(piece[i:])
                if left is not None and right is not None and not {piece[:i], piece[i:]} & whole:
                    merges[left * self._number + right] = (symbols[piece], -scores[number])
        self._keys = np.array(sorted(merges), np.int64)
        found = [merges[key] for key in self._keys.tolist()]
        self._merged = np.array([symbol for symbol, _ in found], np.int64)
        self._ranks = np.array([rank for _, rank in found])

    def draw(self, words: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Splits of words, by their numbers.

        Returns:
            The symbols of all words one after another, and where each word's begin and end.
        """
        order = np.argsort(self._lengths[words], kind="stable")  # little of a chunk is padding
        rows: list[Array] = []
        start, numbers = 0, np.zeros(len(words), np.int64)
        while start < len(words):
            longest = np.maximum.accumulate(self._lengths[words[order[start:]]])
            cells = longest * np.arange(1, len(longest) + 1)
            stop = start + max(1, int(np.searchsorted(cells, AT_ONCE, side="right")))
            mine = order[start:stop]
            rows.append(self._merge(words[mine], generator))
            numbers[mine] = (rows[-1] >= 0).sum(axis=1)
            start = stop
        splits = np.concatenate([[0], np.cumsum(numbers)])
        flat = np.empty(splits[-1], np.int64)
        done = 0
        for part in rows:
            mine, done = order[done : done + len(part)], done + len(part)
            row, column = np.nonzero(part >= 0)
            flat[splits[mine][row] + column] = part[row, column]
        return flat, splits

    def _merge(self, words: Array, generator: np.random.Generator) -> Array:
        """Symbols of words `(words, length)`, -1 behind."""
        lengths = self._lengths[words]
        columns = np.arange(max(int(lengths.max()), 1))
        inside = columns < lengths[:, None]
        positions = np.where(inside, self._begins[words][:, None] + columns, 0)
        symbols = np.where(inside, self._flat[positions], -1)
        done, going_on = np.full_like(symbols, -1), np.arange(len(words))
        pairs = self._pairs(symbols[:, :-1], symbols[:, 1:])
        while going_on.size:
            drawn = generator.random(pairs.shape, np.float32)
            there = (pairs >= 0) & (drawn >= self._dropout)
            ranks = np.where(there, self._ranks[pairs], np.inf)
            on = there.any(axis=1)
            done[going_on[~on], : symbols.shape[1]] = symbols[~on]
            going_on, symbols, pairs = going_on[on], symbols[on], pairs[on]
            if not going_on.size:
                break
            at = ranks[on].argmin(axis=1)  # of equal ones the first
            symbols, pairs = self._merged_at(symbols, pairs, at)
        return done

    def _merged_at(self, symbols: Array, pairs: Array, at: Array) -> tuple[Array, Array]:
        """Symbols and pairs, one fewer of each row, after the merge at a position of each."""
        rows, columns = np.arange(len(at)), np.arange(symbols.shape[1] - 1)
        new = self._merged[pairs[rows, at]]
        later = columns > at[:, None]
        symbols = np.take_along_axis(symbols, columns + later, axis=1)
        symbols[rows, at] = new
        pairs = np.take_along_axis(pairs, columns[:-1] + later[:, :-1], axis=1)
        for first in (at - 1, at):
            there = np.flatnonzero((first >= 0) & (first < pairs.shape[1]))
            first = first[there]
            found = self._pairs(symbols[there, first], symbols[there, first + 1])
            pairs[there, first] = found
        return symbols, pairs

    def _pairs(self, left: Array, right: Array) -> Array:
        """The number of the merge of two symbols, -1 where there is none."""
        if not self._keys.size:
            return np.full(left.shape, -1)
        wanted = np.where((left < 0) | (right < 0), -1, left * self._number + right)
        where = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[where] == wanted, where, -1)
