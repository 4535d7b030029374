"""GPT-2's byte-level byte pairs, and the merging of pairs in the TensorFlow graph."""

import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Strings, StrPath
from keras_transformers.core.words import byte_letters
from keras_transformers.data.table_files import read_bytes
from keras_transformers.text.cutting import (
    SEPARATOR,
    SPACES,
    AddedToken,
    AddedTokens,
    cut_out,
    numbered,
    read_added,
    separated,
    valid,
    write_added,
)
from keras_transformers.text.tokenizers import GivenIds, given_ids, given_row

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
    >>> from keras_transformers.core.words import byte_letters
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


NO_RANK = np.iinfo("int32").max


class Merging:
    """Merges the pairs of every word, the pair that was learnt first going first.

    All words at once, in rounds: in each, every word merges its best pair wherever it occurs. A
    long word would need as many rounds as it has different pairs. There a pair is also merged in
    the same round if no better one is near: pairs are merged in the order of their ranks, and a
    piece has at most `reach` / 2 bytes, so that no better one farther away can come to touch it
    before. Memory is proportional to the bytes.

    Args:
        vocab: Dict of piece -> id.
        merges: Pairs of pieces, in the order in which they were learnt.
        byte_ids: Ids of the 256 bytes, where words are made of them.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        byte_ids: Sequence[int] = (),
    ) -> None:
        self._size, self._byte_ids = max(vocab.values()) + 1, np.array(byte_ids, "int32")
        keys = np.array([vocab[a] * self._size + vocab[b] for a, b in merges], "int64")
        # Of a pair that is there twice, the last counts, as in Hugging Face's.
        order = np.array(list({key: rank for rank, key in enumerate(keys)}.values()), "int64")
        order = order[np.argsort(keys[order], kind="stable")]
        self._keys, self._ranks = keys[order], order.astype("int32")
        self._merged = np.array([vocab[a + b] for a, b in merges], "int32")[order]
        self._in_order = _made_in_order(merges)
        self._reach = 2 * max(len(a + b) for a, b in merges)

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Ids of words, string `(n,)`: an int32 RaggedTensor `(n, None)`."""
        lengths = tf.strings.length(words)
        data = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(tf.constant(self._byte_ids), tf.cast(data, tf.int32))
        number = tf.size(words, tf.int64)
        return self.merge(ids, tf.repeat(tf.range(number), lengths), number)

    def merge(self, ids: tf.Tensor, word: tf.Tensor, number: tf.Tensor) -> tf.RaggedTensor:
        """Ids of words `(number, None)`, of the ids of their symbols and the word of each."""
        lengths = tf.math.unsorted_segment_sum(tf.ones_like(ids), word, number)
        longest = tf.reduce_max(tf.concat([[0], lengths], 0))

        def more(ids: tf.Tensor, word: tf.Tensor, go_on: tf.Tensor) -> tf.Tensor:
            return go_on

        def step(
            ids: tf.Tensor, word: tf.Tensor, go_on: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return self._round(ids, word, number, longest)

        loose = (tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([]))
        ids, word, _ = tf.while_loop(more, step, (ids, word, tf.constant(True)), loose)
        return tf.RaggedTensor.from_value_rowids(ids, word, number)

    def _round(
        self, ids: tf.Tensor, word: tf.Tensor, number: tf.Tensor, longest: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges the best pairs; ids, words, and whether anything was merged."""
        keys = tf.cast(ids[:-1], tf.int64) * self._size + tf.cast(ids[1:], tf.int64)
        positions = tf.minimum(tf.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = tf.gather(tf.constant(self._keys), positions) == keys
        known &= word[:-1] == word[1:]
        ranks = tf.where(known, tf.gather(tf.constant(self._ranks), positions), NO_RANK)
        best = tf.math.unsorted_segment_min(ranks, word[:-1], number)
        chosen = known & (ranks == tf.gather(best, word[:-1]))
        if self._in_order:
            near = tf.cond(
                longest > 2 * self._reach,
                lambda: known & (ranks == _lowest_near(ranks, self._reach)),
                lambda: chosen,
            )
            again = tf.concat([[False], ranks[1:] == ranks[:-1]], 0)[: tf.size(ranks)]
            chosen = _every_other(chosen | near, ~again)
        else:
            chosen = _first_of_each(chosen, word[:-1], number)
        merged = tf.where(chosen, tf.gather(tf.constant(self._merged), positions), ids[:-1])
        ids = tf.concat([merged, ids[-1:]], 0)
        kept = ~tf.concat([[False], chosen], 0)[: tf.size(ids)]
        return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept), tf.reduce_any(chosen)


def _made_in_order(merges: Sequence[tuple[str, str]]) -> bool:
    """Whether every piece is made before it is merged; lists that were learnt nearly always are."""
    made = {a + b: rank for rank, (a, b) in enumerate(merges)}  # by the last merge that makes it
    return all(max(made.get(a, -1), made.get(b, -1)) < rank for rank, (a, b) in enumerate(merges))


def _lowest_near(ranks: tf.Tensor, reach: int) -> tf.Tensor:
    """Of each position, the lowest rank at most `reach` positions away."""
    lowest = tf.pad(ranks, [[reach, reach]], constant_values=NO_RANK)
    width, seen = 2 * reach + 1, 1
    while seen < width:
        step = min(seen, width - seen)
        lowest, seen = tf.minimum(lowest[:-step], lowest[step:]), seen + step
    return lowest


def _every_other(chosen: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Of chosen pairs that overlap, the first, the third ...: bool `(n,)` to bool `(n,)`.

    Those whose run goes on to the left of them wait: which of them are merged is not known yet.
    `first` says where a run of equal pairs begins.
    """
    positions = tf.range(tf.size(chosen))
    begins = chosen & ~tf.concat([[False], chosen[:-1]], 0)[: tf.size(chosen)]
    run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
    start = tf.gather(tf.concat([tf.boolean_mask(positions, begins), [0]], 0), run)
    whole = tf.gather(tf.concat([tf.boolean_mask(first, begins), [False]], 0), run)
    return chosen & whole & ((positions - start) % 2 == 0)


def _first_of_each(chosen: tf.Tensor, word: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Of the chosen pairs of each word, the first."""
    positions = tf.range(tf.size(chosen))
    first = tf.math.unsorted_segment_min(tf.where(chosen, positions, NO_RANK), word, number)
    return chosen & (positions == tf.gather(first, word))
