"""Requests of any size, computed in rounds of a few sizes that XLA compiles once each."""

import tensorflow as tf

LARGEST_BATCH = 64  # a larger request takes several rounds


def round_size(batch):
    """Rows of a round for a request of `batch` rows (int32 scalar): a power of two, at most 64."""
    powers = tf.constant([1 << i for i in range(31)])
    enough = tf.reduce_min(tf.boolean_mask(powers, powers >= batch))  # 1 for 0
    return tf.minimum(LARGEST_BATCH, enough)
