"""Into which language each text of a request is translated."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.core.types import Tokenizer
from keras_transformers.generation.search import Search

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
