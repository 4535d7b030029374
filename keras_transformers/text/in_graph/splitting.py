"""Pre-tokenizers of `tokenizer.json` as ops: strings into words."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from keras_transformers.text.cutting import SEPARATOR, SPACES, WORD, cut_out, escaped, separated
from keras_transformers.text.in_graph.patterns import Inexpressible, pattern_of

# Function of strings `(n,)`, and of whether each is the beginning of a text, to words `(n, None)`.
Splitter: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.RaggedTensor]
BYTES = {
    "Regex": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
}  # of ByteLevel, which is GPT-2's
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
MARK = b"\xfe"  # no byte of UTF-8 either


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
    made = KINDS.get(kind)
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


def _at(pattern: str, behavior: str, invert: bool = False, cut: str | None = None) -> Splitter:
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
    rewrite = SEPARATOR + MARK + rb"\1" + SEPARATOR if kept_alone else rewrites[behavior]

    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        parts = separated(tf.strings.regex_replace(text, f"({pattern})", rewrite))
        if kept_alone:
            marked = tf.strings.substr(parts.values, 0, 1) == MARK
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
    return _at(pattern, part["behavior"], part.get("invert", False), cut)


def _byte_level(part: Any) -> Splitter:
    splits = lambda text, first: whole(text)  # noqa: E731
    if part.get("use_regex", True):
        pattern, cut = pattern_of(BYTES, "the pre-tokenizer ByteLevel")
        splits = _at(pattern, "Isolated", cut=cut)
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
        return _at(escaped(space), "MergedWithNext")(text, first)

    return split


def _digits(part: Any) -> Splitter:
    return _at(r"\p{N}" if part.get("individual_digits") else r"\p{N}+", "Isolated")


def _punctuation(part: Any) -> Splitter:
    behavior = part.get("behavior", "Isolated")
    if behavior == "Contiguous":
        return _at(f"{PUNCTUATION}+", "Isolated")
    return _at(PUNCTUATION, behavior)


def _bert(part: Any) -> Splitter:
    def split(text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        words = cut_out(text, f"[{SPACES}]+", keep=False)
        return words.with_values(cut_out(words.values, PUNCTUATION)).merge_dims(1, 2)

    return split


KINDS: dict[str, Callable[[Any], Splitter]] = {
    "Split": _split,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Digits": _digits,
    "Punctuation": _punctuation,
    "BertPreTokenizer": _bert,
    "Whitespace": lambda part: _at(rf"[{WORD}]+|[^{WORD}{SPACES}]+", "Removed", invert=True),
    "WhitespaceSplit": lambda part: _at(f"[{SPACES}]+", "Removed"),
    "CharDelimiterSplit": lambda part: _at(escaped(part["delimiter"]), "Removed"),
}
