"""Batches of streams and of labelled texts, and batches that change near the end of a run."""

import dataclasses
import json
import time

import keras
import tensorflow as tf

from keras_transformers.shards import ShardStream
from keras_transformers.training import several_hot

from ..data.data_sets import find_separator

SAMPLED = 50  # batches of a stream from which the share of padding is computed
NAME = "last_part.json"


def open_stream(config, shards, encode, arrange, seed=None, **options):
    """Opens the `ShardStream` of a run, shuffled by its seed.

    Args:
        config: The configuration of the run.
        shards: The `Shards`, in any order.
        encode, arrange, **options: See `ShardStream`.
        seed: The seed of the order; by default that of the run.
    """
    shards = dataclasses.replace(shards, seed=config.run.seed if seed is None else seed)
    print(f"{shards.name}: a stream, of {config.training.steps_per_epoch} batches an epoch")
    return ShardStream(shards, encode, arrange, **options)


def first_epoch(config, folder, make, name="stream"):
    """Reads the batches of the first epoch.

    Args:
        config: The configuration of the run.
        folder: The `RunFolder` of a run that has begun. It keeps the journal of a stream.
        make: A function from the number of an epoch to its batches, or a `ShardStream`.
        name: The name of the journal, if one run has several.

    Returns:
        The batches, a list, of a `ShardStream` only the first; and the number of batches of an
        epoch, for a `ShardStream` that of the configuration.
    """
    if isinstance(make, ShardStream):
        make.keep_journal(folder / f"{name}.jsonl")
        steps = config.training.steps_per_epoch
        return list(make.batches().take(min(steps, SAMPLED))), steps
    epoch = list(make(0))
    return epoch, len(epoch)  # an epoch can be a batch longer or shorter than another


def report_left_out(make):
    """Prints the number of rows that a stream has left out."""
    if isinstance(make, ShardStream):
        print(make.summary())


@dataclasses.dataclass(frozen=True)
class LabelledBatches:
    """Makes batches of ids, of 0 and 1 for each class, and of weights.

    Args:
        config: The configuration of a recipe.
        boundaries: Lengths that texts are padded to.
        classes: Number of classes.
        padding_id: Id that texts are padded with.
    """

    config: object
    boundaries: tuple
    classes: int
    padding_id: int

    def in_memory(self, ids, labels, seed=None, epoch=None):
        """Returns batches of ids and numbers of classes, or lists of numbers, in memory."""
        from keras_transformers.text import bucketed_texts  # recipes for images do without

        size = self.config.training.batch_size
        labels = several_hot(labels, self.classes) if self._several else labels
        return bucketed_texts(ids, labels, self.boundaries, size, seed, epoch, self.padding_id).map(
            self._hot
        )

    def streamed(self, shards, tokenizer, seed):
        """Returns a `ShardStream` of shards whose rows have texts and numbers of classes."""
        from keras_transformers.text import bucketing, encoder_of_labelled

        size = self.config.training.batch_size
        arrange = bucketing(self.boundaries, size, self.padding_id)
        shape = (None, self.classes) if self._several else (None,)
        return open_stream(
            self.config,
            shards,
            encoder_of_labelled(tokenizer, self.boundaries[-1]),
            lambda chunks, epoch: arrange(chunks, epoch).map(self._hot),
            seed,
            signature=[tf.TensorSpec((None,), tf.string), tf.TensorSpec(shape, tf.int32)],
        )

    @property
    def _several(self):
        return find_separator(self.config.data) is not None

    def _hot(self, ids, labels, weights):
        """Returns a batch with a row of 0 and 1 in place of each label."""
        hot = tf.cast(labels, tf.float32) if self._several else tf.one_hot(labels, self.classes)
        return ids, hot, weights


class LastPart(keras.callbacks.Callback):
    """Tells which epochs belong to the last part of a run.

    The last part begins with the first epoch that begins when a share of the epochs, or of the
    minutes, has passed. A file keeps the number of that epoch, so that a resumed run repeats the
    epoch in which it was killed.

    Args:
        config: The configuration of the run, with `epochs` and `minutes` in `training`.
        folder: The `RunFolder` of the run.
        begins: The share.
    """

    def __init__(self, config, folder, begins):
        super().__init__()
        self._epochs, self._minutes = config.training.epochs, config.training.minutes
        self._begins, self._path = begins, folder / NAME
        self._start = self._first = None  # a time in seconds; the number of an epoch
        if config.run.resume and self._path.exists():
            self._first = json.loads(self._path.read_text())["first_epoch"]

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()
        self._write()

    def get_state(self):
        """Returns the seconds since the start, for `ExactResume`."""
        return {} if self._start is None else {"seconds": time.monotonic() - self._start}

    def set_state(self, state):
        self._start = time.monotonic() - state["seconds"]

    def has(self, epoch):
        """Returns whether an epoch that begins now is in it: a bool, or a tensor like `epoch`."""
        if isinstance(epoch, int):
            return self._has(epoch)
        return tf.ensure_shape(tf.numpy_function(self._has, [epoch], tf.bool), ())

    def _has(self, epoch):
        spent = epoch / self._epochs
        if self._minutes is not None and self._start is not None:
            spent = max(spent, (time.monotonic() - self._start) / 60 / self._minutes)
        if self._first is None and spent >= self._begins:
            self._first = int(epoch)
            self._write()
        return self._first is not None and bool(epoch >= self._first)

    def _write(self):
        """Writes the first epoch of the last part; before training, the folder must not change."""
        if self._first is not None and self._start is not None:
            self._path.write_text(json.dumps({"first_epoch": self._first}))
