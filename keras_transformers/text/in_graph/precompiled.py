"""SentencePiece's table of characters (`Precompiled`) as ops, applied as `tokenizers` applies it.

The package looks at one cluster of characters after another ("e" and the accent on it). One of
fewer than six bytes becomes, whole, what the table has for its beginning; of others, and where the
table has no beginning, every character becomes what the table has for it.
"""

import base64
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.text.cutting import Numbers, cut_out

SHORT = 6  # bytes; only shorter clusters are looked up
# Unicode's annex 29: what stands before another character, which it is one cluster with.
BEFORE = r"\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{D4E}\x{110BD}\x{110CD}\x{111C2}"
BEFORE += r"\x{111C3}\x{1193F}\x{11941}\x{11A3A}\x{11A84}-\x{11A89}\x{11D46}\x{11F02}"
# Characters that go on with a cluster though they are no marks, and marks that do not.
AFTER = "\u200c\u200d\uff9e\uff9f\u0e33\u0eb3" + "".join(map(chr, range(0x1F3FB, 0x1F400)))
NOT_AFTER = {0x102B, 0x102C, 0x1038, 0x1083, 0x108F, 0x1A61, 0x1A63, 0x1A64, 0xAA7B, 0xAA7D}
NOT_AFTER |= {*range(0x1062, 0x1065), *range(0x1067, 0x106E), *range(0x1087, 0x108D)}
NOT_AFTER |= {*range(0x109A, 0x109D), 0x11720, 0x11721}
APART = ("Cc", "Cf", "Zl", "Zp")  # never part of a cluster


def precompiled(part: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function of valid UTF-8 strings `(n,)` that the normaliser is."""
    table = entries(base64.b64decode(part["precompiled_charsmap"] or ""))
    if not table:
        return lambda text: text
    replaced = Numbers({key: number for number, key in enumerate(table)})
    contents = list(table.values())
    pattern = _clusters()

    def normalize(text: tf.Tensor) -> tf.Tensor:
        parts = cut_out(text, pattern)
        flat = parts.values
        short = tf.strings.regex_full_match(flat, pattern) & (tf.strings.length(flat) < SHORT)
        number = tf.fill(tf.shape(flat), -1)
        for size in range(1, SHORT):
            start = tf.strings.substr(flat, 0, size, unit="UTF8_CHAR")
            number = tf.where(number < 0, replaced(start, -1), number)
        number = tf.where(short, number, -1)
        letters = tf.strings.unicode_split(tf.where(number < 0, flat, ""), "UTF-8")
        each = replaced(letters.values, -1)
        found = tf.gather(tf.constant(contents), tf.maximum(each, 0))
        letters = letters.with_values(tf.where(each < 0, letters.values, found))
        whole = tf.gather(tf.constant(contents), tf.maximum(number, 0))
        flat = tf.where(number < 0, tf.strings.reduce_join(letters, 1), whole)
        return tf.strings.reduce_join(parts.with_values(flat), 1)

    return normalize


def entries(charsmap: bytes) -> dict[bytes, bytes]:
    """Dict of what is replaced -> by what; both UTF-8.

    The file is a trie as a double array (Yata et al., `darts-clone`), and the strings behind it,
    each ended by a zero.
    """
    if not charsmap:
        return {}
    size = int(np.frombuffer(charsmap, "<u4", 1)[0])
    units, strings = np.frombuffer(charsmap, "<u4", size // 4, 4), charsmap[4 + size :]
    labels, found = np.arange(1, 256, dtype="uint32"), {}
    waiting = [(b"", _offset(units[0]))]
    while waiting:
        key, position = waiting.pop()
        children = np.uint32(position) ^ labels
        inside = children < len(units)
        children, of = children[inside], labels[inside]
        there = (units[children] & np.uint32(0x800000FF)) == of
        for child, label in zip(children[there], of[there], strict=True):
            unit, longer = units[child], key + bytes([label])
            after = int(child) ^ _offset(unit)
            if unit >> 8 & 1:
                start = int(units[after] & np.uint32(0x7FFFFFFF))
                found[longer] = strings[start : strings.index(0, start)]
            waiting.append((longer, after))
    return found


def _offset(unit: Array) -> int:
    unit = int(unit)
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


def _clusters() -> str:
    """A pattern of RE2 for clusters of several characters."""
    after = [c for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Me", "Mc")]
    after = sorted({*after, *map(ord, AFTER), *range(0xE0020, 0xE0080)} - NOT_AFTER)
    apart = [c for c in range(0x110000) if unicodedata.category(chr(c)) in APART]
    before = {int(each, 16) for each in BEFORE.replace("-", "").strip(r"\x{}").split(r"}\x{")}
    apart = sorted({*apart} - {*after} - before - {0x601, 0x602, 0x603, 0x604})
    marks, none = _class(after), _class(apart)
    return rf"\r\n|[{BEFORE}]*[^{none}][{marks}]+|[{BEFORE}]+[^{none}]"


def _class(codes: list[int]) -> str:
    """Code points, in order, as the inside of a class of RE2."""
    edges = np.flatnonzero(np.diff(codes) != 1)
    starts = [codes[0], *(codes[i + 1] for i in edges)]
    ends = [*(codes[i] for i in edges), codes[-1]]
    return "".join(rf"\x{{{a:X}}}-\x{{{b:X}}}" for a, b in zip(starts, ends, strict=True))
