"""A budget of time for `model.fit`."""

import time

import keras


class StopAfter(keras.callbacks.Callback):
    """Stops training at the end of a step when its time is used up, and logs the seconds.

    Puts `seconds` since the start of training into each epoch's logs. The clock runs during
    compilation and validation too. Stand it first in the list of callbacks, so that those after
    it know which epoch is the last.

    Args:
        minutes: The budget; `None` only logs.

    Raises:
        ValueError: If `minutes` is not positive.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import StopAfter
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((4, 2), "float32")
    >>> stop = StopAfter(minutes=1e-9)
    >>> history = model.fit(x, x[:, :1], epochs=3, verbose=0, callbacks=[stop])
    >>> len(history.history["seconds"])
    1
    """

    def __init__(self, minutes=None):
        super().__init__()
        if minutes is not None and minutes <= 0:
            raise ValueError(f"StopAfter: `minutes` must be positive. Received: {minutes}")
        self.minutes = minutes
        self._start = None

    def on_train_begin(self, logs=None):
        self._start = time.monotonic()

    # At the beginning of a step: a callback at its end makes Keras wait for the step's result,
    # and the accelerator for Keras.
    def on_train_batch_begin(self, batch, logs=None):
        self._stop_if_over()

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["seconds"] = time.monotonic() - self._start
        self._stop_if_over()

    def _stop_if_over(self):
        if self.minutes is not None and time.monotonic() - self._start > 60 * self.minutes:
            self.model.stop_training = True
