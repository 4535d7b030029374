"""Pairs of texts, their ids, and of which word each piece is."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.alignment.pharaoh import Links
from keras_transformers.annotations import Array
from keras_transformers.text.tokenizers import cutter_of_targets, in_marks
from keras_transformers.text.words import with_offsets

Marks = tuple[tuple[int, ...], tuple[int, ...]]
BLANK = "\u2581"  # as SentencePiece writes it


class Pairs:
    """Pairs of texts, their ids, and of which word each piece is.

    Args:
        owner: For messages: who asks.
        tokenizer, sources, targets, target_marks: See `align_words`.

    Attributes:
        lengths: Ids of the longer side of each pair, marks included.
    """

    def __init__(
        self,
        owner: str,
        tokenizer: Any,
        sources: Sequence[str],
        targets: Sequence[str],
        target_marks: Marks | None = None,
    ) -> None:
        if len(sources) != len(targets) or any(isinstance(x, str) for x in (sources, targets)):
            raise ValueError(
                f"{owner}: `sources` and `targets` must be lists as long as each other. "
                f"Received: {len(sources)} and {len(targets)}"
            )
        end = (tokenizer.end_id,)
        marks = getattr(tokenizer, "source_marks", ((), end))
        start = () if tokenizer.start_id is None else (tokenizer.start_id,)
        of_target = (start, end) if target_marks is None else target_marks
        if not of_target[0]:
            raise ValueError(
                f"{owner}: `target_marks` must have an id before a target, START. "
                f"Received: {of_target}"
            )
        self._sides = [
            Side(owner, "sources", tokenizer, sources, marks),
            Side(owner, "targets", cutter_of_targets(tokenizer), targets, of_target),
        ]
        self.lengths = np.max([side.lengths for side in self._sides], axis=0)

    def ids(self, rows: Array, padding: int) -> dict[str, tf.Tensor]:
        """Dense ids of some pairs."""
        chosen = [tf.gather(side.marked, rows).to_tensor(padding) for side in self._sides]
        return dict(zip(("source", "target"), chosen, strict=True))

    def links(self, row: int, weights: Array, at: str) -> Links:
        """The links of a pair, from weights `(queries, keys)`."""
        source, target = (side.words[row] for side in self._sides)
        if not len(source) or not len(target):
            return []
        before, after = self._sides[0].before, self._sides[1].before
        first = after if at == "input" else after - 1  # the query of the first piece
        weights = weights[first : first + len(target)]
        keys = weights[:, before : before + len(source)]
        words = np.zeros((len(target), source[-1] + 1))
        np.maximum.at(words.T, source, keys.T)
        sums = np.zeros((target[-1] + 1, source[-1] + 1))
        np.add.at(sums, target, words)
        rest = np.zeros(target[-1] + 1)
        np.add.at(rest, target, weights.sum(axis=1) - keys.sum(axis=1))
        best = sums.argmax(axis=1)
        linked = sums[np.arange(len(best)), best] > rest
        return [(int(best[i]), int(i)) for i in np.unique(target) if linked[i]]

    def check(self, owner: str, row: int, links: Links) -> None:
        """ValueError if a link of a pair is of a word that there is not."""
        numbers = [side.words[row][-1] + 1 if len(side.words[row]) else 0 for side in self._sides]
        for link in links:
            if not all(0 <= word < most for word, most in zip(link, numbers, strict=True)):
                raise ValueError(
                    f"{owner}: `links` must be of words that there are; pair {row} has "
                    f"{numbers[0]} and {numbers[1]}. Received: {link[0]}-{link[1]}"
                )

    def wanted(self, row: int, links: Links, shape: tuple[int, int]) -> tuple[Array, Array]:
        """What a query should attend to, where links of words are known.

        Args:
            row: Number of the pair.
            links: Its links.
            shape: Queries and keys, with padding.

        Returns:
            float32 `(queries, keys)`, for the query that produces a piece of a linked word the same
            share for each piece of the words it is linked to; and `(queries,)`, 1 there, else 0.
        """
        source, target = (side.words[row] for side in self._sides)
        before, after = self._sides[0].before, self._sides[1].before
        found = np.zeros(shape, "float32")
        for one, other in links:
            keys, queries = np.flatnonzero(source == one), np.flatnonzero(target == other)
            found[np.ix_(queries + after - 1, keys + before)] = 1
        sums = found.sum(axis=1, keepdims=True)
        return found / np.maximum(sums, 1), (sums[:, 0] > 0).astype("float32")


class Side:
    """The texts of a side."""

    def __init__(
        self, owner: str, name: str, tokenizer: Any, texts: Sequence[str], marks: Any
    ) -> None:
        found = with_offsets(tokenizer, tf.constant(list(texts), tf.string, [len(texts)]))
        self.marked = in_marks(found.ids, marks)
        self.before = len(marks[0])
        self.lengths = self.marked.row_lengths().numpy()
        starts, ends = (np.split(each.flat_values.numpy(), each.row_splits.numpy()[1:-1])
                        for each in (found.starts, found.ends))  # fmt: skip
        self.words = []
        rows = zip(texts, found.ids.to_list(), starts, ends, strict=False)
        for number, (text, ids, start, end) in enumerate(rows):
            words = _words_of(text, start, end)
            if (
                words is None
            ):  # as where two ways to cut a number are equally good to a unigram model
                words = _words_of_pieces(text, tokenizer.pieces(ids))
            if words is None:
                raise ValueError(
                    f"{owner}: the tokenizer must cut text {number} of `{name}` so that its "
                    f"words can be told apart. Received: {text[:60]!r}"
                )
            self.words.append(words)


def _words_of(text: str, starts: Array, ends: Array) -> Array | None:
    """The word that each piece is of, what white space divides, from 0; None if it is not known.

    Args:
        text: The text.
        starts, ends: Of what each piece is of, as `text.with_offsets` has them.
    """
    sizes = np.cumsum([0, *(len(char.encode()) for char in text)])
    begins = [sizes[word.start()] for word in re.finditer(r"\S+", text)]
    if len(begins) > 1 and len(starts) and not starts.any() and (ends == ends[0]).all():
        return None
    return np.maximum(np.searchsorted(begins, starts, side="right") - 1, 0)


def _words_of_pieces(text: str, pieces: Sequence[str]) -> Array | None:
    """The same, of SentencePiece's pieces, of which the first of a word begins with its blank."""
    words = np.cumsum([piece.startswith(BLANK) for piece in pieces]) - 1
    return words if words[0] == 0 and words[-1] + 1 == len(text.split()) else None
