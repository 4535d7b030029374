"""What a tokenizer puts around a text, and around a pair of texts."""

from typing import Any

import tensorflow as tf

from keras_transformers.text.templates import Marks


def rows_of(marks: Marks, number: tf.Tensor) -> tf.Tensor:
    """Marks as they stand beside each of that many rows: int32 `(number, marks)`."""
    return tf.tile(tf.constant([marks], tf.int32, [1, len(marks)]), [number, 1])


def in_marks(ids: tf.RaggedTensor, marks: tuple[Marks, Marks]) -> tf.RaggedTensor:
    """Ragged rows of ids with marks before and behind each."""
    before, after = (rows_of(each, ids.nrows()) for each in marks)
    return tf.concat([before, ids, after], axis=1)


def cutter_of_targets(tokenizer: Any) -> Any:
    """The tokenizer that cuts targets, marks apart: only Marian's may have a model for each side.

    Languages alone change marks, and need not be known.
    """
    return tokenizer.for_targets() if hasattr(tokenizer, "target_proto") else tokenizer


def marks_of(tokenizer: Any) -> tuple[Marks, Marks]:
    """The ids that a tokenizer puts before and after a text that is classified.

    Those of a `tokenizer.json`'s template, or START and END; none where texts have no START, as
    GPT-2's.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> from keras_transformers.text.frames import marks_of
    >>> marks_of(WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    ((2,), (3,))
    """
    found: tuple[Marks, Marks] | None = getattr(tokenizer, "text_marks", None)
    if found is not None:
        return found
    if tokenizer.start_id is None:
        return (), ()
    return (tokenizer.start_id,), (tokenizer.end_id,)


def marks_of_pair(tokenizer: Any) -> tuple[Marks, Marks, Marks]:
    """The ids before the first text of a pair, between the two, and after the second.

    Those of a `tokenizer.json`'s template; of RoBERTa and XLM-R `<s>`, `</s></s>` and `</s>`; of
    others as `marks_of`, and END between.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> from keras_transformers.text.frames import marks_of_pair
    >>> marks_of_pair(WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    ((2,), (3,), (3,))
    """
    found: tuple[Marks, Marks, Marks] | None = getattr(tokenizer, "pair_marks", None)
    if found is not None:
        return found
    before, after = marks_of(tokenizer)
    return before, after, after
