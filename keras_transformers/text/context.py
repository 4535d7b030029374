"""The ids of sentences that stand behind those before them, and how many of these have room."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import tensorflow as tf

from keras_transformers.annotations import Tokenizer
from keras_transformers.contexts import SEPARATOR

MARK = re.compile("<context([1-9][0-9]*)>")


def mark_of_context(sentences: int) -> str:
    """The tag of a vocabulary for up to so many previous sentences.

    Example:
    >>> from keras_transformers.text.context import mark_of_context
    >>> mark_of_context(2)
    '<context2>'
    """
    return f"<context{sentences}>"


@dataclasses.dataclass(frozen=True)
class Context:
    """What a translator reads before a sentence: previous ones, a mark behind each.

    Tiedemann and Scherrer 2017, https://arxiv.org/abs/1708.05943, "2-to-1".

    Args:
        sentences: How many previous sentences it reads, at most; of more the nearest.
        mark: Id of the mark.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text.context import Context
    >>> ids = tf.ragged.constant([[5, 6, 4, 7, 4, 8, 9], [5, 4]])
    >>> kept, lengths = Context(2, mark=4).within(ids, room=5)
    >>> kept.to_list(), lengths.numpy().tolist()
    ([[7, 4, 8, 9], [5, 4]], [2, 0])
    """

    sentences: int
    mark: int

    @classmethod
    def of_tags(cls, tags: Mapping[str, int]) -> Self | None:
        """The context that a vocabulary has a tag for; None without one."""
        found = ((MARK.fullmatch(tag), number) for tag, number in tags.items())
        return next((cls(int(tag[1]), number) for tag, number in found if tag), None)

    def ids(self, cut: Callable[[tf.Tensor], tf.RaggedTensor], strings: tf.Tensor) -> tf.Tensor:
        """Ragged ids `(n, None)` of strings `(n,)`, in which U+001E stands between sentences.

        Args:
            cut: Function that gives the ids of sentences.
            strings: The strings.
        """
        parts = tf.strings.split(strings, SEPARATOR)[:, -self.sentences - 1 :]
        ids = cut(parts.values)
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self.mark)], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)[:, :-1]

    def within(self, ids: tf.RaggedTensor, room: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Ids without the oldest sentences that have no room, and the lengths of the last alone.

        The last itself stays as long as it is.

        Args:
            ids: As from `ids`, `(n, None)`.
            room: Most ids of a row.
        """
        row, lengths = ids.value_rowids(), ids.row_lengths()
        at = tf.range(tf.size(row, row.dtype)) - tf.gather(ids.row_starts(), row)
        starts = tf.ragged.boolean_mask(ids.with_values(at + 1), ids == self.mark)
        starts = tf.pad(starts.to_tensor(0), [[0, 0], [1, 0]])  # of the sentences of each row
        last = tf.reduce_max(starts, axis=1)
        fits = starts >= (lengths - room)[:, None]
        first = tf.reduce_min(tf.where(fits, starts, last[:, None]), axis=1)
        kept = tf.ragged.boolean_mask(ids, ids.with_values(at >= tf.gather(first, row)))
        return kept, lengths - last


def with_room(sources: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[str]:
    """Sources of at most so many ids, for which the oldest of previous sentences are left out.

    One that is too long alone stays.

    Args:
        sources: With U+001E between sentences.
        tokenizer: Of them.
        longest: Most ids, marks and END counted.
    """
    found = list(sources)
    rows = [row for row, text in enumerate(found) if SEPARATOR in text]
    while rows and getattr(tokenizer, "context", None) is not None:
        sizes = tokenizer.tokenize([found[row] for row in rows], end=True).row_lengths().numpy()
        rows = [row for row, size in zip(rows, sizes, strict=True) if size > longest]
        for row in rows:
            found[row] = found[row].partition(SEPARATOR)[2]
        rows = [row for row in rows if SEPARATOR in found[row]]
    return found
