"""Models of `tokenizer.json` as ops: words into ids."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformers.text.byte_pair_merging import Merging
from keras_transformers.text.cutting import SEPARATOR, Numbers, separated
from keras_transformers.text.in_graph.patterns import Inexpressible
from keras_transformers.text.in_graph.splitting import cuts_punctuation, is_of_bytes
from keras_transformers.text.in_graph.unigram import Unigram
from keras_transformers.words import byte_letters

Model: TypeAlias = Callable[[tf.Tensor], tf.RaggedTensor]  # words (n,) to ids (n, None)
SPACE = "▁"


def model(part: Mapping[str, Any], before: Any) -> Model:
    """The function of different words that a model is, behind a pre-tokenizer.

    Raises:
        Inexpressible: If no ops give it exactly.
    """
    kind, of_bytes = part.get("type"), is_of_bytes(before)
    if kind == "BPE":
        return BytePairs(part) if of_bytes else CharacterPairs(part)
    if of_bytes:
        raise Inexpressible(f"the model {kind}: its words are made of letters for bytes")
    if kind == "WordPiece":
        return _word_pieces(part, cuts_punctuation(before))
    if kind == "Unigram":
        return Unigram(part)
    if kind == "WordLevel":
        return _words(part)
    raise Inexpressible(f"the model {kind}: it is not known here")


def byte_fallback(vocab: Mapping[str, int], owner: str) -> Any:
    """Ids of the 256 bytes, `<0x00>` and so on, an int32 array.

    Raises:
        Inexpressible: If one is missing.
    """
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if any(name not in vocab for name in names):
        raise Inexpressible(f"the model {owner}: byte_fallback, and a byte has no piece")
    return np.array([vocab[name] for name in names], "int32")


def _words(part: Mapping[str, Any]) -> Model:
    vocab, unknown = part["vocab"], part.get("unk_token")
    if unknown not in vocab:
        raise Inexpressible("the model WordLevel: unk_token is not in the vocabulary")
    numbers = Numbers(vocab)
    return lambda words: tf.RaggedTensor.from_row_lengths(
        numbers(words, vocab[unknown]), tf.ones_like(words, tf.int64)
    )


def _word_pieces(part: Mapping[str, Any], cut: bool) -> Model:
    import tensorflow_text as tf_text  # only who tokenizes needs it

    vocab, prefix = part["vocab"], part.get("continuing_subword_prefix", "##")
    unknown, longest = part.get("unk_token", "[UNK]"), part.get("max_input_chars_per_word", 100)
    pieces = sorted(vocab, key=vocab.__getitem__)
    if any("\x00" in each for each in pieces):
        raise Inexpressible("the model WordPiece: a piece has a zero in it, which ends it there")
    if [vocab[each] for each in pieces] != list(range(len(pieces))) or unknown not in vocab:
        raise Inexpressible("the model WordPiece: ids are not 0, 1, 2 ..., or unk_token has none")
    if not cut or not re.fullmatch("[!-/:-@\\[-`{-~]+", prefix):
        raise Inexpressible(
            f"the model WordPiece: a word could begin with {prefix!r}, if the pre-tokenizer leaves "
            "punctuation in words"
        )
    # What no text must spell: the unknown piece, and the prefix alone.
    mark, never = "\x02\x03\x02", "\x02\x03\x03"
    pieces = [{unknown: mark, prefix: never}.get(each, each) for each in pieces]
    built = tf_text.build_fast_wordpiece_model(pieces, 4 * longest, prefix, mark, True, False)
    buffer = np.frombuffer(built, np.uint8)

    def ids(words: tf.Tensor) -> tf.RaggedTensor:
        long = tf.strings.length(words, unit="UTF8_CHAR") > longest
        op = tf_text.FastWordpieceTokenizer(
            model_buffer=tf.constant(buffer), token_out_type=tf.int32
        )
        found = op.tokenize(tf.where(long, mark, words)[:, None])
        return found.merge_dims(1, 2)

    return ids


class BytePairs:
    """Byte pairs whose first symbols are bytes, in the letters that stand for them.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        vocab, suffix, pairs = _checked(part)
        letters = byte_letters()
        missing = [each for each in letters if each not in vocab or each + suffix not in vocab]
        if missing:
            raise Inexpressible(f"the model BPE: the letter {missing[0]!r} of a byte has no piece")
        self._bytes = np.array([vocab[each] for each in letters], "int32")
        self._last = np.array([vocab[each + suffix] for each in letters], "int32")
        self._merging = Merging(vocab, pairs) if pairs else None
        byte_of = {letter: byte for byte, letter in enumerate(letters)}
        self._known = None
        if part.get("ignore_merges"):
            self._known = Numbers(
                {
                    bytes(byte_of[letter] for letter in piece): number
                    for piece, number in vocab.items()
                    if set(piece) <= byte_of.keys()
                }
            )

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        lengths = tf.strings.length(words)
        data = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        ids = tf.gather(tf.constant(self._bytes), data)
        word = tf.repeat(tf.range(tf.size(words, tf.int64)), lengths)
        ends = tf.concat([word[1:] != word[:-1], [True]], 0)[: tf.size(word)]
        ids = tf.where(ends, tf.gather(tf.constant(self._last), data), ids)
        merged = tf.RaggedTensor.from_value_rowids(ids, word, tf.size(words, tf.int64))
        if self._merging is not None:
            merged = self._merging.merge(ids, word, tf.size(words, tf.int64))
        return merged if self._known is None else _whole(self._known, words, merged)


def _whole(known: Numbers, words: tf.Tensor, merged: tf.RaggedTensor) -> tf.RaggedTensor:
    """The ids of words that are pieces themselves, whatever merging makes of the others."""
    numbers = known(words, -1)
    there = numbers >= 0
    alone = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(numbers, there), tf.cast(there, tf.int64)
    )
    left = tf.repeat(~there, merged.row_lengths())
    return tf.concat([alone, tf.ragged.boolean_mask(merged, merged.with_values(left))], axis=1)


class CharacterPairs:
    """Byte pairs whose first symbols are characters; unknown ones may become their bytes.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        vocab, suffix, pairs = _checked(part)
        if suffix:
            raise Inexpressible("the model BPE: end_of_word_suffix of words of characters")
        self._merging = Merging(vocab, pairs) if pairs else None
        self._numbers = Numbers(vocab)
        self._whole = bool(part.get("ignore_merges"))
        unknown = part.get("unk_token")
        self._unknown = None if unknown is None else vocab.get(unknown)
        self._fuse = bool(part.get("fuse_unk"))
        self._byte_ids = byte_fallback(vocab, "BPE") if part.get("byte_fallback") else None
        # What no merge makes may be cut: then words are short, and most are there many times.
        inside = re.compile(f"[^{SPACE}]{SPACE}")
        self._cut = SPACE in vocab and not any(inside.search(a + b) for a, b in pairs)
        self._cut &= not (self._whole and any(map(inside.search, vocab)))

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        if not self._cut:
            return self._ids(words)
        border = rb"\1" + SEPARATOR + SPACE.encode()
        parts = separated(tf.strings.regex_replace(words, f"([^{SPACE}]){SPACE}", border))
        different, which = tf.unique(parts.values)
        return parts.with_values(tf.gather(self._ids(different), which)).merge_dims(1, 2)

    def _ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        characters = tf.strings.unicode_split(words, "UTF-8")
        word, number = characters.value_rowids(), tf.size(words, tf.int64)
        ids, lengths = self._symbols(characters.values, word)
        word = tf.repeat(word, lengths)
        merged = tf.RaggedTensor.from_value_rowids(ids, word, number)
        if self._merging is not None:
            merged = self._merging.merge(ids, word, number)
        return _whole(self._numbers, words, merged) if self._whole else merged

    def _symbols(self, characters: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids of characters, and how many each has."""
        ids = self._numbers(characters, -1)
        known = ids >= 0
        if self._byte_ids is not None:
            return bytes_for_unknown(ids, characters, self._byte_ids)
        if self._unknown is None:
            return tf.boolean_mask(ids, known), tf.cast(known, tf.int64)
        kept = known
        if self._fuse:  # of unknown ones side by side, the first
            after = ~known[:-1] & (word[1:] == word[:-1])
            kept |= ~tf.concat([[False], after], 0)[: tf.size(word)]
        else:
            kept = tf.ones_like(known)
        ids = tf.boolean_mask(tf.where(known, ids, self._unknown), kept)
        return ids, tf.cast(kept, tf.int64)


def bytes_for_unknown(
    ids: tf.Tensor, strings: tf.Tensor, byte_ids: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids `(n,)`, those below 0 replaced by those of their strings' bytes; how many each has."""
    known = ids >= 0
    lengths = tf.where(known, 1, tf.strings.length(strings))
    data = tf.io.decode_raw(tf.strings.reduce_join(tf.where(known, "\x00", strings)), tf.uint8)
    found = tf.gather(tf.constant(byte_ids), tf.cast(data, tf.int32))
    spread = tf.repeat(ids, lengths)
    return tf.where(spread >= 0, spread, found), tf.cast(lengths, tf.int64)


def _checked(part: Mapping[str, Any]) -> tuple[dict[str, int], str, list[tuple[str, str]]]:
    """Vocabulary, suffix and pairs of a model that has no parts without a counterpart."""
    if part.get("dropout"):
        raise Inexpressible("the model BPE: dropout")
    if part.get("continuing_subword_prefix"):
        raise Inexpressible("the model BPE: continuing_subword_prefix")
    pairs = [tuple(p.split(" ") if isinstance(p, str) else p) for p in part.get("merges", [])]
    return dict(part["vocab"]), part.get("end_of_word_suffix") or "", pairs


def unique(words: tf.RaggedTensor, ids_of: Model) -> tf.RaggedTensor:
    """Ids `(n, None)` of words `(n, None)`; every different word is cut once."""
    different, which = tf.unique(words.values)
    return words.with_values(tf.gather(ids_of(different), which)).merge_dims(1, 2)
