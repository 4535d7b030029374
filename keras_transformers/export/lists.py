"""The lists of a batch of sources, in the graph."""

import numpy as np
import tensorflow as tf

from keras_transformers.generation import Shortlisted
from keras_transformers.generation.request import SMALLEST
from keras_transformers.generation.shortlists import Within, list_sizes


class Lists(tf.Module):
    """`Shortlist.within` by TensorFlow's operations, which a SavedModel holds.

    Args:
        search: The `Shortlisted`.
        padding_id, start_id, end_id: Of a request.
    """

    def __init__(
        self, search: Shortlisted, padding_id: int, start_id: int | None, end_id: int
    ) -> None:
        super().__init__(name="shortlist")
        of = search.shortlist
        self._named = search.named(padding_id, end_id, start_id)
        self._vocab, self._sizes = of.vocab_size, list_sizes(of.vocab_size)
        self._likeliest = tf.Variable(of.likeliest, trainable=False, dtype=tf.int32)
        splits = np.append(of.splits, of.splits[-1])  # an empty list behind, of negative padding
        self._splits = tf.Variable(splits, trainable=False, dtype=tf.int64)
        always = np.zeros(of.vocab_size, bool)
        always[[token for token in (*self._named, *of.frequent) if token >= 0]] = True
        self._always = tf.Variable(always, trainable=False)

    def within(self, source: tf.Tensor, compiled: bool) -> Within:
        """The `Within` of dense ids `(batch, length)`; of one of a few sizes where it is compiled.

        Else it is as long as it must be.
        """
        batch, vocab = tf.shape(source, tf.int64)[0], self._vocab
        lists = tf.RaggedTensor.from_row_splits(self._likeliest, self._splits, validate=False)
        source = tf.where(source < 0, lists.nrows(tf.int32) - 1, source)
        listed = tf.gather(lists, source).merge_dims(1, 2)
        rows, tokens = listed.value_rowids(), listed.flat_values
        named = tf.constant(self._named, tf.int32)
        real = tf.constant([token for token in self._named if token >= 0], tf.int32)[:, None]
        present = tf.scatter_nd(tokens[:, None], tf.ones_like(tokens), [vocab]) > 0
        present = tf.tensor_scatter_nd_update(
            present | self._always, real, tf.zeros_like(real[:, 0], tf.bool)
        )
        rest = tf.cast(tf.where(present)[:, 0], tf.int32)
        ids = tf.concat([named, rest], axis=0)
        number = tf.size(ids)
        positions = tf.scatter_nd(ids[1:, None], tf.range(1, number), [vocab])
        size = tf.maximum(number, SMALLEST)
        if compiled:
            size = tf.gather(self._sizes, tf.searchsorted(self._sizes, [number])[0])
        at = tf.stack([rows, tf.cast(tf.gather(positions, tokens), tf.int64)], axis=1)
        shape = tf.stack([batch, tf.cast(size, tf.int64)])
        own = tf.scatter_nd(at, tf.ones_like(tokens), shape) > 0
        common = tf.gather(self._always, tf.maximum(ids, 0)) & (ids >= 0)
        short = [[0, size - number]]
        allowed = own | tf.pad(common, short)[None]
        return Within(tf.pad(ids, short, constant_values=self._named[0]), allowed)
