"""Batches of labelled texts of like length, of what is in memory or of a stream."""

import dataclasses

import tensorflow as tf

from keras_transformers.text import bucketed_texts, bucketing, encoder_of_labelled
from keras_transformers.training import several_hot

from . import streaming
from .data.own_files import separator_of


@dataclasses.dataclass(frozen=True)
class LabelledBatches:
    """Batches of ids, of 0 and 1 for each class, and of weights.

    Args:
        config: Of a recipe.
        boundaries: Lengths that texts are padded to.
        classes: Number of classes.
        padding_id: What they are padded with.
    """

    config: object
    boundaries: tuple
    classes: int
    padding_id: int

    def of(self, ids, labels, seed=None, epoch=None):
        """Those of ids and numbers of classes, or lists of numbers, that are in memory."""
        size = self.config.training.batch_size
        labels = several_hot(labels, self.classes) if self._several else labels
        return bucketed_texts(ids, labels, self.boundaries, size, seed, epoch, self.padding_id).map(
            self._hot
        )

    def streamed(self, shards, tokenizer, seed):
        """Those of shards, whose rows have texts and numbers of classes: a `ShardStream`."""
        size = self.config.training.batch_size
        arrange = bucketing(self.boundaries, size, self.padding_id)
        shape = (None, self.classes) if self._several else (None,)
        return streaming.stream(
            self.config,
            shards,
            encoder_of_labelled(tokenizer, self.boundaries[-1]),
            lambda chunks, epoch: arrange(chunks, epoch).map(self._hot),
            seed,
            signature=[tf.TensorSpec((None,), tf.string), tf.TensorSpec(shape, tf.int32)],
        )

    @property
    def _several(self):
        return separator_of(self.config.data) is not None

    def _hot(self, ids, labels, weights):
        hot = tf.cast(labels, tf.float32) if self._several else tf.one_hot(labels, self.classes)
        return ids, hot, weights
