"""Which part of a text each of its ids stands for."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformers.annotations import Strings, Tokenizer
from keras_transformers.text.cutting import SEPARATOR, SPACES

# Where a text may be cut so that its parts have the ids that they have inside it, as patterns of
# RE2 whose matches begin a part, from the coarsest on: words as white space divides them; as the
# tokenizers of GPT-2 and its like do; as BERT's does, to which each punctuation mark and each
# Chinese character is a word.
PATTERNS = (
    rf"[{SPACES}]+[^{SPACES}]+",
    r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s",
    r"(?:[\p{M}\p{N}]|[^\P{L}\p{Han}])+|\p{Han}|[^\p{L}\p{M}\p{N}]",
)


class Offsets(NamedTuple):
    """Ids of texts and the words that they are of.

    Attributes:
        ids: int32 RaggedTensor `(texts, None)`, without marks around them.
        starts, ends: Of the word of each id, bytes from the text's beginning, likewise. Where no
            way to cut a text gives the ids of the whole, the whole text is one word.

    Example:
    >>> from keras_transformers.text import Offsets
    >>> Offsets._fields
    ('ids', 'starts', 'ends')
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def with_offsets(tokenizer: Tokenizer, strings: Strings) -> Offsets:
    """Ids of texts, and where in the texts the words stand that they are of.

    A word is the smallest part that has the same ids by itself as in the text: with BERT's
    tokenizer what white space and punctuation divide, with GPT-2's a run of letters, of digits or
    of other characters, with SentencePiece what white space divides, punctuation included.

    Args:
        tokenizer: Any tokenizer of `keras_transformers.text`.
        strings: String tensor, or list, `(texts,)`, valid UTF-8.

    Returns:
        `Offsets`.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer, with_offsets
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = WordPieceTokenizer([*special, "cat", "##s", "."])
    >>> found = with_offsets(tokenizer, ["Cats. "])
    >>> found.ids.to_list(), found.starts.to_list(), found.ends.to_list()
    ([[5, 6, 7]], [[0, 0, 4]], [[4, 4, 5]])
    """
    text = tf.convert_to_tensor(strings, tf.string)
    ids = tokenizer.tokenize(text)
    size = tf.strings.length(text)[:, None]
    found = Offsets(ids, tf.zeros_like(ids), tf.zeros_like(ids) + tf.cast(size, tf.int32))
    for pattern in PATTERNS:
        found = _finer(found, _of_parts(tokenizer, text, pattern))
    return found


def _of_parts(tokenizer: Tokenizer, text: tf.Tensor, pattern: str) -> Offsets:
    """The ids of each part by itself, and where it stands."""
    marked = tf.strings.regex_replace(text, f"({pattern})", SEPARATOR + rb"\1")
    parts = tf.strings.split(marked, sep=SEPARATOR)
    words = parts.flat_values
    sizes = tf.strings.length(words)
    ends = tf.cumsum(sizes)
    before = tf.gather(tf.concat([[0], ends], 0), parts.row_splits)  # of every text
    ends -= tf.gather(before, parts.value_rowids())
    begun = tf.strings.regex_replace(words, rf"^[{SPACES}]+", "")
    starts = ends - tf.strings.length(begun)
    ends = starts + tf.strings.length(tf.strings.regex_replace(begun, rf"[{SPACES}]+$", ""))
    ids = tokenizer.tokenize(words)
    of_word = ids.value_rowids()
    splits = tf.gather(ids.row_splits, parts.row_splits)
    flat = (ids.flat_values, tf.gather(starts, of_word), tf.gather(ends, of_word))
    return Offsets(*(tf.RaggedTensor.from_row_splits(each, splits) for each in flat))


def _finer(coarse: Offsets, fine: Offsets) -> Offsets:
    """The finer offsets of the texts whose ids they give."""
    said = [
        tf.strings.reduce_join(tf.strings.as_string(each.ids), -1, separator=" ")
        for each in (coarse, fine)
    ]
    number = tf.range(tf.size(said[0]))
    chosen = number + tf.where(said[0] == said[1], tf.size(number), 0)
    return Offsets(
        *(tf.gather(tf.concat(both, 0), chosen) for both in zip(coarse, fine, strict=True))
    )
