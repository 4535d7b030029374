"""Text into words as BERT splits it, in the TensorFlow graph."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.annotations import Strings
from keras_transformers.text.added_tokens import AddedToken
from keras_transformers.text.host import decomposed

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# What a special token is among the words: a control character, which cleaned text cannot hold.
MARKS = {token: chr(1 + number) for number, token in enumerate(SPECIAL)}
SPACES = r"[\t\n\r\p{Z}]"
NOTHING = r"[\x00\x06-\x1F\x7F-\x9F\p{Cf}\p{Co}\x{FFFD}]"  # the marks, 01 to 05, stay
# 2B820 to 2B91F are missing, as in Hugging Face's, where a 2B820 was typed as 2B920.
IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
ALONE = r"([!-/:-@\[-`{-~\p{P}" + IDEOGRAPHS + "])"  # each a word of its own


def bert_words(strings: tf.Tensor, lower_case: bool) -> tf.RaggedTensor:
    """Splits strings into words at spaces, punctuation and ideographs.

    The rules of Devlin et al. 2018 (https://arxiv.org/abs/1810.04805), in the order in which
    Hugging Face's `BertTokenizer` applies them: control characters are left out, accents stripped
    before letters become lower case, and special tokens found before anything else.

    Args:
        strings: String tensor `(batch,)`, UTF-8; bytes that are none are left out.
        lower_case: Whether text becomes lower case and loses its accents.

    Returns:
        String RaggedTensor `(batch, None)`; a special token is its character of `MARKS`.
    """
    text = without_marks(strings)
    for token, mark in MARKS.items():
        text = tf.strings.regex_replace(text, rf"\[{token[1:-1]}\]", f" {mark} ")
    return split_words(normalized(text, lower_case))


def without_marks(strings: Strings) -> tf.Tensor:
    """The strings in valid UTF-8, without the characters that `MARKS` uses."""
    text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="ignore")
    return tf.strings.regex_replace(text, r"[\x01-\x05]", "\x06")


def normalized(text: tf.Tensor, lower_case: bool, ideographs: bool = False) -> tf.Tensor:
    """Text without control characters and accents, in lower case where that is wanted.

    `ideographs` says whether spaces are put around them, as Hugging Face's normaliser does, before
    letters are decomposed; for whoever looks for a token in normalised text.
    """
    replace = tf.strings.regex_replace
    text = replace(replace(text, SPACES, " "), NOTHING, "")
    if ideographs:
        text = replace(text, f"([{IDEOGRAPHS}])", r" \1 ")
    if lower_case:
        text = replace(decomposed(text), r"\p{Mn}", "")
        # Letter by letter: `lower` would make a last sigma of one at a word's end.
        text = tf.strings.lower(replace(text, "Σ", "σ"), "utf-8")
    return text


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits normalised text at spaces, and cuts out punctuation and ideographs."""
    return tf.strings.split(tf.strings.regex_replace(text, ALONE, r" \1 "))


def bert_definition(
    vocab: Sequence[str], lower_case: bool, longest: int, added: Iterable[tuple[int, AddedToken]]
) -> dict[str, Any]:
    """What `tokenizer.json` would hold of a tokenizer of BERT's kind.

    Args:
        vocab: The pieces in the order of their ids.
        lower_case: Whether text becomes lower case and loses its accents.
        longest: Characters of the longest word that is cut.
        added: Pairs of id and added token.
    """
    tokens = {each: (vocab.index(each), AddedToken(each, special=True)) for each in SPECIAL}
    tokens |= {token.content: (number, token) for number, token in added}
    model: dict[str, Any] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
    }
    model |= {"max_input_chars_per_word": longest}
    model |= {"vocab": {piece: number for number, piece in enumerate(vocab)}}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    normalizer |= {"strip_accents": None, "lowercase": lower_case}
    return {
        "added_tokens": [
            {"id": number, **dataclasses.asdict(token)}
            for number, token in sorted(tokens.values(), key=lambda pair: pair[0])
        ],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": model,
    }
