"""Claims about the budget of time."""

import time

import keras
import numpy as np
import pytest

from keras_transformers.training import StopAfter

X = np.ones((40, 3), "float32")


class Steps(keras.callbacks.Callback):
    """Counts steps, and makes each take a while."""

    count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        time.sleep(0.05)


def fit(*callbacks, epochs=50):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(X, X[:, :1], batch_size=1, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model.history.history


def test_training_stops_within_an_epoch_when_time_is_up():
    steps = Steps()
    history = fit(StopAfter(1e-9), steps)
    assert steps.count == 1
    assert len(history["loss"]) == 1


def test_training_goes_on_while_there_is_time():
    assert len(fit(StopAfter(10.0), epochs=3)["loss"]) == 3


def test_seconds_of_training_are_in_the_history():
    start = time.monotonic()
    seconds = fit(StopAfter(), epochs=3)["seconds"]
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] <= time.monotonic() - start


@pytest.mark.parametrize("minutes", [0, -1])
def test_a_budget_of_nothing_is_refused(minutes):
    with pytest.raises(ValueError, match="StopAfter: `minutes` must be positive.*Received"):
        StopAfter(minutes)
