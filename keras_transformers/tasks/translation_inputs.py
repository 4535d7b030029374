"""Further inputs of a translator: languages, and short lists of candidates."""

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
    """The input `target_language` of a translator; a translator without a choice has none.

    Args:
        owner: Name of the exporter, for messages.
        tokenizer: The tokenizer. One with `language_marks` and no `target` leaves a choice.
    """

    def __init__(self, owner: str, tokenizer: Tokenizer) -> None:
        self._owner = owner
        marks = dict(getattr(tokenizer, "language_marks", {}))
        self._banned = (*marks.values(), *getattr(tokenizer, "tags", {}).values())
        has_target = getattr(tokenizer, "target", None) is not None
        self._marks: dict[str, int] = {} if has_target else marks

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
        """Returns a search that writes no marks of languages and no tags."""
        if not self._banned:
            return search
        constraints = search.constraints
        banned = (*constraints.banned, *self._banned)
        constraints = dataclasses.replace(constraints, banned=banned)
        return dataclasses.replace(search, constraints=constraints)

    def marks(self, text: tf.Tensor, *language: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the mark of each text, int32 `(batch, 1)`, or nothing if there is no choice.

        The graph fails if a language is unknown, or there is not one language for each text.
        """
        if not language:
            return ()
        (codes,) = language
        tf.debugging.assert_equal(
            tf.size(codes),
            tf.size(text),
            f"{self._owner}: `target_language` must have one language for each text.",
        )
        matches = tf.equal(codes[:, None], tf.constant(self.codes))
        is_known = tf.reduce_any(matches, axis=1)
        message = [f"{self._sentence} Received:", tf.boolean_mask(codes, ~is_known)]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_known), message)]):
            index = tf.argmax(tf.cast(matches, tf.int32), axis=1)
        marks = tf.constant(tuple(self._marks.values()), tf.int32)
        return (tf.gather(marks, index)[:, None],)

    def encode_choice(
        self, languages: str | Sequence[str] | None, number: int
    ) -> tuple[tf.Tensor, ...]:
        """Converts a choice in Python to the input for a number of texts.

        Args:
            languages: A code for all texts, or a list of one for each; None if there is no choice.
            number: Number of texts.

        Raises:
            ValueError: If a code is unknown, or there is nothing to choose from.
        """
        if not self._marks:
            if languages is not None:
                raise ValueError(
                    f"{self._owner}: `target_language` must be None, there is nothing to choose "
                    f"from. Received: {languages!r}"
                )
            return ()
        codes: list[Any]
        if languages is None or isinstance(languages, str):
            codes = [languages] * number
        else:
            codes = list(languages)
        if len(codes) != number:
            received = f"{len(codes)} for {number} texts"
            raise ValueError(f"{self._sentence} Received: {received:.100}")
        if languages is None or not set(codes) <= set(self._marks):
            raise ValueError(f"{self._sentence} Received: {languages!r:.100}")
        return (tf.constant(codes, tf.string, shape=[number]),)


class Lists(tf.Module):
    """The function `Shortlist.within` in TensorFlow's operations, for SavedModels.

    Args:
        search: The `Shortlisted`.
        padding_id, start_id, end_id: Ids of padding, START and END in a request.
    """

    def __init__(
        self, search: Shortlisted, padding_id: int, start_id: int | None, end_id: int
    ) -> None:
        super().__init__(name="shortlist")
        shortlist = search.shortlist
        self._named = search.named(padding_id, end_id, start_id)
        self._vocab = shortlist.vocab_size
        self._sizes = list_sizes(shortlist.vocab_size)
        self._likeliest = tf.Variable(shortlist.likeliest, trainable=False, dtype=tf.int32)
        splits = np.append(shortlist.splits, shortlist.splits[-1])  # + an empty list, of padding
        self._splits = tf.Variable(splits, trainable=False, dtype=tf.int64)
        always = np.zeros(shortlist.vocab_size, bool)
        always[[token for token in (*self._named, *shortlist.frequent) if token >= 0]] = True
        self._always = tf.Variable(always, trainable=False)

    def within(self, source: tf.Tensor, compiled: bool) -> Within:
        """Returns the `Within` of dense ids `(batch, length)`.

        If it is compiled, it has one of a few sizes; otherwise it is as short as possible.
        """
        batch = tf.shape(source, tf.int64)[0]
        vocab = self._vocab
        lists = tf.RaggedTensor.from_row_splits(self._likeliest, self._splits, validate=False)
        source = tf.where(source < 0, lists.nrows(tf.int32) - 1, source)
        candidates = tf.gather(lists, source).merge_dims(1, 2)
        rows = candidates.value_rowids()
        tokens = candidates.flat_values
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
        cells = tf.stack([rows, tf.cast(tf.gather(positions, tokens), tf.int64)], axis=1)
        shape = tf.stack([batch, tf.cast(size, tf.int64)])
        is_candidate = tf.scatter_nd(cells, tf.ones_like(tokens), shape) > 0
        is_common = tf.gather(self._always, tf.maximum(ids, 0)) & (ids >= 0)
        missing = [[0, size - number]]
        allowed = is_candidate | tf.pad(is_common, missing)[None]
        return Within(tf.pad(ids, missing, constant_values=self._named[0]), allowed)
