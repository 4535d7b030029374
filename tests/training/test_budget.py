"""Claims about the learning rate that fits a budget."""

import keras
import numpy as np
import pytest

from keras_transformers.training import BudgetedDecay, schedules

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
    monkeypatch.setattr(schedules.time, "monotonic", clock)
    history = fit(BudgetedDecay(1.0, minutes=1.0), seen)
    # The first step compiles, and takes none of the minute.
    np.testing.assert_allclose(seen.rates, [1.0, *np.arange(1, -0.05, -0.1)], atol=1e-6)
    assert history["seconds"] == [24.0, 54.0, 66.0]
    np.testing.assert_allclose(history["epochs"], [1.0, 2.0, 2.4])


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


def sum_of_rates(budget, batches=1, per_execution=1, rows=5, epochs=9):
    """How far a weight falls whose gradient is 1, and how many batches were trained on."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    accumulated = batches if batches > 1 else None
    sgd = keras.optimizers.SGD(0.0, gradient_accumulation_steps=accumulated)
    model.compile(sgd, "mae", steps_per_execution=per_execution, jit_compile=False)
    model.set_weights([np.array([[100.0]], "float32")])
    ones = np.ones((rows, 1), "float32")
    model.fit(ones, 0 * ones, batch_size=1, epochs=epochs, verbose=0, callbacks=[budget])
    return 100 - model.get_weights()[0].item(), int(sgd._iterations)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("per_execution", [1, 4])
def test_a_budget_is_of_steps_whatever_makes_a_step_or_an_execution(decay, batches, per_execution):
    """Epochs of 5 batches, whose last execution has fewer than others."""
    steps = np.arange(12)
    decayed = {"linear": 1 - steps / 12, "cosine": (1 + np.cos(np.pi * steps / 12)) / 2}[decay]
    expected = 0.8 * np.minimum((steps + 1) / 4, decayed).sum()
    budget = BudgetedDecay(0.8, warmup_steps=4, steps=12, decay=decay)
    fallen, trained = sum_of_rates(budget, batches, per_execution)
    ends = (
        12 * batches
        if per_execution == 1
        else min(
            begin + min(4, 5 - begin % 5)
            for begin in range(45)
            if begin % 5 in (0, 4) and begin + min(4, 5 - begin % 5) >= 12 * batches
        )
    )
    assert trained == ends
    np.testing.assert_allclose(fallen, expected, rtol=1e-5)


def test_executions_that_go_on_into_the_next_epoch_are_counted():
    """Keras takes 4 batches from endless data where 1 is left of an epoch of 5."""
    tf = pytest.importorskip("tensorflow")
    endless = tf.data.Dataset.from_tensors((np.ones((1, 3)), np.ones((1, 1)))).repeat()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=4, jit_compile=False)
    callbacks = [BudgetedDecay(1.0, steps=24)]
    model.fit(endless, steps_per_epoch=5, epochs=9, verbose=0, callbacks=callbacks)
    assert int(model.optimizer._iterations) == 24


def test_minutes_left_are_those_of_the_steps_that_are_left(monkeypatch):
    """A second for each batch, two batches a step, four an execution."""
    clock = [100.0]
    monkeypatch.setattr(schedules.time, "monotonic", lambda: clock[0])
    decay, left = BudgetedDecay(1.0, steps=20), []

    def pass_time(batch, logs):
        left.append(decay.minutes_left())
        clock[0] += 4.0

    watch = keras.callbacks.LambdaCallback(on_train_batch_begin=pass_time)
    sgd = keras.optimizers.SGD(0.0, gradient_accumulation_steps=2)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(sgd, "mse", steps_per_execution=4, jit_compile=False)
    model.fit(np.ones((20, 3)), np.ones((20, 1)), 1, epochs=2, verbose=0, callbacks=[decay, watch])
    # After the first execution, which compiles, there is no pace yet: no second has been measured.
    np.testing.assert_allclose(left[2:], [(40 - 4 * i) / 60 * (i - 1) / i for i in range(2, 10)])
