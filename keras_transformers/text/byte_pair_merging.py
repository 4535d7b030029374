"""Merging of byte pairs: the bytes of words become ids of pieces, in the TensorFlow graph."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

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
