"""Data that are others at the end of a run."""

import json
import time

import keras
import tensorflow as tf

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
