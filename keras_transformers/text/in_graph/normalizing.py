"""Normalisers of `tokenizer.json` as ops."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from keras_transformers.text.cutting import SPACES, cut_out
from keras_transformers.text.in_graph.patterns import Inexpressible, pattern_of
from keras_transformers.text.in_graph.precompiled import precompiled
from keras_transformers.text.word_splitting import IDEOGRAPHS

Normalizer: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# What the published normaliser of BERT leaves out, and what it takes for a space.
NOTHING = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\p{Co}\x{FFFD}]"
BLANKS = r"[\t\n\r\p{Z}]"
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
    made = KINDS.get(kind)
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


def _bert(part: Any) -> Normalizer:
    lowers = part.get("lowercase", True)
    accents = part.get("strip_accents")
    steps: list[Normalizer] = []
    if part.get("clean_text", True):
        steps += [_replacing(BLANKS, " "), _replacing(NOTHING, "")]
    if part.get("handle_chinese_chars", True):
        steps.append(lambda text: tf.strings.regex_replace(text, f"([{IDEOGRAPHS}])", r" \1 "))
    if lowers if accents is None else accents:
        steps += [_form("NFD"), _replacing(r"\p{Mn}", "")]
    if lowers:
        steps.append(lower)
    return lambda text: _after(steps, text)


KINDS: dict[str, Callable[[Any], Normalizer]] = {
    "Lowercase": lambda part: lower,
    "StripAccents": lambda part: _replacing(r"\p{M}", ""),
    "Replace": _replace,
    "Prepend": _prepend,
    "Strip": _strip,
    "Nmt": _nmt,
    "BertNormalizer": _bert,
    "Precompiled": precompiled,
}
