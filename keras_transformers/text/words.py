"""Words of texts and parts that ids stand for: where they are, and which positions are theirs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformers.core.types import Strings, Tokenizer
from keras_transformers.text.cutting import SEPARATOR, SPACES, cut_out, valid
from keras_transformers.text.tokenizers import in_marks, marks_of
from keras_transformers.text.wordpiece import ALONE

PROBE = "a"  # any word will do


class Words(NamedTuple):
    """The words of texts.

    Attributes:
        words: String RaggedTensor `(texts, None)`, as they stand in the text.
        starts, ends: int32, likewise: a word is `text[start:end]`, counted in characters.

    Example:
    >>> from keras_transformers.text import Words
    >>> Words._fields
    ('words', 'starts', 'ends')
    """

    words: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def words_of(strings: Strings) -> Words:
    """Splits texts into words, in the graph too.

    White space stands between words; each punctuation mark and each Chinese character is a word of
    its own, as to BERT's basic tokenizer. Nothing else is changed.

    Args:
        strings: String tensor, or list, `(texts,)`; bytes that are no UTF-8 become U+FFFD.

    Returns:
        `Words`.

    Example:
    >>> from keras_transformers.text import words_of
    >>> found = words_of(["Angela Merkel's  "])
    >>> [word.decode() for word in found.words[0].numpy()], found.starts.to_list()
    (['Angela', 'Merkel', "'", 's'], [[0, 7, 13, 14]])
    """
    text = valid(tf.convert_to_tensor(strings, tf.string))
    parts = cut_out(text, f"[{SPACES}]+|{ALONE[1:-1]}")  # which leaves no character out
    lengths = tf.strings.length(parts.flat_values, unit="UTF8_CHAR")
    ends = tf.cumsum(lengths)
    before = tf.gather(tf.concat([[0], ends], 0), parts.row_splits)  # of every text
    ends -= tf.gather(before, parts.value_rowids())
    is_word = ~tf.strings.regex_full_match(parts.flat_values, f"[{SPACES}]+")
    return Words(
        *(
            tf.ragged.boolean_mask(parts.with_values(each), parts.with_values(is_word))
            for each in (parts.flat_values, ends - lengths, ends)
        )
    )


def given_words(sentences: Sequence[Sequence[str]]) -> tf.RaggedTensor:
    """Sentences that are lists of words, as a string RaggedTensor `(sentences, None)`.

    Example:
    >>> from keras_transformers.text.words import given_words
    >>> given_words([["to", "be"], []]).to_list()
    [[b'to', b'be'], []]
    """
    # `tf.ragged.constant` takes a hundred times as long.
    flat = tf.constant([word for sentence in sentences for word in sentence], tf.string)
    lengths = tf.constant([len(sentence) for sentence in sentences], tf.int64)
    return tf.RaggedTensor.from_row_lengths(flat, lengths)


class Alignment(NamedTuple):
    """Ids of texts that are given word by word.

    Attributes:
        ids: int32 RaggedTensor `(texts, None)`, marks included.
        firsts: int32 RaggedTensor `(texts, words)`: position of the first piece of each word in
            its row of `ids`; -1 for a word that has none there.
        pieces: int32, likewise: how many pieces each word has, whether they fit or not.

    Example:
    >>> from keras_transformers.text import Alignment
    >>> Alignment._fields
    ('ids', 'firsts', 'pieces')
    """

    ids: tf.RaggedTensor
    firsts: tf.RaggedTensor
    pieces: tf.RaggedTensor


class WordAligner:
    """From words to ids, and to the position of the first piece of each word.

    Each word is tokenized by itself, as a word that stands in a text, behind a blank: a tokenizer
    to which the blank is part of the word (GPT-2's, RoBERTa's) is given it. These are the ids that
    fast tokenizers of `transformers` give with `is_split_into_words` and, those of the GPT-2 kind,
    `add_prefix_space`.

    Args:
        tokenizer: Any tokenizer of `keras_transformers.text`.
        longest: Most ids of a text, marks included; what exceeds them is cut off.

    Raises:
        ValueError: If `longest` leaves no room beside the marks.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import WordAligner, WordPieceTokenizer
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> aligner = WordAligner(WordPieceTokenizer([*special, "cat", "##s", "sat"]), longest=5)
    >>> found = aligner(tf.ragged.constant([["cats", "sat"], ["sat", "", "sat", "cats"]]))
    >>> found.ids.to_list(), found.firsts.to_list()
    ([[2, 5, 6, 7, 3], [2, 7, 7, 5, 3]], [[1, 3], [1, -1, 2, 3]])
    """

    def __init__(self, tokenizer: Tokenizer, longest: int) -> None:
        self._tokenizer: Any = tokenizer
        self._marks = marks_of(tokenizer)
        self._room = longest - sum(map(len, self._marks))
        if self._room < 1:
            raise ValueError(
                "WordAligner: `longest` must leave room for words beside the marks "
                f"{self._marks}. Received: {longest}"
            )
        one, two = self._tokenizer.tokenize([PROBE, f"{PROBE} {PROBE}"]).to_list()
        self._blank = "" if one + one == two else " "

    def __call__(self, words: tf.RaggedTensor) -> Alignment:
        """Ids of ragged words `(texts, None)`, see the class."""
        flat = words.flat_values
        if self._blank:
            flat = tf.where(flat == "", "", tf.strings.join([self._blank, flat]))
        found = self._tokenizer.tokenize(flat)
        sizes = tf.cast(found.row_lengths(), tf.int32)
        ids = words.with_values(found).merge_dims(1, 2)
        # Of all pieces of all texts, how many stand before each word; then in its text alone.
        all_before = tf.cumsum(sizes, exclusive=True)
        firsts = all_before - tf.cast(tf.gather(ids.row_starts(), words.value_rowids()), tf.int32)
        there = (sizes > 0) & (firsts < self._room)
        firsts = tf.where(there, firsts + len(self._marks[0]), -1)
        ids = in_marks(ids[:, : self._room], self._marks)
        return Alignment(ids, words.with_values(firsts), words.with_values(sizes))


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
