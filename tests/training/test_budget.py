"""Claims about the learning rate that fits a budget."""

import keras
import numpy as np
import pytest

from keras_transformers.training import BudgetedDecay, budget

X = np.ones((5, 3), "float32")


class Rates(keras.callbacks.Callback):
    """Notes the learning rate of each step."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def fit(*callbacks, epochs=50, learning_rate=0.0):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse", jit_compile=True)
    model.fit(X, X[:, :1], batch_size=1, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model.history.history


def test_a_budget_of_steps_gives_the_closed_form_and_ends_training():
    seen = Rates()
    history = fit(BudgetedDecay(0.8, warmup_steps=4, steps=11), seen)
    steps = np.arange(11)
    expected = 0.8 * np.minimum((steps + 1) / 4, 1 - steps / 11)
    np.testing.assert_allclose(seen.rates, expected, rtol=1e-6)
    assert len(history["loss"]) == 3  # two epochs of five steps, and one step


def test_the_step_is_taken_at_the_rate_that_was_set():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    model.set_weights([np.array([[100.0]], "float32")])
    ones = np.ones((4, 1), "float32")
    decay = BudgetedDecay(1.0, steps=4)
    model.fit(ones, 0 * ones, batch_size=1, epochs=1, verbose=0, callbacks=[decay])
    # The gradient of |w| is 1: the weight falls by the sum of the rates.
    np.testing.assert_allclose(model.get_weights()[0], 100 - (1 + 0.75 + 0.5 + 0.25), rtol=1e-6)


def test_a_budget_of_time_decays_to_its_end(monkeypatch):
    seen = Rates()
    clock = lambda: 100.0 + 6 * len(seen.rates)  # noqa: E731  six seconds a step
    monkeypatch.setattr(budget.time, "monotonic", clock)
    history = fit(BudgetedDecay(1.0, minutes=1.0), seen)
    np.testing.assert_allclose(seen.rates, np.arange(1, 0, -0.1), atol=1e-6)
    assert history["seconds"] == [30.0, 60.0]


def test_the_budget_that_ends_first_counts():
    seen = Rates()
    fit(BudgetedDecay(1.0, steps=7, minutes=60), seen)
    assert len(seen.rates) == 7
    np.testing.assert_allclose(seen.rates[-1], 1 / 7, rtol=1e-5)


@pytest.mark.parametrize(
    "arguments",
    [
        {"learning_rate": 1.0},
        {"learning_rate": 1.0, "minutes": 0},
        {"learning_rate": 1.0, "minutes": 5, "steps": -1},
        {"learning_rate": 0.0, "steps": 5},
        {"learning_rate": 1.0, "warmup_steps": -1, "steps": 5},
    ],
)
def test_a_budget_of_nothing_is_refused(arguments):
    with pytest.raises(ValueError, match="BudgetedDecay: .* must be positive.*Received"):
        BudgetedDecay(**arguments)


def test_an_optimizer_with_a_schedule_is_refused():
    schedule = keras.optimizers.schedules.CosineDecay(1.0, 10)
    with pytest.raises(ValueError, match="BudgetedDecay: the optimizer's `learning_rate` must be"):
        fit(BudgetedDecay(1.0, steps=5), learning_rate=schedule)


def test_a_cosine_decays_slowly_first_and_last():
    seen = Rates()
    fit(BudgetedDecay(0.8, warmup_steps=2, steps=10, decay="cosine"), seen)
    steps = np.arange(10)
    expected = 0.8 * np.minimum((steps + 1) / 2, (1 + np.cos(np.pi * steps / 10)) / 2)
    np.testing.assert_allclose(seen.rates, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="`decay` must be one of linear, cosine. .*'step'"):
        BudgetedDecay(0.8, steps=10, decay="step")
