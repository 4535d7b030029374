"""Decoders of `tokenizer.json` as ops: ids into strings."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.text.cutting import escaped
from keras_transformers.text.in_graph.patterns import Inexpressible
from keras_transformers.words import byte_letters

CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"))
CLEANED += ((" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Decoder:
    """Strings of ids, as a decoder makes them of the tokens.

    A token becomes a string by itself, another one where it is the first; the strings are joined;
    what stands at the ends is taken away.

    Args:
        part: The decoder of `tokenizer.json`.
        tokens: The token of every id; "" where there is none.
        special: Ids that vanish.

    Raises:
        Inexpressible: If no ops give it exactly.
    """

    def __init__(self, part: Any, tokens: Sequence[str], special: Sequence[int]) -> None:
        self._first: list[Any] = list(tokens)
        self._later: list[Any] = list(tokens)
        self._between, self._fallback, self._fused = "", False, False
        self._strips: list[tuple[str, int, int]] = []
        if part is None:
            self._between = " "
        for step in _steps(part):
            self._take(step)
        hidden = set(special)
        self._visible = [
            number not in hidden and token != "" for number, token in enumerate(tokens)
        ]

    def _take(self, step: Any) -> None:
        kind = step["type"]
        if self._fallback and kind not in ("Fuse", "Strip"):
            raise Inexpressible(f"the decoder {kind}: behind ByteFallback")
        if self._fused and kind != "Strip":
            raise Inexpressible(f"the decoder {kind}: behind Fuse")
        if kind == "Replace":
            self._each(_replacing(step))
        elif kind == "Metaspace":
            space = step.get("replacement", "▁")
            never = step.get("prepend_scheme", "always") == "never"
            self._first = [
                each.replace(space, " " if never else "") for each in map(str, self._first)
            ]
            self._later = [each.replace(space, " ") for each in map(str, self._later)]
        elif kind == "WordPiece":
            prefix, cleans = step.get("prefix", "##"), step.get("cleanup", True)
            self._later = [
                each[len(prefix) :] if each.startswith(prefix) else f" {each}"
                for each in self._later
            ]
            if cleans:
                self._each(_cleaned)
        elif kind == "ByteLevel":
            self._each(_bytes_of_letters)
        elif kind == "ByteFallback":
            self._fallback = True
        elif kind == "Fuse":
            self._fused = True
        elif kind == "Strip" and self._fused:
            self._strips.append((step["content"], step["start"], step["stop"]))
        else:
            raise Inexpressible(f"the decoder {kind}: it is not known here")

    def _each(self, function: Callable[[str], Any]) -> None:
        self._first, self._later = (
            list(map(function, self._first)),
            list(map(function, self._later)),
        )

    def __call__(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)`, valid UTF-8, of ragged ids `(n, None)`."""
        visible = tf.gather(tf.constant(self._visible), ids.values)
        ids = tf.ragged.boolean_mask(ids, ids.with_values(visible))
        row = ids.value_rowids()
        first = tf.concat([[True], row[1:] != row[:-1]], 0)[: tf.size(row)]
        pieces = tf.gather(tf.constant(self._later), ids.values)
        if self._first != self._later:
            pieces = tf.where(first, tf.gather(tf.constant(self._first), ids.values), pieces)
        if self._fallback:
            pieces = self._bytes(pieces, row)
        text = tf.strings.reduce_join(
            tf.RaggedTensor.from_value_rowids(pieces, row, ids.nrows()), 1, separator=self._between
        )
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        for content, start, stop in self._strips:
            letter = escaped(content)
            text = tf.strings.regex_replace(text, f"^{letter}{{0,{start}}}", "")
            text = tf.strings.regex_replace(text, f"{letter}{{0,{stop}}}$", "")
        return text

    def _bytes(self, pieces: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Runs of `<0x..>` as the characters that they make, or one U+FFFD a byte where none."""
        of_byte = [
            bytes([int(m[1], 16)]) if (m := BYTE.fullmatch(s)) else b"" for s in self._names()
        ]
        names = sorted({n for n, b in zip(self._names(), of_byte, strict=True) if b})
        table = {name: bytes([int(name[3:5], 16)]) for name in names}
        equal = pieces[:, None] == tf.constant(names)[None]
        is_byte = tf.reduce_any(equal, 1)
        which = tf.argmax(tf.cast(equal, tf.int32), 1)
        data = tf.gather(tf.constant([table[name] for name in names]), which)
        goes_on = is_byte[1:] & is_byte[:-1] & (row[1:] == row[:-1])
        begins = ~tf.concat([[False], goes_on], 0)[: tf.size(row)]
        run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        count = tf.reduce_sum(tf.cast(begins, tf.int32))
        joined = tf.strings.unsorted_segment_join(data, run, count)
        good = tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8") == joined
        whole = tf.gather(good, run)
        text = tf.where(begins, tf.gather(joined, run), "")
        text = tf.where(whole, text, "\ufffd")
        return tf.where(is_byte, text, pieces)

    def _names(self) -> list[str]:
        return list(map(str, self._later))


def _steps(part: Any) -> list[Any]:
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for each in part["decoders"] for step in _steps(each)]
    return [part]


def _replacing(step: Any) -> Callable[[str], str]:
    if "String" not in step["pattern"]:
        raise Inexpressible("the decoder Replace: of a pattern")
    return lambda token: token.replace(step["pattern"]["String"], step["content"])


def _cleaned(token: str) -> str:
    for before, after in CLEANED:
        token = token.replace(before, after)
    return token


def _bytes_of_letters(token: str) -> bytes:
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    if all(letter in byte_of for letter in token):
        return bytes(byte_of[letter] for letter in token)
    return token.encode("utf-8")
