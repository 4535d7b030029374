"""The unigram model of `tokenizer.json` as ops: the most probable pieces of words."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.text.in_graph.patterns import Inexpressible

PENALTY = 10.0  # of an unknown character, below the worst piece
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Unigram:
    """Cuts words into the pieces whose scores have the largest sum (Kudo 2018, section 3.2).

    Of cuts with one sum, that with the longest last piece is taken, as by `tokenizers`; sums are
    taken in its order and in float64, so that they are its sums. Every part of a word is looked up
    by a hash of its characters.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        pieces = [piece for piece, _ in part["vocab"]]
        scores = np.array([score for _, score in part["vocab"]], "float64")
        numbers = {piece: number for number, piece in enumerate(pieces)}  # of two, the last
        unknown = part.get("unk_id")
        if unknown is None:
            raise Inexpressible("the model Unigram: without unk_id it fails at unknown characters")
        self._unknown, self._byte_ids = int(unknown), None
        if part.get("byte_fallback"):
            from keras_transformers.text.in_graph.models import byte_fallback

            self._byte_ids = byte_fallback(numbers, "Unigram")
        numbers.pop("", None)
        ids = np.array(list(numbers.values()), "int32")
        hashes = np.array([_hash(piece) for piece in numbers], "uint64").astype("int64")
        order = hashes.argsort()
        self._hashes, self._ids = hashes[order], ids[order]
        if (self._hashes[1:] == self._hashes[:-1]).any():
            raise Inexpressible("the model Unigram: two pieces have one hash")
        self._scores = scores[self._ids]
        self._unknown_score = float(scores.min()) - PENALTY
        self._longest = max(map(len, numbers))

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Ids of words, string `(n,)`: an int32 RaggedTensor `(n, None)`."""
        codes = tf.strings.unicode_decode(words, "UTF-8")
        starts, lengths = codes.row_splits[:-1], codes.row_lengths()
        ids, scores = self._lookups(codes)
        taken = _best(scores, starts, lengths, self._longest)
        first = _chosen(taken, starts, lengths)  # (characters,): length of the piece there, or 0
        number = tf.size(words, tf.int64)
        at = tf.where(first > 0)[:, 0]
        word = tf.gather(codes.value_rowids(), at)
        found = tf.gather_nd(ids, tf.stack([at, tf.gather(first, at) - 1], axis=1))
        found, word = self._with_unknown(found, word, codes, at)
        return tf.RaggedTensor.from_value_rowids(found, word, number)

    def _lookups(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids and scores `(characters, longest)` of what begins at each character; -inf: none."""
        flat, row = codes.values, codes.value_rowids()
        size = tf.size(flat)
        mixed = _mixed(tf.cast(flat, tf.uint64))
        padded = tf.concat([mixed, tf.zeros([self._longest], tf.uint64)], 0)
        rows = tf.concat([row, tf.fill([self._longest], tf.cast(-1, row.dtype))], 0)
        value, hashes, inside = tf.zeros_like(mixed), [], []
        for step in range(self._longest):
            value = value * FACTOR + padded[step : size + step]
            hashes.append(tf.bitcast(value, tf.int64))
            inside.append(rows[step : size + step] == row)
        keys = tf.stack(hashes, 1)
        found = tf.minimum(
            tf.searchsorted(self._hashes, tf.reshape(keys, [-1])), len(self._ids) - 1
        )
        known = tf.gather(tf.constant(self._hashes), found) == tf.reshape(keys, [-1])
        known &= tf.reshape(tf.stack(inside, 1), [-1])
        shape = tf.shape(keys)
        ids = tf.reshape(tf.gather(tf.constant(self._ids), found), shape)
        scores = tf.where(known, tf.gather(tf.constant(self._scores), found), -np.inf)
        scores, known = tf.reshape(scores, shape), tf.reshape(known, shape)
        # A character that is no piece by itself is unknown.
        lone = tf.concat([~known[:, :1], tf.zeros_like(known[:, 1:])], 1)
        return (
            tf.where(lone, self._unknown, ids),
            tf.where(lone, tf.constant(self._unknown_score, tf.float64), scores),
        )

    def _with_unknown(
        self, ids: tf.Tensor, word: tf.Tensor, codes: tf.RaggedTensor, at: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Of unknown pieces side by side one is left, or each becomes its bytes."""
        if self._byte_ids is not None:
            from keras_transformers.text.in_graph.models import bytes_for_unknown

            characters = tf.strings.unicode_encode(codes.values[:, None], "UTF-8")
            marked = tf.where(ids == self._unknown, -1, ids)
            ids, lengths = bytes_for_unknown(marked, tf.gather(characters, at), self._byte_ids)
            return ids, tf.repeat(word, lengths)
        again = (ids[1:] == self._unknown) & (ids[:-1] == self._unknown) & (word[1:] == word[:-1])
        kept = ~tf.concat([[False], again], 0)[: tf.size(ids)]
        return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept)


def _mixed(codes: Any) -> Any:
    """Numbers of 64 bits that look random, of code points: uint64 to uint64."""
    value = (codes + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    if tf.is_tensor(value):
        shifted = tf.bitwise.right_shift(value, tf.constant(29, tf.uint64))
        return tf.bitwise.bitwise_xor(value, shifted) * np.uint64(0x94D049BB133111EB)
    return (value ^ (value >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)


def _hash(piece: str) -> Any:
    """As `_lookups` computes it, of one piece."""
    with np.errstate(over="ignore"):
        value = np.uint64(0)
        for each in _mixed(np.array([ord(c) for c in piece], "uint64")):
            value = value * FACTOR + each
    return value


def _best(scores: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, longest: int) -> tf.Tensor:
    """Length of the last piece of the best cut up to each character, int64 `(characters,)`.

    Words are computed side by side, the longest first, so that short ones drop out.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    starts, lengths = tf.gather(starts, order), tf.gather(lengths, order)
    count, most = tf.size(lengths), tf.reduce_max(tf.concat([tf.zeros([1], tf.int64), lengths], 0))
    ones = tf.range(longest, 0, -1, dtype=tf.int64)  # the longest piece first, which wins ties
    # The best sums up to the last `longest` characters, the oldest first.
    window = tf.concat(
        [
            tf.fill([count, longest - 1], tf.constant(-np.inf, tf.float64)),
            tf.zeros([count, 1], tf.float64),
        ],
        1,
    )
    taken = tf.zeros([tf.shape(scores, tf.int64)[0]], tf.int64)

    def step(
        end: tf.Tensor, window: tf.Tensor, taken: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        active = tf.reduce_sum(tf.cast(lengths >= end, tf.int32))
        begin = starts[:active, None] + end - ones[None]
        safe = tf.maximum(begin, starts[:active, None])
        pairs = tf.stack([safe, tf.broadcast_to(ones[None] - 1, tf.shape(safe))], 2)
        sums = tf.gather_nd(scores, pairs) + window[:active]
        sums = tf.where(begin >= starts[:active, None], sums, -np.inf)
        which = tf.argmax(sums, axis=1)
        best = tf.reduce_max(sums, axis=1)
        taken = tf.tensor_scatter_nd_update(
            taken, (starts[:active] + end - 1)[:, None], tf.gather(ones, which)
        )
        window = tf.concat([window[:active, 1:], best[:, None]], 1)
        return end + 1, tf.ensure_shape(window, [None, longest]), taken

    _, _, taken = tf.while_loop(
        lambda end, window, taken: end <= most,
        step,
        (tf.constant(1, tf.int64), window, taken),
        (tf.TensorShape([]), tf.TensorShape([None, longest]), tf.TensorShape([None])),
    )
    return taken


def _chosen(taken: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Length of the piece that begins at each character, 0 where none does, from the ends on."""
    first = tf.zeros_like(taken)

    def step(end: tf.Tensor, starts: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, ...]:
        size = tf.gather(taken, end - 1)
        first = tf.tensor_scatter_nd_update(first, (end - size)[:, None], size)
        end = end - size
        left = end > starts
        return tf.boolean_mask(end, left), tf.boolean_mask(starts, left), first

    there = lengths > 0
    starts, lengths = tf.boolean_mask(starts, there), tf.boolean_mask(lengths, there)
    loose = (tf.TensorShape([None]),) * 3
    _, _, first = tf.while_loop(
        lambda end, starts, first: tf.size(end) > 0, step, (starts + lengths, starts, first), loose
    )
    return first
