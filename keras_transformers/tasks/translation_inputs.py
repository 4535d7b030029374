"""What a translator reads besides texts: languages, and short lists of candidates."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Tokenizer
from keras_transformers.generation import Shortlisted
from keras_transformers.generation.request import SMALLEST
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlists import Within, list_sizes

INPUT = tf.TensorSpec([None], tf.string, name="target_language")


class LanguageChoice:
    """The input `target_language` of a translator; there is none where there is no choice.

    Args:
        owner: For messages: who asks.
        tokenizer: One with `language_marks`, and no `target`, leaves a choice.
    """

    def __init__(self, owner: str, tokenizer: Tokenizer) -> None:
        self._owner = owner
        every = dict(getattr(tokenizer, "language_marks", {}))
        self._banned = (*every.values(), *getattr(tokenizer, "tags", {}).values())
        chosen = getattr(tokenizer, "target", None) is not None
        self._marks: dict[str, int] = {} if chosen else every

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the languages to choose from."""
        return tuple(self._marks)

    @property
    def requests(self) -> tuple[tf.TensorSpec, ...]:
        """The input, or none."""
        return (INPUT,) if self._marks else ()

    @property
    def _sentence(self) -> str:
        return f"{self._owner}: `target_language` must be one of {', '.join(self.codes)}."

    def without_marks(self, search: Any) -> Search:
        """A search that writes no marks: neither those of languages nor tags."""
        if not self._banned:
            return search
        of = search.constraints
        banned = (*of.banned, *self._banned)
        return dataclasses.replace(search, constraints=dataclasses.replace(of, banned=banned))

    def marks(self, text: tf.Tensor, *language: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The mark of each text, int32 `(batch, 1)`, or nothing where there is no choice.

        In a graph it fails by a sentence, where a language is unknown or has no text.
        """
        if not language:
            return ()
        (asked,) = language
        tf.debugging.assert_equal(
            tf.size(asked),
            tf.size(text),
            f"{self._owner}: `target_language` must have one language for each text.",
        )
        same = tf.equal(asked[:, None], tf.constant(self.codes))
        known = tf.reduce_any(same, axis=1)
        unknown = tf.boolean_mask(asked, ~known)
        said = [f"{self._sentence} Received:", unknown]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(known), said)]):
            which = tf.argmax(tf.cast(same, tf.int32), axis=1)
        return (tf.gather(tf.constant(tuple(self._marks.values()), tf.int32), which)[:, None],)

    def given(self, asked: str | Sequence[str] | None, number: int) -> tuple[tf.Tensor, ...]:
        """What is given in Python, as the input for so many texts.

        Raises:
            ValueError: If it is none of the languages, or there is nothing to choose from.
        """
        if not self._marks:
            if asked is not None:
                raise ValueError(
                    f"{self._owner}: `target_language` must be None, there is nothing to choose "
                    f"from. Received: {asked!r}"
                )
            return ()
        each = [asked] * number if asked is None or isinstance(asked, str) else list(asked)
        unknown = [code for code in each if code not in self._marks]
        if unknown or len(each) != number or asked is None:
            shown = f"{len(each)} for {number} texts" if len(each) != number else repr(asked)
            raise ValueError(f"{self._sentence} Received: {shown:.100}")
        return (tf.constant(each, tf.string, shape=[number]),)


class Lists(tf.Module):
    """`Shortlist.within` by TensorFlow's operations, which a SavedModel holds.

    Args:
        search: The `Shortlisted`.
        padding_id, start_id, end_id: Of a request.
    """

    def __init__(
        self, search: Shortlisted, padding_id: int, start_id: int | None, end_id: int
    ) -> None:
        super().__init__(name="shortlist")
        of = search.shortlist
        self._named = search.named(padding_id, end_id, start_id)
        self._vocab, self._sizes = of.vocab_size, list_sizes(of.vocab_size)
        self._likeliest = tf.Variable(of.likeliest, trainable=False, dtype=tf.int32)
        splits = np.append(of.splits, of.splits[-1])  # an empty list behind, of negative padding
        self._splits = tf.Variable(splits, trainable=False, dtype=tf.int64)
        always = np.zeros(of.vocab_size, bool)
        always[[token for token in (*self._named, *of.frequent) if token >= 0]] = True
        self._always = tf.Variable(always, trainable=False)

    def within(self, source: tf.Tensor, compiled: bool) -> Within:
        """The `Within` of dense ids `(batch, length)`; of one of a few sizes where it is compiled.

        Else it is as long as it must be.
        """
        batch, vocab = tf.shape(source, tf.int64)[0], self._vocab
        lists = tf.RaggedTensor.from_row_splits(self._likeliest, self._splits, validate=False)
        source = tf.where(source < 0, lists.nrows(tf.int32) - 1, source)
        listed = tf.gather(lists, source).merge_dims(1, 2)
        rows, tokens = listed.value_rowids(), listed.flat_values
        named = tf.constant(self._named, tf.int32)
        real = tf.constant([token for token in self._named if token >= 0], tf.int32)[:, None]
        present = tf.scatter_nd(tokens[:, None], tf.ones_like(tokens), [vocab]) > 0
        present = tf.tensor_scatter_nd_update(
            present | self._always, real, tf.zeros_like(real[:, 0], tf.bool)
        )
        rest = tf.cast(tf.where(present)[:, 0], tf.int32)
        ids = tf.concat([named, rest], axis=0)
        number = tf.size(ids)
        positions = tf.scatter_nd(ids[1:, None], tf.range(1, number), [vocab])
        size = tf.maximum(number, SMALLEST)
        if compiled:
            size = tf.gather(self._sizes, tf.searchsorted(self._sizes, [number])[0])
        at = tf.stack([rows, tf.cast(tf.gather(positions, tokens), tf.int64)], axis=1)
        shape = tf.stack([batch, tf.cast(size, tf.int64)])
        own = tf.scatter_nd(at, tf.ones_like(tokens), shape) > 0
        common = tf.gather(self._always, tf.maximum(ids, 0)) & (ids >= 0)
        short = [[0, size - number]]
        allowed = own | tf.pad(common, short)[None]
        return Within(tf.pad(ids, short, constant_values=self._named[0]), allowed)
