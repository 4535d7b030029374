"""GPT-2's byte-level byte pairs in the TensorFlow graph."""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.text.files import read_bytes
from keras_transformers.text.given import given_ids, given_row

END = "<|endoftext|>"
# Two characters that Unicode gives no meaning: a border between words, and END.
BORDER, MARK = "\U0010FFFF", "\U0010FFFE"
SPACES = (
    r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
)
# The published pattern without its look-ahead, which the borders stand for.
WORD = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACES}\p{{L}}\p{{N}}{BORDER}{MARK}]+"
    rf"|{MARK}|{BORDER}|[{SPACES}]+"
)
NOT_A_BORDER = rf"(?s)[^{BORDER}].*"
NO_RANK = np.iinfo("int32").max


def byte_letters():
    """The letter that stands for each byte in published vocabularies, a list of 256 str.

    Printable characters of Latin-1 stand for themselves, the others, in order, for letters from
    U+0100 on (Radford et al. 2019, the code of GPT-2).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@keras.saving.register_keras_serializable("keras_transformers")
class BytePairTokenizer(tf.Module):
    """Strings to GPT-2's ids and back, inside `tf.data` and SavedModels.

    Text is cut into words, with the space before them, numbers, punctuation and spaces; the bytes
    of each are merged pair by pair, the pair that was learnt first going first (Radford et al.
    2019, "Language Models are Unsupervised Multitask Learners", section 2.2; Sennrich et al. 2016,
    https://arxiv.org/abs/1508.07909). Nothing is unknown, and nothing is lost. The ids are those of
    Hugging Face's `GPT2Tokenizer`.

    No id is set aside for padding or START: padding is -1, and a text begins with its first token.

    Args:
        vocab: Dict of piece -> id, in the letters that stand for bytes, `<|endoftext|>` among them.
        merges: Pairs of pieces, in the order in which they were learnt.

    Raises:
        ValueError: If a byte or a piece of a merge is missing, or the ids are not 0, 1, 2 ...

    Example:
    >>> from keras_transformers.text import BytePairTokenizer
    >>> from keras_transformers.text.byte_pairs import byte_letters
    >>> pieces = [*byte_letters(), "at", "cat", "<|endoftext|>"]
    >>> vocab = {piece: number for number, piece in enumerate(pieces)}
    >>> tokenizer = BytePairTokenizer(vocab, [("a", "t"), ("c", "at")])
    >>> tokenizer.tokenize(["cat", "a cat"]).to_list()
    [[257], [97, 32, 257]]
    >>> [text.decode() for text in tokenizer.detokenize([[97, 32, 257]]).numpy()]
    ['a cat']
    """

    pad_id, start_id = -1, None

    def __init__(self, vocab, merges, name=None):
        super().__init__(name=name)
        self.vocab, self.merges = dict(vocab), [tuple(pair) for pair in merges]
        self.vocab_size = len(self.vocab)
        _check(self.vocab, self.merges)
        self.end_id = self.vocab[END]
        letters = byte_letters()
        self._byte_ids = np.array([self.vocab[letter] for letter in letters], "int32")
        keys = [self.vocab[a] * self.vocab_size + self.vocab[b] for a, b in self.merges]
        order = np.argsort(np.array(keys, "int64"), kind="stable")
        self._keys = np.array(keys, "int64")[order]
        self._ranks = order.astype("int32")
        merged = [self.vocab[a + b] for a, b in self.merges]
        self._merged = np.array(merged, "int32")[order]
        byte_of = {letter: byte for byte, letter in enumerate(letters)}
        pieces = sorted(self.vocab, key=self.vocab.get)
        self._pieces = [
            b"" if piece == END else bytes(byte_of[letter] for letter in piece)
            for piece in pieces
        ]

    @classmethod
    def load(cls, vocab, merges):
        """Reads GPT-2's `vocab.json` and `merges.txt`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If they hold no such vocabulary.
        """
        pieces = json.loads(read_bytes(vocab, "a vocabulary").decode("utf-8"))
        lines = read_bytes(merges, "a list of merges").decode("utf-8").split("\n")
        pairs = [tuple(line.split(" ")) for line in lines if line and not _is_version(line)]
        if not isinstance(pieces, dict) or any(len(pair) != 2 for pair in pairs):
            raise ValueError(
                f"BytePairTokenizer.load: {vocab} must map pieces to ids, and {merges} have two "
                "pieces a line, with a space between."
            )
        return cls(pieces, pairs)

    def save(self, vocab, merges):
        """Writes `vocab.json` and `merges.txt`."""
        text = json.dumps(dict(self.vocab), ensure_ascii=False)  # TensorFlow wraps it
        pathlib.Path(vocab).write_text(text, encoding="utf-8")
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in self.merges)]
        pathlib.Path(merges).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def tokenize(self, strings, start=False, end=False):
        """Splits strings into ids; `<|endoftext|>` written in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put `<|endoftext|>` before and after, which stands between the
                texts that GPT-2 learned from.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        words = _words(tf.reshape(strings, [-1]))
        different, which = tf.unique(words.flat_values)
        ids = tf.gather(self._merge(different), which)
        ids = tf.RaggedTensor.from_row_splits(ids, words.row_splits).merge_dims(1, 2)
        ids = ids if strings.shape.rank else ids[0]
        shape = [ids.nrows(), 1] if isinstance(ids, tf.RaggedTensor) else [1]
        mark = [tf.fill(shape, self.end_id)]
        return tf.concat([*(mark if start else []), ids, *(mark if end else [])], axis=-1)

    def _merge(self, words):
        """Ids of different words, int32 RaggedTensor `(words, None)`.

        All words at once: in every round each merges its best pair wherever it occurs.
        """
        lengths = tf.strings.length(words)
        longest = tf.maximum(tf.reduce_max(tf.concat([[1], lengths], 0)), 1)
        rows = tf.io.decode_raw(words, tf.uint8, fixed_length=longest)
        rows = tf.RaggedTensor.from_tensor(rows, lengths)
        ids = tf.gather(tf.constant(self._byte_ids), tf.cast(rows.flat_values, tf.int32))
        word = rows.value_rowids()
        # A mark is no text.
        is_mark = words == MARK
        ids = tf.where(tf.gather(is_mark, word), self.end_id, ids)
        first = tf.concat([[True], word[1:] != word[:-1]], 0)[: tf.size(word)]
        kept = first | ~tf.gather(is_mark, word)
        ids, word = tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept)
        number = tf.size(words, tf.int64)

        def more(ids, word, go_on):
            return go_on

        def step(ids, word, go_on):
            return self._round(ids, word, number)

        loose = (tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([]))
        ids, word, _ = tf.while_loop(more, step, (ids, word, tf.constant(True)), loose)
        return tf.RaggedTensor.from_value_rowids(ids, word, number)

    def _round(self, ids, word, number):
        """Merges the best pair of every word; ids, words, and whether anything was merged."""
        keys = tf.cast(ids[:-1], tf.int64) * self.vocab_size + tf.cast(ids[1:], tf.int64)
        places = tf.minimum(tf.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = tf.gather(tf.constant(self._keys), places) == keys
        known &= word[:-1] == word[1:]
        ranks = tf.where(known, tf.gather(tf.constant(self._ranks), places), NO_RANK)
        best = tf.math.unsorted_segment_min(ranks, word[:-1], number)
        chosen = known & (ranks == tf.gather(best, word[:-1]))
        chosen = _every_other(chosen)
        merged = tf.where(chosen, tf.gather(tf.constant(self._merged), places), ids[:-1])
        ids = tf.concat([merged, ids[-1:]], 0)
        kept = ~tf.concat([tf.zeros_like(chosen[:1]), chosen], 0)[: tf.size(ids)]
        return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept), tf.reduce_any(chosen)

    def detokenize(self, ids):
        """Joins ids to strings; padding vanishes, as does all from the first END on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis, UTF-8; a character of which a
            part is missing becomes U+FFFD.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("BytePairTokenizer.detokenize", ids, self.vocab_size, self.pad_id)
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=-1) > 0
        pieces = tf.gather(tf.constant(self._pieces), tf.maximum(ids, 0))
        text = tf.strings.reduce_join(tf.where(ended | (ids < 0), "", pieces), axis=-1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")

    def pieces(self, ids):
        """The pieces of one sequence of ids, as a list of str (for the axes of a picture).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("BytePairTokenizer.pieces", ids, self.vocab_size)
        return [self._pieces[index].decode("utf-8", "replace") or END for index in ids]

    def get_config(self):
        return {"vocab": dict(self.vocab), "merges": [list(pair) for pair in self.merges]}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _words(strings):
    """Splits strings as GPT-2 does: string RaggedTensor `(batch, None)`; END is its mark."""
    text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
    text = tf.strings.regex_replace(text, f"[{BORDER}{MARK}]", "\uFFFD")
    text = tf.strings.regex_replace(text, r"<\|endoftext\|>", MARK)
    # Of several spaces the last goes with what follows.
    several = rf"([{SPACES}])([{SPACES}][^{SPACES}{MARK}])"
    text = tf.strings.regex_replace(text, several, rf"\1{BORDER}\2")
    import tensorflow_text as tf_text  # only who tokenizes needs it

    return tf_text.regex_split(text, WORD, NOT_A_BORDER)


def _every_other(chosen):
    """Of pairs that overlap, the first, the third ...: bool `(n,)` to bool `(n,)`."""
    places = tf.range(tf.size(chosen))
    begins = chosen & ~tf.concat([tf.zeros_like(chosen[:1]), chosen[:-1]], 0)
    begun = tf.boolean_mask(places, begins)
    run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
    start = tf.gather(tf.concat([begun, [0]], 0), run)
    return chosen & ((places - start) % 2 == 0)


def _is_version(line):
    return line.startswith("#version")


def _check(vocab, merges):
    """Refuses what is no vocabulary of GPT-2's kind."""
    ids = sorted(vocab.values()) if all(isinstance(i, int) for i in vocab.values()) else None
    if ids != list(range(len(vocab))):
        raise ValueError("BytePairTokenizer: `vocab` must number its pieces 0, 1, 2 ...")
    needed = [*byte_letters(), END, *(part for a, b in merges for part in (a, b, a + b))]
    missing = [piece for piece in needed if piece not in vocab]
    if missing or not merges:
        raise ValueError(
            "BytePairTokenizer: `vocab` must have a piece for every byte, for END and for the "
            f"parts of `merges`, one at least. Missing: {missing[:5]}"
        )
    alphabet = set(byte_letters())
    foreign = [piece for piece in vocab if piece != END and not set(piece) <= alphabet]
    if foreign:
        raise ValueError(
            "BytePairTokenizer: pieces must be made of the letters that stand for bytes. "
            f"Received: {foreign[:5]}"
        )
