"""GPT-2's byte-level byte pairs in the TensorFlow graph."""

import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from keras_transformers.annotations import Strings, StrPath
from keras_transformers.tables import read_bytes
from keras_transformers.text.added_tokens import (
    AddedToken,
    AddedTokens,
    numbered,
    read_added,
    write_added,
)
from keras_transformers.text.byte_pair_merging import Merging
from keras_transformers.text.cutting import SEPARATOR, SPACES, cut_out, separated, valid
from keras_transformers.text.given import GivenIds, given_ids, given_row
from keras_transformers.words import byte_letters

END, MASK = "<|endoftext|>", "<mask>"
# The published pattern without its look-ahead, before which strings are cut.
WORD = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACES}\p{{L}}\p{{N}}]+"
    rf"|[{SPACES}]+"
)


@keras.saving.register_keras_serializable("keras_transformers")
class BytePairTokenizer(tf.Module):
    """Strings to GPT-2's ids and back, inside `tf.data` and SavedModels.

    Text is cut into words, with the space before them, numbers, punctuation and spaces; the bytes
    of each are merged pair by pair, the pair that was learnt first going first (Radford et al.
    2019, "Language Models are Unsupervised Multitask Learners", section 2.2; Sennrich et al. 2016,
    https://arxiv.org/abs/1508.07909). Nothing is unknown, and nothing is lost. The ids are those of
    Hugging Face's `GPT2Tokenizer`; no space is put before a text.

    Where no id is set aside for padding and START, as in GPT-2's vocabulary, padding is -1, and a
    text begins with its first token. RoBERTa's (Liu et al. 2019, https://arxiv.org/abs/1907.11692,
    section 4.4) sets them aside: `padding="<pad>"`.

    Args:
        vocab: Dict of piece -> id, in the letters that stand for bytes, `<|endoftext|>` among them.
        merges: Pairs of pieces, in the order in which they were learnt.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written. Those that `vocab` lacks get the ids behind it.
        start, end: Tokens that stand before and after a text, where `tokenize` is told to put them.
        padding: The token of padding in a vocabulary that sets it and `start` aside, or None.

    Raises:
        ValueError: If a byte or a piece of a merge is missing, or the ids are not 0, 1, 2 ...

    Example:
    >>> from keras_transformers.text import BytePairTokenizer
    >>> from keras_transformers.words import byte_letters
    >>> pieces = [*byte_letters(), "at", "cat", "<|endoftext|>"]
    >>> vocab = {piece: number for number, piece in enumerate(pieces)}
    >>> tokenizer = BytePairTokenizer(vocab, [("a", "t"), ("c", "at")])
    >>> tokenizer.tokenize(["cat", "a cat"]).to_list()
    [[257], [97, 32, 257]]
    >>> [text.decode() for text in tokenizer.detokenize([[97, 32, 257]]).numpy()]
    ['a cat']
    """

    pad_id: int = -1
    start_id: int | None = None

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        start: str = END,
        end: str = END,
        padding: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.vocab, self.merges = dict(vocab), [(first, second) for first, second in merges]
        self.added_tokens = read_added("BytePairTokenizer", added_tokens)
        self.start, self.end, self.padding = start, end, padding
        given = {token.content for token in self.added_tokens}
        marks = [start, end] if padding is None else [start, end, padding]
        marks = [AddedToken(each, special=True) for each in marks if each not in given]
        added = (*self.added_tokens, *dict.fromkeys(marks))
        _check(self.vocab, self.merges, {token.content for token in added})
        numbers = numbered(self.vocab, added)
        self.vocab_size = len(numbers)
        self.end_id, self._begin_id = numbers[end], numbers[start]
        if padding is not None:
            self.pad_id, self.start_id = numbers[padding], numbers[start]
        self.mask_id = numbers.get(MASK)
        self.special_ids = tuple(numbers[token.content] for token in added if token.special)
        self.added_ids = tuple(numbers[token.content] for token in self.added_tokens)
        letters = byte_letters()
        self._added = AddedTokens(added, numbers)
        self._merge = Merging(self.vocab, self.merges, [self.vocab[each] for each in letters])
        byte_of = {letter: byte for byte, letter in enumerate(letters)}
        as_text = {
            token.content: b"" if token.special else token.content.encode("utf-8")
            for token in added
        }
        self._names = sorted(numbers, key=numbers.__getitem__)
        self._pieces = [
            as_text[name] if name in as_text else bytes(byte_of[letter] for letter in name)
            for name in self._names
        ]

    @property
    def pair_marks(self) -> tuple[tuple[int, ...], ...]:
        """Ids before the first of a pair of texts, between the two, and after the second."""
        if self.start_id is None:
            return (), (), ()
        return (self.start_id,), (self.end_id, self.end_id), (self.end_id,)

    @property
    def source_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that stand before and behind a text that is translated or summarised."""
        return (() if self.start_id is None else (self.start_id,)), (self.end_id,)

    @classmethod
    def load(cls, vocab: StrPath, merges: StrPath) -> Self:
        """Reads GPT-2's `vocab.json` and `merges.txt`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If they hold no such vocabulary.
        """
        return cls(*cls.read(vocab, merges))

    @staticmethod
    def read(vocab: StrPath, merges: StrPath) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """The pieces with their ids and the pairs of the two files, as they are there.

        Raises:
            FileNotFoundError, ValueError: As `load`.
        """
        try:
            text = read_bytes(vocab, "a vocabulary").decode("utf-8-sig")
            pieces = json.loads(text)
            text = read_bytes(merges, "a list of merges").decode("utf-8-sig")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"BytePairTokenizer.load: {vocab}, {merges}: {error}") from None
        lines = (line for line in text.splitlines() if line and not _is_version(line))
        pairs: list[Any] = [tuple(line.split(" ")) for line in lines]
        if not isinstance(pieces, dict) or any(len(pair) != 2 for pair in pairs):
            raise ValueError(
                f"BytePairTokenizer.load: {vocab} must map pieces to ids, and {merges} have two "
                "pieces a line, with a space between."
            )
        return pieces, pairs

    def save(self, vocab: StrPath, merges: StrPath) -> None:
        """Writes `vocab.json` and `merges.txt`; added tokens and marks are not in them."""
        text = json.dumps(dict(self.vocab), ensure_ascii=False)  # TensorFlow wraps it
        pathlib.Path(vocab).write_text(text, encoding="utf-8")
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in self.merges)]
        pathlib.Path(merges).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; a mark or an added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put the mark before and after; by default both are
                `<|endoftext|>`, which stands between the texts that GPT-2 learned from.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        text = valid(tf.reshape(strings, [-1]))
        ids = self._added.ids(text, self._ids)
        ids = ids if strings.shape.rank else ids[0]
        shape = [ids.nrows(), 1] if isinstance(ids, tf.RaggedTensor) else [1]
        before = [tf.fill(shape, self._begin_id)] if start else []
        return tf.concat([*before, ids, *([tf.fill(shape, self.end_id)] if end else [])], axis=-1)

    def _ids(self, strings: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        """Ids of strings without added tokens; every different word is merged once."""
        words = _words(strings)
        different, which = tf.unique(words.flat_values)
        ids = tf.gather(self._merge(different), which)
        return tf.RaggedTensor.from_row_splits(ids, words.row_splits).merge_dims(1, 2)

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; padding and marks vanish, as does all from the first END on.

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

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("BytePairTokenizer.pieces", ids, self.vocab_size)
        return [
            self._pieces[index].decode("utf-8", "replace") or self._names[index] for index in ids
        ]

    def get_config(self) -> dict[str, Any]:
        return {
            "vocab": dict(self.vocab),
            "merges": [list(pair) for pair in self.merges],
            "added_tokens": write_added(self.added_tokens),
            "start": self.start,
            "end": self.end,
            "padding": self.padding,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


def _words(strings: tf.Tensor) -> tf.RaggedTensor:
    """Splits strings as GPT-2 does: string RaggedTensor `(batch, None)`."""
    # Of several spaces the last goes with what follows.
    several = rf"([{SPACES}])([{SPACES}][^{SPACES}])"
    cut = separated(tf.strings.regex_replace(strings, several, rb"\1" + SEPARATOR + rb"\2"))
    return cut.with_values(cut_out(cut.values, WORD)).merge_dims(1, 2)


def _is_version(line: str) -> bool:
    return line.startswith("#version")


def _check(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], added: Collection[str]
) -> None:
    """Refuses what is no vocabulary of GPT-2's kind."""
    ids = sorted(vocab.values()) if all(isinstance(i, int) for i in vocab.values()) else None
    if ids != list(range(len(vocab))):
        raise ValueError("BytePairTokenizer: `vocab` must number its pieces 0, 1, 2 ...")
    needed = [*byte_letters(), *(part for a, b in merges for part in (a, b, a + b))]
    missing = [piece for piece in needed if piece not in vocab]
    if missing or not merges:
        raise ValueError(
            "BytePairTokenizer: `vocab` must have a piece for every byte and for the parts of "
            f"`merges`, one at least. Missing: {missing[:5]}"
        )
    alphabet = set(byte_letters())
    foreign = [piece for piece in vocab if piece not in added and not set(piece) <= alphabet]
    if foreign:
        raise ValueError(
            "BytePairTokenizer: pieces must be made of the letters that stand for bytes. "
            f"Received: {foreign[:5]}"
        )
