"""Normalisers and pre-tokenizers of `tokenizer.json` as ops, and regular expressions for them.

The patterns of the file are Oniguruma's; those of TensorFlow's ops are RE2's.

SentencePiece's table of characters (`Precompiled`) is applied as the package `tokenizers` applies
it, which looks at one cluster of characters after another ("e" and the accent on it). A cluster of
fewer than six bytes becomes, whole, what the table has for its beginning. Of other clusters, and
where the table has no beginning, every character becomes what the table has for it.
"""

import base64
import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array
from keras_transformers.text.cutting import (
    SEPARATOR,
    SPACES,
    WORD,
    Numbers,
    cut_out,
    escaped,
    separated,
)
from keras_transformers.text.wordpiece import IDEOGRAPHS

# Alternatives among which a last space goes with what follows: none reaches over it.
BESIDE_LOOKAHEAD = {
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    "(?:'s|'t|'re|'ve|'m|'ll|'d)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+",
    r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+",
}  # fmt: skip
CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
for _ends in ("", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"):
    BESIDE_LOOKAHEAD |= {
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}*{CASED[1]}+{_ends}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}+{CASED[1]}*{_ends}",
    }
LOOKAHEAD = r"\s+(?!\S)"
PROPERTY = re.compile(r"\\[pP]\{(L|N|P|M|S|Z|Lu|Ll|Lt|Lm|Lo|Mn|Nd|Sc|Sm|Zs|Han)\}")
CODE_POINT = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2}))")
CLASSES = {"s": SPACES, "d": r"\p{Nd}"}


class Inexpressible(ValueError):
    """A part of a tokenizer that TensorFlow's ops do not give exactly."""


def pattern_of(part: Any, owner: str) -> tuple[str, str | None]:
    """The pattern of RE2 for `{"String": ...}` or `{"Regex": ...}`.

    Returns:
        It, and what a string must be cut with beforehand, `(white space)(what goes on)`, or None.
    """
    if isinstance(part, str):
        return escaped(part), None
    if "String" in part:
        return escaped(part["String"]), None
    pattern = part["Regex"]
    parts = _alternatives(pattern)
    cut = None
    if LOOKAHEAD in parts:
        unknown = [each for each in parts if each not in BESIDE_LOOKAHEAD | {LOOKAHEAD}]
        if unknown or parts[-1] != r"\s+":
            raise Inexpressible(
                f"{owner}: RE2 looks at nothing ahead, and beside {LOOKAHEAD!r} knows nothing of "
                f"{unknown[0] if unknown else parts[-1]!r}"
            )
        newlines = any(each.startswith(r"\s*[\r\n]") for each in parts)
        last = SPACES.replace(r"\t-\r", r"\t\x0B\x0C") if newlines else SPACES
        cut = rf"([{SPACES}])([{last}][^{SPACES}])"
        parts = [each for each in parts if each != LOOKAHEAD]
    return "|".join(_translated(each, owner) for each in parts), cut


def _alternatives(pattern: str) -> list[str]:
    """The parts between bars that stand in no group and in no class."""
    parts, depth, inside, i = [""], 0, False, 0
    while i < len(pattern):
        each = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        inside = each == "[" or inside and each != "]"
        if not inside:
            depth += (each == "(") - (each == ")")
        if each == "|" and not depth and not inside:
            parts.append("")
        else:
            parts[-1] += each
        i += len(each)
    return parts


def _translated(pattern: str, owner: str) -> str:
    found, i = "", 0
    while i < len(pattern):
        part, i = _next(pattern, i, owner)
        found += part
    return found


def _next(pattern: str, i: int, owner: str) -> tuple[str, int]:
    """The counterpart of what stands at `i`, and where it ends."""
    c = pattern[i]
    if c == "\\":
        return _escape(pattern, i, owner, inside=False)
    if c == "[":
        return _translated_class(pattern, i, owner)
    if c == "(":
        start = next((s for s in ("(?:", "(?i:") if pattern.startswith(s, i)), "(?:")
        if pattern.startswith("(?", i) and not pattern.startswith(start, i):
            raise _refused(owner, pattern[i : i + 4])
        return start, i + (len(start) if pattern.startswith("(?", i) else 1)
    if c in "?*}" and pattern[i + 1 : i + 2] == "+" or c == "+" == pattern[i + 1 : i + 2]:
        raise _refused(owner, pattern[i : i + 2])
    if c in "^$.":
        raise _refused(owner, c)
    return c, i + 1


def _translated_class(pattern: str, i: int, owner: str) -> tuple[str, int]:
    begin, found, i = i, "[", i + 1
    if pattern.startswith("^", i):
        found, i = found + "^", i + 1
    while not pattern.startswith("]", i):
        if i >= len(pattern):
            raise Inexpressible(f"{owner}: {pattern[begin : begin + 20]!r} has no end")
        if pattern[i] == "[" or pattern.startswith("&&", i):
            raise _refused(owner, pattern[i : i + 2])
        if pattern[i] == "\\":
            part, i = _escape(pattern, i, owner, inside=True)
        else:
            part, i = pattern[i], i + 1
        found += part
    return found + "]", i + 1


def _escape(pattern: str, i: int, owner: str, inside: bool) -> tuple[str, int]:
    c = pattern[i + 1 : i + 2]
    if not c:
        raise Inexpressible(f"{owner}: a backslash with nothing behind it")
    if c in "pP":
        match = PROPERTY.match(pattern, i)
        if match is None:
            raise _refused(owner, pattern[i : i + 6])
        return match[0], match.end()
    if c in CLASSES:
        return CLASSES[c] if inside else f"[{CLASSES[c]}]", i + 2
    if c == "S" and not inside:
        return f"[^{SPACES}]", i + 2
    if c in "rnt" or not c.isalnum():
        return pattern[i : i + 2], i + 2
    match = CODE_POINT.match(pattern, i)
    if match is None:
        raise _refused(owner, pattern[i : i + 2])
    return rf"\x{{{match[1] or match[2] or match[3]}}}", match.end()


def _refused(owner: str, what: str) -> Inexpressible:
    return Inexpressible(f"{owner}: RE2 has no exact counterpart of {what!r}")


SHORT = 6  # bytes; only shorter clusters are looked up
# Unicode's annex 29: what stands before another character, which it is one cluster with.
PREPEND = r"\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{D4E}\x{110BD}\x{110CD}\x{111C2}"
PREPEND += r"\x{111C3}\x{1193F}\x{11941}\x{11A3A}\x{11A84}-\x{11A89}\x{11D46}\x{11F02}"
# Characters that go on with a cluster though they are no marks, and marks that do not.
EXTEND = "\u200c\u200d\uff9e\uff9f\u0e33\u0eb3" + "".join(map(chr, range(0x1F3FB, 0x1F400)))
NOT_EXTEND = {0x102B, 0x102C, 0x1038, 0x1083, 0x108F, 0x1A61, 0x1A63, 0x1A64, 0xAA7B, 0xAA7D}
NOT_EXTEND |= {*range(0x1062, 0x1065), *range(0x1067, 0x106E), *range(0x1087, 0x108D)}
NOT_EXTEND |= {*range(0x109A, 0x109D), 0x11720, 0x11721}
CONTROL = ("Cc", "Cf", "Zl", "Zp")  # never part of a cluster


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
    waiting = [(b"", _trie_offset(units[0]))]
    while waiting:
        key, position = waiting.pop()
        children = np.uint32(position) ^ labels
        inside = children < len(units)
        children, of = children[inside], labels[inside]
        there = (units[children] & np.uint32(0x800000FF)) == of
        for child, label in zip(children[there], of[there], strict=True):
            unit, longer = units[child], key + bytes([label])
            after = int(child) ^ _trie_offset(unit)
            if unit >> 8 & 1:
                start = int(units[after] & np.uint32(0x7FFFFFFF))
                found[longer] = strings[start : strings.index(0, start)]
            waiting.append((longer, after))
    return found


def _trie_offset(unit: Array) -> int:
    unit = int(unit)
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


def _clusters() -> str:
    """A pattern of RE2 for clusters of several characters."""
    after = [c for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Me", "Mc")]
    after = sorted({*after, *map(ord, EXTEND), *range(0xE0020, 0xE0080)} - NOT_EXTEND)
    apart = [c for c in range(0x110000) if unicodedata.category(chr(c)) in CONTROL]
    before = {int(each, 16) for each in PREPEND.replace("-", "").strip(r"\x{}").split(r"}\x{")}
    apart = sorted({*apart} - {*after} - before - {0x601, 0x602, 0x603, 0x604})
    marks, none = _code_ranges(after), _code_ranges(apart)
    return rf"\r\n|[{PREPEND}]*[^{none}][{marks}]+|[{PREPEND}]+[^{none}]"


def _code_ranges(codes: list[int]) -> str:
    """Code points, in order, as the inside of a class of RE2."""
    edges = np.flatnonzero(np.diff(codes) != 1)
    starts = [codes[0], *(codes[i + 1] for i in edges)]
    ends = [*(codes[i] for i in edges), codes[-1]]
    return "".join(rf"\x{{{a:X}}}-\x{{{b:X}}}" for a, b in zip(starts, ends, strict=True))


Normalizer: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# What the published normaliser of BERT leaves out, and what it takes for a space.
BERT_NOTHING = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\p{Co}\x{FFFD}]"
BERT_BLANKS = r"[\t\n\r\p{Z}]"
# The same of SentencePiece's rules for translation (`Nmt`).
NMT_NOTHING = r"[\x01-\x08\x0B\x0E-\x1F\x7F\x{8F}\x{9F}]"
NMT_BLANKS = r"[\t\n\x0C\r\x{1680}\x{200B}-\x{200F}\x{2028}\x{2029}\x{2581}\x{FEFF}\x{FFFD}]"
REASONS = {"ByteLevel": "its letters for bytes are made by the pre-tokenizer here"}


def normalizer(part: Any) -> Normalizer:
    """The function of valid UTF-8 strings `(n,)` that a normaliser is.

    Raises:
        Inexpressible: If no ops give it exactly.
    """
    if part is None:
        return lambda text: text
    kind = part.get("type")
    if kind == "Sequence":
        steps = [normalizer(each) for each in part["normalizers"]]
        return lambda text: _after(steps, text)
    if kind in FORMS:
        return _form(kind)
    made = NORMALIZERS.get(kind)
    if made is None:
        reason = REASONS.get(kind, "it is not known here")
        raise Inexpressible(f"the normaliser {kind}: {reason}")
    return made(part)


def _after(steps: list[Normalizer], text: tf.Tensor) -> tf.Tensor:
    for step in steps:
        text = step(text)
    return text


def _form(form: str) -> Normalizer:
    import tensorflow_text as tf_text  # only who tokenizes needs it

    return lambda text: tf_text.normalize_utf8(text, form)


def lower(text: tf.Tensor) -> tf.Tensor:
    """Letter by letter: TensorFlow's own would make a last sigma of one at a word's end.

    And it would end a text at a zero, for which the text is cut there.
    """
    parts = cut_out(tf.strings.regex_replace(text, "Σ", "σ"), r"\x00")
    flat = tf.where(parts.values == "\x00", parts.values, tf.strings.lower(parts.values, "utf-8"))
    return tf.strings.reduce_join(parts.with_values(flat), 1)


def _replacing(pattern: str, content: str) -> Normalizer:
    content = content.replace("\\", r"\\")
    return lambda text: tf.strings.regex_replace(text, pattern, content)


def _replace(part: Any) -> Normalizer:
    pattern, cut = pattern_of(part["pattern"], "the normaliser Replace")
    if cut is not None:
        raise Inexpressible("the normaliser Replace: RE2 looks at nothing ahead")
    return _replacing(pattern, part["content"])


def _prepend(part: Any) -> Normalizer:
    prefix = part["prepend"]
    return lambda text: tf.where(text == "", text, tf.strings.join([prefix, text]))


def _strip(part: Any) -> Normalizer:
    steps = [_replacing(rf"^[{SPACES}]+", "")] if part.get("strip_left") else []
    steps += [_replacing(rf"[{SPACES}]+$", "")] if part.get("strip_right") else []
    return lambda text: _after(steps, text)


def _nmt(part: Any) -> Normalizer:
    steps = [_replacing(NMT_NOTHING, ""), _replacing(NMT_BLANKS, " ")]
    return lambda text: _after(steps, text)


def _bert_normalizer(part: Any) -> Normalizer:
    lowers = part.get("lowercase", True)
    accents = part.get("strip_accents")
    steps: list[Normalizer] = []
    if part.get("clean_text", True):
        steps += [_replacing(BERT_BLANKS, " "), _replacing(BERT_NOTHING, "")]
    if part.get("handle_chinese_chars", True):
        steps.append(lambda text: tf.strings.regex_replace(text, f"([{IDEOGRAPHS}])", r" \1 "))
    if lowers if accents is None else accents:
        steps += [_form("NFD"), _replacing(r"\p{Mn}", "")]
    if lowers:
        steps.append(lower)
    return lambda text: _after(steps, text)


NORMALIZERS: dict[str, Callable[[Any], Normalizer]] = {
    "Lowercase": lambda part: lower,
    "StripAccents": lambda part: _replacing(r"\p{M}", ""),
    "Replace": _replace,
    "Prepend": _prepend,
    "Strip": _strip,
    "Nmt": _nmt,
    "BertNormalizer": _bert_normalizer,
    "Precompiled": precompiled,
}


# Function of strings `(n,)`, and of whether each is the beginning of a text, to words `(n, None)`.
Splitter: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.RaggedTensor]
BYTE_LEVEL = {
    "Regex": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
}  # of ByteLevel, which is GPT-2's
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
ALONE_MARK = b"\xfe"  # no byte of UTF-8 either


def splitter(part: Any) -> Splitter:
    """The function that a pre-tokenizer is; of ByteLevel the letters for bytes are left out.

    Raises:
        Inexpressible: If no ops give it exactly.
    """
    if part is None:
        return lambda text, first: whole(text)
    kind = part.get("type")
    if kind == "Sequence":
        return _sequence(part["pretokenizers"])
    made = SPLITTERS.get(kind)
    if made is None:
        raise Inexpressible(f"the pre-tokenizer {kind}: it is not known here")
    return made(part)


def is_of_bytes(part: Any) -> bool:
    """Whether words are made of the letters that stand for bytes.

    Raises:
        Inexpressible: If something follows that would see the letters.
    """
    kind = None if part is None else part.get("type")
    if kind != "Sequence":
        return kind == "ByteLevel"
    found = [is_of_bytes(each) for each in part["pretokenizers"]]
    if any(found[:-1]):
        raise Inexpressible("the pre-tokenizer ByteLevel: another one follows on it")
    return any(found)


def cuts_punctuation(part: Any) -> bool:
    """Whether every character of punctuation is a word of its own."""
    kind = None if part is None else part.get("type")
    if kind == "Sequence":
        return any(map(cuts_punctuation, part["pretokenizers"]))
    alone = kind == "Punctuation" and part.get("behavior", "Isolated") in ("Isolated", "Removed")
    return alone or kind == "BertPreTokenizer"


def whole(text: tf.Tensor) -> tf.RaggedTensor:
    """Each string as one word; an empty one has none."""
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(text, text != ""), tf.cast(text != "", tf.int64)
    )


def _sequence(parts: list[Any]) -> Splitter:
    if any(each.get("prepend_scheme") == "first" for each in parts[1:]):
        raise Inexpressible(
            "the pre-tokenizer Metaspace: with prepend_scheme first it must be first"
        )
    steps = [splitter(each) for each in parts]

    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        words = whole(text)
        for number, step in enumerate(steps):
            begins = tf.boolean_mask(first, text != "") if number == 0 else None
            words = words.with_values(step(words.values, begins)).merge_dims(1, 2)
        return words

    return split


def _split_at(
    pattern: str, behavior: str, invert: bool = False, cut: str | None = None
) -> Splitter:
    """A splitter at the matches of a pattern; `cut` is what `pattern_of` gives."""
    rewrites = {
        "Isolated": SEPARATOR + rb"\1" + SEPARATOR,
        "Removed": SEPARATOR,
        "MergedWithPrevious": rb"\1" + SEPARATOR,
        "MergedWithNext": SEPARATOR + rb"\1",
    }
    if behavior not in rewrites or invert and behavior not in ("Isolated", "Removed"):
        raise Inexpressible(f"the pre-tokenizer Split: no ops for {behavior}, inverted: {invert}")
    kept_alone = invert and behavior == "Removed"
    rewrite = SEPARATOR + ALONE_MARK + rb"\1" + SEPARATOR if kept_alone else rewrites[behavior]

    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        parts = separated(tf.strings.regex_replace(text, f"({pattern})", rewrite))
        if kept_alone:
            marked = tf.strings.substr(parts.values, 0, 1) == ALONE_MARK
            parts = tf.ragged.boolean_mask(parts, parts.with_values(marked))
            parts = parts.with_values(tf.strings.substr(parts.values, 1, 1 << 30))
        return parts

    if cut is None:
        return split
    border = rb"\1" + SEPARATOR + rb"\2"

    def cut_and_split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        parts = separated(tf.strings.regex_replace(text, cut, border))
        return parts.with_values(split(parts.values, first)).merge_dims(1, 2)

    return cut_and_split


def _split(part: Any) -> Splitter:
    pattern, cut = pattern_of(part["pattern"], "the pre-tokenizer Split")
    if cut is not None and part["behavior"] != "Isolated":
        raise Inexpressible("the pre-tokenizer Split: RE2 looks at nothing ahead")
    return _split_at(pattern, part["behavior"], part.get("invert", False), cut)


def _byte_level(part: Any) -> Splitter:
    splits = lambda text, first: whole(text)  # noqa: E731
    if part.get("use_regex", True):
        pattern, cut = pattern_of(BYTE_LEVEL, "the pre-tokenizer ByteLevel")
        splits = _split_at(pattern, "Isolated", cut=cut)
    if not part.get("add_prefix_space", True):
        return splits

    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        bare = (text != "") & ~tf.strings.regex_full_match(text, "(?s) .*")
        return splits(tf.where(bare, tf.strings.join([" ", text]), text), first)

    return split


def _metaspace(part: Any) -> Splitter:
    space = part.get("replacement", "▁")
    scheme = part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never")
    begins = rf"(?s){escaped(space)}.*"

    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        text = tf.strings.regex_replace(text, " ", space)
        bare = (text != "") & ~tf.strings.regex_full_match(text, begins)
        if scheme == "first":
            bare &= first
        if scheme != "never":
            text = tf.where(bare, tf.strings.join([space, text]), text)
        if not part.get("split", True):
            return whole(text)
        return _split_at(escaped(space), "MergedWithNext")(text, first)

    return split


def _digits(part: Any) -> Splitter:
    return _split_at(r"\p{N}" if part.get("individual_digits") else r"\p{N}+", "Isolated")


def _punctuation(part: Any) -> Splitter:
    behavior = part.get("behavior", "Isolated")
    if behavior == "Contiguous":
        return _split_at(f"{PUNCTUATION}+", "Isolated")
    return _split_at(PUNCTUATION, behavior)


def _bert_splitter(part: Any) -> Splitter:
    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        words = cut_out(text, f"[{SPACES}]+", keep=False)
        return words.with_values(cut_out(words.values, PUNCTUATION)).merge_dims(1, 2)

    return split


SPLITTERS: dict[str, Callable[[Any], Splitter]] = {
    "Split": _split,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Digits": _digits,
    "Punctuation": _punctuation,
    "BertPreTokenizer": _bert_splitter,
    "Whitespace": lambda part: _split_at(rf"[{WORD}]+|[^{WORD}{SPACES}]+", "Removed", invert=True),
    "WhitespaceSplit": lambda part: _split_at(f"[{SPACES}]+", "Removed"),
    "CharDelimiterSplit": lambda part: _split_at(escaped(part["delimiter"]), "Removed"),
}
