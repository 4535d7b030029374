"""What tokenizers are given: ids that are in the vocabulary, and texts that are texts."""

import collections.abc
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, cast

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array, Tensor, Values

GivenIds: TypeAlias = Values | tf.RaggedTensor


def given_ids(owner: str, ids: GivenIds, vocab_size: int, pad_id: int) -> tf.Tensor:
    """Ids to be joined to strings as a dense int32 tensor.

    Args:
        owner: Name of the tokenizer's class, for messages.
        ids: Integers `(..., length)`, dense; ragged `(batch, None)`; or nested lists, whose rows
            may differ in length.
        vocab_size: One more than the largest id.
        pad_id: What fills rows; an id even where it is none of the vocabulary.

    Raises:
        ValueError: If they are no integers, or one is neither in the vocabulary nor padding. In a
            graph the program ends with `tf.errors.InvalidArgumentError` and the same sentence.
    """
    ids = _tensor(ids)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(tf.cast(pad_id, ids.dtype))
    if not ids.dtype.is_integer:
        raise ValueError(f"{owner}: `ids` must be integers. Received: {ids.dtype.name}")
    ids64 = tf.cast(ids, tf.int64)
    wrong = ((ids64 < 0) | (ids64 >= vocab_size)) & (ids64 != pad_id)
    sentence = _sentence(owner, vocab_size)
    if tf.executing_eagerly():
        if tf.reduce_any(wrong):
            raise ValueError(f"{sentence} {ids64[wrong].numpy()[:5].tolist()}")
        return tf.cast(ids64, tf.int32)
    found = tf.boolean_mask(ids64, wrong)
    with tf.control_dependencies([tf.debugging.Assert(tf.size(found) == 0, [sentence, found])]):
        return tf.cast(ids64, tf.int32)


def given_row(owner: str, ids: GivenIds, vocab_size: int) -> Array:
    """The ids of one sequence as an array, after checking that each is in the vocabulary."""
    ids = np.asarray(ids if hasattr(ids, "__array__") else list(cast(Any, ids)))
    if ids.ndim != 1 or ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{owner}: `ids` must be one sequence of integers. Received: {ids.dtype} of shape "
            f"{ids.shape}"
        )
    wrong = (ids < 0) | (ids >= vocab_size)
    if wrong.any():
        raise ValueError(f"{_sentence(owner, vocab_size)} {ids[wrong][:5].tolist()}")
    return ids.astype("int32")


def given_texts(owner: str, strings: Iterable[str | bytes | Tensor]) -> Iterator[str]:
    """`strings` one by one, after checking that they are a collection of texts.

    Args:
        owner: Who was given them, for messages.
        strings: Iterable of str; or of bytes or tensors, as a dataset has them, in UTF-8.

    Raises:
        ValueError: If it is one string, or a dict, whose keys would be taken, or what is in it is
            no text.
    """
    mapping = isinstance(strings, collections.abc.Mapping)
    if mapping or isinstance(strings, (str, bytes)) or not hasattr(strings, "__iter__"):
        hint = "; `.values()` are its values" if mapping else ""
        raise ValueError(
            f"{owner}: `strings` must be an iterable of str. Received: a {type(strings).__name__}"
            f"{hint}"
        )
    return _texts(owner, strings)


def _texts(owner: str, strings: Iterable[Any]) -> Iterator[str]:
    for number, text in enumerate(strings):
        text = text.numpy() if hasattr(text, "numpy") else text
        if not isinstance(text, (str, bytes)):
            raise ValueError(
                f"{owner}: `strings` must be an iterable of str. Received: a "
                f"{type(text).__name__} at position {number}"
            )
        yield text if isinstance(text, str) else text.decode()


def _sentence(owner: str, vocab_size: int) -> str:
    return f"{owner}: `ids` must be from 0 to {vocab_size - 1}, the vocabulary's. Received:"


def _tensor(ids: GivenIds) -> tf.Tensor | tf.RaggedTensor:
    """Ids as a tensor, ragged where lists differ in length."""
    if not isinstance(ids, (list, tuple, range)):
        return ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
    ids = [each.numpy() if hasattr(each, "numpy") else each for each in cast(Any, ids)]
    if any(map(tf.is_tensor, ids)):  # of a graph
        return tf.convert_to_tensor(ids)
    try:
        array = np.asarray(ids)
    except ValueError:
        return tf.ragged.constant(ids)
    return tf.convert_to_tensor(array if array.size else array.astype("int32"))
