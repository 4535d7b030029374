"""Strings cut into parts where a pattern says so, by ops that every TensorFlow has."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# What Unicode calls white space, in a class of RE2.
SPACES = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# What `\w` is to Rust's regular expressions, in a class of RE2.
WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}"
WORD += r"\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
SEPARATOR = b"\xff"  # no byte of UTF-8


def valid(strings: tf.Tensor, errors: str = "replace") -> tf.Tensor:
    """Strings in valid UTF-8; what is none becomes U+FFFD, or is left out ("ignore")."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors=errors)


def escaped(content: str) -> str:
    """A pattern of RE2 for exactly this text."""
    return re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", content)


def cut_out(strings: tf.Tensor, pattern: str, keep: bool = True) -> tf.RaggedTensor:
    """The matches of a pattern and what stands between them, each a part; no part is empty.

    Args:
        strings: `(n,)`, valid UTF-8.
        pattern: Of RE2, without groups that are numbered.
        keep: Whether the matches are kept.

    Returns:
        String RaggedTensor `(n, None)`.
    """
    rewrite = SEPARATOR + rb"\1" + SEPARATOR if keep else SEPARATOR
    return separated(tf.strings.regex_replace(strings, f"({pattern})", rewrite))


def separated(strings: tf.Tensor) -> tf.RaggedTensor:
    """The parts between separators that are not empty."""
    parts = tf.strings.split(strings, sep=SEPARATOR)
    return tf.ragged.boolean_mask(parts, parts.with_values(parts.flat_values != ""))


class Numbers:
    """A table of strings and their numbers that is no resource of a graph.

    Strings are told apart by 63 bits of a hash.

    Args:
        numbers: Dict of string -> number.

    Raises:
        ValueError: If two strings have one hash.
    """

    def __init__(self, numbers: Mapping[Any, int]) -> None:
        hashes = self._hashed(tf.constant(list(numbers), tf.string)).numpy()
        order = hashes.argsort()
        self._hashes = hashes[order]
        self._numbers = np.array(list(numbers.values()), "int32")[order]
        if (self._hashes[1:] == self._hashes[:-1]).any():
            raise ValueError("Two pieces of the vocabulary have one hash.")

    @staticmethod
    def _hashed(strings: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_hash_bucket_fast(strings, (1 << 63) - 1)

    def __call__(self, strings: tf.Tensor, other: int) -> tf.Tensor:
        """Their numbers, int32; `other` for those that are not there."""
        hashes = self._hashed(strings)
        found = tf.minimum(tf.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        known = tf.gather(tf.constant(self._hashes), found) == hashes
        return tf.where(known, tf.gather(tf.constant(self._numbers), found), other)
