"""Tokenizing outside of TensorFlow, by the packages `tokenizers` and `sentencepiece`.

They do it wherever tensorflow-text is not: on Windows, on a Python that it has no wheel for. A
graph calls them through Python then, as `tf.data` can; a SavedModel cannot.
"""

import contextlib
import functools
import json
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array

Rows: TypeAlias = Callable[[list[str]], Sequence[Sequence[int]] | Sequence[Sequence[str]]]


def check_ops(owner: str) -> None:
    """ImportError where a tokenizer cannot become part of a SavedModel for want of its ops."""
    if not has_ops():
        raise ImportError(
            f"{owner}: a SavedModel tokenizes with ops of tensorflow-text, which is not installed: "
            "pip install tensorflow-text, on Linux or macOS; all else works without."
        )


def has_package(name: str) -> bool:
    """Whether a package can be imported; a warning says why one that is installed cannot."""
    try:
        __import__(name)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != name:
            warnings.warn(
                f"keras_transformers: {name} is installed but cannot be imported: {error}",
                stacklevel=2,
            )
        return False
    return True


has_ops = functools.partial(has_package, "tensorflow_text")


def package(owner: str, name: str) -> Any:
    """A package of the extra `text`.

    Raises:
        ImportError: If neither it nor tensorflow-text is installed.
    """
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(
            f"{owner}: tokenizing needs the package {name}, or tensorflow-text; run "
            '`pip install "keras_transformers[text]"`.'
        ) from None


def ragged(function: Rows, strings: tf.Tensor, dtype: tf.DType = tf.int32) -> tf.RaggedTensor:
    """What a function of a list of str makes of strings.

    Args:
        function: Gives for each a list of ids, or of str.
        strings: `(n,)`, valid UTF-8.
        dtype: `tf.int32`, or `tf.string`.

    Returns:
        RaggedTensor `(n, None)`.
    """

    def call(strings: Array) -> tuple[Array, Array]:
        rows = function([each.decode("utf-8", "replace") for each in strings])
        flat: list[Any] = [each for row in rows for each in row]
        if dtype == tf.string:
            flat = [piece.encode("utf-8") for piece in flat]
        values = np.array(flat, object if dtype == tf.string else "int32")
        return values, np.array([len(row) for row in rows], "int64")

    if tf.executing_eagerly():
        values, lengths = call(strings.numpy())
        values = tf.constant(values.tolist(), dtype, shape=values.shape)
    else:
        values, lengths = tf.numpy_function(call, [strings], (dtype, tf.int64))
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None])
    return tf.RaggedTensor.from_row_lengths(values, lengths)


def joined(function: Callable[[list[list[int]]], list[str]], ids: tf.RaggedTensor) -> tf.Tensor:
    """Strings `(n,)` that a function makes of ragged ids `(n, None)`."""

    def call(ids: Array, splits: Array) -> Array:
        rows = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
        return np.array([text.encode("utf-8") for text in function(rows)], object)

    if tf.executing_eagerly():
        strings = call(ids.flat_values.numpy(), ids.row_splits.numpy()).tolist()
        return tf.constant(strings, tf.string, shape=[len(strings)])
    found = tf.numpy_function(call, [ids.flat_values, ids.row_splits], tf.string)
    return tf.ensure_shape(found, [None])


def decomposed(strings: tf.Tensor) -> tf.Tensor:
    """Strings `(n,)` in Unicode's form NFD, by tensorflow-text, or by Python."""
    if has_ops():
        import tensorflow_text as tf_text

        return tf_text.normalize_utf8(strings, "NFD")

    def call(strings: Array) -> Array:
        texts = [unicodedata.normalize("NFD", each.decode("utf-8")) for each in strings]
        return np.array([text.encode("utf-8") for text in texts], object)

    if tf.executing_eagerly():
        return tf.constant(call(strings.numpy()).tolist(), tf.string, shape=strings.shape)
    return tf.ensure_shape(tf.numpy_function(call, [strings], tf.string), [None])


class FromDefinition:
    """A tokenizer of the package `tokenizers`, made when it is first used.

    Args:
        owner: Name of the class that uses it, for messages.
        definition: Function that gives what `tokenizer.json` would hold, as a dict.
    """

    def __init__(self, owner: str, definition: Callable[[], dict[str, Any]]) -> None:
        self._owner, self._definition = owner, definition

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`, which neither cuts nor pads."""
        definition = {**self._definition(), "truncation": None, "padding": None}
        tokenizers = package(self._owner, "tokenizers")
        try:
            with self._without_panic():
                return tokenizers.Tokenizer.from_str(json.dumps(dict(definition)))
        except Exception as error:  # the package raises no other class
            raise ValueError(f"{self._owner}: `tokenizers` cannot read it: {error}") from None

    @contextlib.contextmanager
    def _without_panic(self) -> Iterator[None]:
        """Raises a ValueError where the package panics, as at a pattern that takes too long.

        Its class of a panic comes from BaseException, and cannot be imported.
        """
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise ValueError(f"{self._owner}: `tokenizers` panics: {error}") from None

    def ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Ids of strings `(n,)`, without marks around them."""
        return ragged(self._rows, strings)

    def _rows(self, texts: list[str]) -> list[list[int]]:
        with self._without_panic():
            found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found]

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings of ragged ids `(n, None)`; special tokens vanish."""
        return joined(self._joined_rows, ids)

    def _joined_rows(self, rows: list[list[int]]) -> list[str]:
        with self._without_panic():
            return list(self.tokenizer.decode_batch(rows))
