"""Batches of streams, batches of labelled texts, and batches that change near the end of a run."""

import dataclasses
import json
import time

import keras
import tensorflow as tf

from keras_transformers.shards import ShardStream
from keras_transformers.training import several_hot

from ..data.data_sets import separator_of

LOOKED_AT = 50  # batches of a stream that say how full rows are


def open_stream(config, shards, encode, arrange, seed=None, **options):
    """The `ShardStream` of a run, shuffled by its seed.

    Args:
        config: Of the run.
        shards: The `Shards`, in any order.
        encode, arrange, **options: See `ShardStream`.
        seed: By default that of the run.
    """
    shards = dataclasses.replace(shards, seed=config.run.seed if seed is None else seed)
    print(f"{shards.name}: a stream, of {config.training.steps_per_epoch} batches an epoch")
    return ShardStream(shards, encode, arrange, **options)


def first_epoch(config, folder, make, name="stream"):
    """The batches of the first epoch, a list, and how many an epoch has.

    Of a `ShardStream` it is the first few, and what the configuration says.

    Args:
        config, folder: Of a run that has begun. The folder has the journal of a stream.
        make: Function from the number of an epoch to its batches, or a `ShardStream`.
        name: Of the journal, where one run has several.
    """
    if isinstance(make, ShardStream):
        make.keep_journal(folder / f"{name}.jsonl")
        steps = config.training.steps_per_epoch
        return list(make.batches().take(min(steps, LOOKED_AT))), steps
    epoch = list(make(0))
    return epoch, len(epoch)  # an epoch can be a batch longer or shorter than another


def report_left_out(make):
    """Says what a stream has left out."""
    if isinstance(make, ShardStream):
        print(make.summary())


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
        from keras_transformers.text import bucketed_texts  # recipes for images do without

        size = self.config.training.batch_size
        labels = several_hot(labels, self.classes) if self._several else labels
        return bucketed_texts(ids, labels, self.boundaries, size, seed, epoch, self.padding_id).map(
            self._hot
        )

    def streamed(self, shards, tokenizer, seed):
        """Those of shards, whose rows have texts and numbers of classes: a `ShardStream`."""
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
        return separator_of(self.config.data) is not None

    def _hot(self, ids, labels, weights):
        hot = tf.cast(labels, tf.float32) if self._several else tf.one_hot(labels, self.classes)
        return ids, hot, weights


NAME = "last_part.json"


class LastPart(keras.callbacks.Callback):
    """Which epochs belong to the last part of a run.

    Those that begin when a share of its epochs, or of its minutes, is behind it. The first of them
    is written down, so that a run that goes on has the epoch in which it was killed as it was.

    Args:
        config, folder: Of the run, with `epochs` and `minutes` in `training`.
        begins: The share.
    """

    def __init__(self, config, folder, begins):
        super().__init__()
        of = config.training
        self._epochs, self._minutes, self._begins = of.epochs, of.minutes, begins
        self._path, self._start, self._first = folder / NAME, None, None
        if config.run.resume and self._path.exists():
            self._first = json.loads(self._path.read_text())["first_epoch"]

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()
        self._write()

    def get_state(self):
        """Seconds since the start, for `ExactResume`."""
        return {} if self._start is None else {"seconds": time.monotonic() - self._start}

    def set_state(self, state):
        self._start = time.monotonic() - state["seconds"]

    def has(self, epoch):
        """Whether an epoch that begins now belongs to it: a bool, or a tensor like `epoch`."""
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
