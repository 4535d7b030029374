"""Splits of text into subwords that are drawn by a seed.

A unigram vocabulary draws from the lattice of all ways to put a word together from pieces. A
vocabulary of byte pairs leaves out merges at random (BPE-dropout).
"""

import collections
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, Tokenizer, Values
from keras_transformers.core.words import SEPARATOR
from keras_transformers.text.sentence_pieces import SentencePieceTokenizer

SPACE = "▁"
UNIGRAM, BPE = 1, 2  # SentencePiece's numbers of these kinds of models
NORMAL, USER_DEFINED = 1, 4  # and of the kinds of pieces that are looked for in a text
UNKNOWN_PENALTY = 10.0  # an unknown character scores so much less than the worst piece


class SubwordSampler:
    """Splits of the sentences of a corpus into subwords, drawn by a seed.

    Of a unigram model the split into the pieces `x_1 .. x_n` is drawn in proportion to
    `exp(alpha * (score(x_1) + .. + score(x_n)))`, of all splits that the model allows (Kudo 2018,
    https://arxiv.org/abs/1804.10959, section 3.3): forward filtering and backward sampling, here
    from right to left, then from left to right; each probability to 1e-9. SentencePiece draws the
    same splits as often, but by no seed.

    No piece goes on beyond a space, so each different word is looked up once, beforehand, and the
    words of all chosen sentences then take a step at a time together. (Of a model that was trained
    to go beyond spaces, a sentence is one word.)

    Of a bpe model merges are left out, see `MergeDropout` (Provilkov et al. 2020).

    Args:
        tokenizer: A `SentencePieceTokenizer` of a unigram or a bpe model.
        strings: The sentences, a list of str.
        alpha: Of a unigram model the inverse temperature: 0 makes all splits alike, 0.1 varied
            ones, 1 those of the model. Of a bpe model the probability that a merge is left out: 0
            makes the split of the model, 0.1 varied ones, 1 characters.

    Raises:
        ValueError: If the model is of another kind, or `alpha` out of its range.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, SubwordSampler
    >>> lines = ["the cat sat on the mat", "the dog sat on the log"]
    >>> tokenizer = SentencePieceTokenizer.train(lines * 20, vocab_size=20)
    >>> sampler = SubwordSampler(tokenizer, lines, alpha=0.1)
    >>> ids, lengths = sampler.sample([1, 0, 1], seed=3)
    >>> tokenizer.detokenize(ids[: lengths[0]]).numpy().decode()
    'the dog sat on the log'
    """

    def __init__(self, tokenizer: Tokenizer, strings: Sequence[str], alpha: float) -> None:
        with needed_by("SubwordSampler"):
            import sentencepiece

        if not can_be_drawn(tokenizer):
            raise ValueError(
                "SubwordSampler: `tokenizer` must be a SentencePieceTokenizer of a unigram or a "
                "bpe model."
            )
        model = _model(tokenizer.proto)
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
        pieces = {
            piece.piece: number
            for number, piece in enumerate(model.pieces)
            if piece.type in (NORMAL, USER_DEFINED)
        }
        normalized = processor.normalize(list(strings))
        if context := tokenizer.context:
            pieces[SEPARATOR] = context.mark
            parts = (text.split(SEPARATOR)[-context.sentences - 1 :] for text in strings)
            normalized = [SEPARATOR.join(processor.normalize(each)) for each in parts]
        words, self._words, self._word_splits = _distinct_words(normalized, pieces)
        unknown_id, scores = tokenizer.unknown_id, _scores(model, tokenizer.unknown_id)
        if model.trainer_spec.model_type == BPE:
            if not 0 <= alpha <= 1:
                raise ValueError(
                    "SubwordSampler: `alpha` must be from 0 to 1, the share of merges that are "
                    f"left out, of a bpe model. Received: {alpha}"
                )
            whole = [piece.piece for piece in model.pieces if piece.type == USER_DEFINED]
            whole += [SEPARATOR] if tokenizer.context else []
            self._splitter: Any = MergeDropout(words, pieces, scores, alpha, unknown_id, whole)
        else:
            if not 0 <= alpha < np.inf:
                raise ValueError(f"SubwordSampler: `alpha` must be at least 0. Received: {alpha}")
            self._splitter = LatticeSampling(words, pieces, scores, alpha, unknown_id)
        ids, self._spelling = self._splitter.ids, None
        if model.trainer_spec.byte_fallback:
            ids, self._spelling = _spelling(model, self._splitter.characters, ids, unknown_id)
        self._ids = ids.astype(np.int32)
        self._marks = tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id

    def sample(
        self, chosen: Values, seed: int | Sequence[int], start: bool = False, end: bool = False
    ) -> tuple[Array, Array]:
        """Draws a split of each chosen sentence.

        Args:
            chosen: Numbers of sentences in the list, in any order.
            seed: An integer, or several, for `np.random.default_rng`. The splits follow from it
                and from `chosen` alone, in any process.
            start, end: Whether to put START before and END after.

        Returns:
            int32 ids of the sentences one after another, and the number of ids of each.
        """
        words, splits = _rows(self._words, self._word_splits, np.asarray(chosen, np.int64))
        drawn, word_splits = self._splitter.draw(words, np.random.default_rng(seed))
        ids, splits = self._ids[drawn], word_splits[splits]
        if self._spelling is not None:
            flat, spelt = self._spelling
            ids, id_splits = _rows(flat, spelt, ids)
            splits = id_splits[splits]
        start_id, end_id, unknown_id = self._marks
        ids, splits = _runs_as_one(ids, splits, unknown_id)
        if start:
            ids, splits = np.insert(ids, splits[:-1], start_id), splits + np.arange(len(splits))
        if end:
            ids, splits = np.insert(ids, splits[1:], end_id), splits + np.arange(len(splits))
        return ids, np.diff(splits)


def can_be_drawn(tokenizer: object) -> TypeGuard[SentencePieceTokenizer]:
    """Whether a tokenizer is one whose splits `SubwordSampler` can draw."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return False
    return _model(tokenizer.proto).trainer_spec.model_type in (UNIGRAM, BPE)


def _model(proto: bytes) -> Any:
    with needed_by("SubwordSampler"):
        from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]


def _scores(model: Any, unknown_id: int) -> Array:
    """Score of each piece, by SentencePiece's rules for symbols of the user and the unknown."""
    scores = np.array([piece.score for piece in model.pieces])
    kinds = np.array([piece.type for piece in model.pieces])
    lengths = np.array([len(piece.piece) for piece in model.pieces])
    normal = scores[kinds == NORMAL]
    scores = np.where(kinds == USER_DEFINED, lengths * max(normal.max(), 0) - 0.1, scores)
    scores[unknown_id] = normal.min() - UNKNOWN_PENALTY
    return scores


def _distinct_words(
    texts: Sequence[str], pieces: Mapping[str, int]
) -> tuple[list[str], Array, Array]:
    """The different words; the number of each word of the texts; where each text's begin and end.

    A word is a part of a text over whose ends no piece of the model goes.
    """
    crossing = any(re.search(f"[^{SPACE}]{SPACE}", piece) for piece in pieces)
    cut = re.compile("(?s).+" if crossing else f"{SPACE}*[^{SPACE}]+|{SPACE}+").findall
    numbers: dict[str, int] = collections.defaultdict(itertools.count().__next__)
    rows = [[numbers[word] for word in cut(text)] for text in texts]
    flat = np.fromiter(itertools.chain.from_iterable(rows), np.int64)
    return list(numbers), flat, summed([len(row) for row in rows])


def _spelling(
    model: Any, characters: Array, ids: Array, unknown_id: int
) -> tuple[Array, tuple[Array, Array] | None]:
    """Unknown characters as their bytes: ids beyond those of the pieces, and what they stand for.

    What they stand for is given as the ids of all one after another, and where each one's begin.
    """
    unknown = ids == unknown_id
    if not unknown.any():
        return ids, None
    size = len(model.pieces)
    different, numbers = np.unique(characters[unknown], return_inverse=True)
    ids = ids.copy()
    ids[unknown] = size + numbers
    of_bytes = {piece.piece: number for number, piece in enumerate(model.pieces)}
    spelt = [[of_bytes[f"<0x{byte:02X}>"] for byte in chr(each).encode()] for each in different]
    flat = np.array([*range(size), *itertools.chain.from_iterable(spelt)], np.int32)
    return ids, (flat, summed([1] * size + [len(each) for each in spelt]))


def _runs_as_one(ids: Array, splits: Array, unknown_id: int) -> tuple[Array, Array]:
    """Without an unknown id that follows one in its sentence."""
    again = np.zeros(len(ids), bool)
    again[1:] = (ids[1:] == unknown_id) & (ids[:-1] == unknown_id)
    if not again.any():
        return ids, splits
    again[splits[:-1][np.diff(splits) > 0]] = False
    return ids[~again], summed(~again)[splits]


def _rows(flat: Array, splits: Array, chosen: Array) -> tuple[Array, Array]:
    """The chosen rows of a ragged array one after another, and where each begins and ends."""
    lengths = splits[chosen + 1] - splits[chosen]
    new = summed(lengths)
    return flat[np.repeat(splits[chosen] - new[:-1], lengths) + np.arange(new[-1])], new


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
