"""Claims about the learning-rate range test."""

import random

import keras
import numpy as np
import pytest

from keras_transformers.training import (
    AdamW,
    Lamb,
    Muon,
    WarmupLinear,
    learning_rate_range_test,
    schedules,
)
from keras_transformers.training.checkpoints import variables_of
from tests.contract import to_numpy
from tests.slow import slow_except

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(48, 6)).astype("float32")
Y = (X @ DRAW.normal(size=(6, 2)) + 0.5).astype("float32")
RATES = {"smallest": 1e-4, "largest": 0.05, "steps": 7, "shuffle": False, "batch_size": 8}


def network(dropout=0.0):
    """A model with a seed of dropout and moving statistics, if there is dropout."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6,)), keras.layers.Dense(5, "tanh")]
    if dropout:
        layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(dropout)]
    return keras.Sequential([*layers, keras.layers.Dense(2)])


def test_losses_are_those_of_a_loop_in_float64():
    """Of a line by gradient descent with momentum, whose data begin again."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    kernel, bias = (to_numpy(v).astype("float64") for v in model.weights)
    model.compile(keras.optimizers.SGD(0.3, momentum=0.5), "mse")
    options = {"smallest": 1e-3, "largest": 0.5, "steps": 9, "shuffle": False, "batch_size": 20}
    result = learning_rate_range_test(model, X, Y, smoothing=0.8, **options)
    rates = 1e-3 * 500 ** (np.arange(9) / 8)
    np.testing.assert_allclose(result.rates, rates, rtol=1e-12)
    losses, smoothed, mean, speeds = [], [], 0.0, [0.0, 0.0]
    for step, rate in enumerate(rates):
        rows = slice(20 * (step % 3), 20 * (step % 3) + 20)  # 20, 20 and 8 rows
        error = X[rows] @ kernel + bias - Y[rows]
        losses.append((error**2).mean())
        mean = 0.8 * mean + 0.2 * losses[-1]
        smoothed.append(mean / (1 - 0.8 ** (step + 1)))
        change = 2 * error / error.size
        for i, gradient in enumerate((X[rows].T @ change, change.sum(0))):
            speeds[i] = 0.5 * speeds[i] - rate * gradient
        kernel, bias = kernel + speeds[0], bias + speeds[1]
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(result.smoothed, smoothed, rtol=1e-5)
    assert not result.diverged


OPTIMIZERS = {
    **{
        name: getattr(keras.optimizers, name)
        for name in (
            "SGD", "RMSprop", "Adam", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion",
            "Adafactor",
        )
    },
    "Keras's AdamW": keras.optimizers.AdamW,
    "AdamW": AdamW,
    "Lamb": Lamb,
    "Muon": Muon,
}  # fmt: skip
SCHEDULES = {
    "number": lambda: 0.02,
    "schedule": lambda: WarmupLinear(0.02, 3, 40),
    "function": lambda: lambda: 0.02,
}
WAYS = {
    "plain": {},
    "accumulated": {"accumulated": 3},
    "several an execution": {"per_execution": 4},
    "XLA": {"jit_compile": True},
    "averages": {"use_ema": True},
}
CASES = {
    f"{name}, {schedule}, {way}": (name, schedule, way)
    for name in OPTIMIZERS
    for schedule in SCHEDULES
    for way in WAYS
}


def compiled(optimizer, rate, way, dropout):
    options = dict(WAYS[way])
    model = network(dropout)
    accumulated = options.pop("accumulated", None)
    per_execution = options.pop("per_execution", 1)
    jit_compile = options.pop("jit_compile", False)
    made = OPTIMIZERS[optimizer](rate, gradient_accumulation_steps=accumulated, **options)
    model.compile(
        made, "mse", metrics=["mae"], steps_per_execution=per_execution, jit_compile=jit_compile
    )
    return model, accumulated or 1


@pytest.mark.parametrize(
    "case",
    slow_except(
        CASES,
        "AdamW, number, plain",
        "AdamW, schedule, accumulated",
        "Muon, schedule, XLA",
        "Adam, schedule, several an execution",
        "SGD, function, averages",
    ),
)
def test_losses_are_those_of_steps_at_these_rates_and_nothing_is_changed(case):
    name, schedule, way = case
    tested, batches = compiled(name, SCHEDULES[schedule](), way, dropout=0.3)
    untouched, _ = compiled(name, SCHEDULES[schedule](), way, dropout=0.3)
    by_hand, _ = compiled(name, 1.0, way, dropout=0.3)
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    first = 4  # batches, of which accumulated ones leave a part of a step
    for model in (tested, untouched):
        model.fit(X[: 8 * first], Y[: 8 * first], epochs=3, **options)
    for mine, its in zip(pairs_of(by_hand), pairs_of(tested), strict=True):
        mine.assign(to_numpy(its))
    state, python, numpy = states(tested), random.getstate(), np.random.get_state()[1].copy()
    rate, function = tested.optimizer._learning_rate, tested.train_function
    result = learning_rate_range_test(tested, X, Y, stop_factor=1e9, **RATES)
    assert tested.optimizer._learning_rate is rate
    assert tested.train_function is function
    assert tested.steps_per_execution == WAYS[way].get("per_execution", 1)
    assert random.getstate() == python
    np.testing.assert_array_equal(np.random.get_state()[1], numpy)
    for before, after in zip(state, states(tested), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(result.losses, losses_by_hand(by_hand, batches, 12), rtol=1e-5)
    assert len(result.losses) == RATES["steps"]
    for model in (tested, untouched):
        model.fit(X, Y, epochs=2, **options)
    for one, other in zip(states(tested), states(untouched), strict=True):
        np.testing.assert_array_equal(one, other)


def pairs_of(model):
    """All variables but that of the rate and the metrics, the optimizer built."""
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    parts = variables_of(model)
    rest = [v for v in parts["optimizer"] if v is not model.optimizer._learning_rate]
    return [*parts["trainable"], *parts["others"], *rest]


def states(model):
    return [to_numpy(variable) for part in variables_of(model).values() for variable in part]


def losses_by_hand(model, batches, made):
    """Losses of a loop over batches, in which the rate is set for each step; `made` were before."""
    model.steps_per_execution = 1
    losses, of_step, position = [], [], 0
    for rate in np.geomspace(RATES["smallest"], RATES["largest"], RATES["steps"]):
        while True:
            model.optimizer.learning_rate.assign(rate)
            rows = slice(8 * (position % 6), 8 * (position % 6) + 8)
            of_step.append(model.train_on_batch(X[rows], Y[rows], return_dict=True)["loss"])
            position += 1
            if (made + position) % batches == 0:
                break
        losses.append(np.mean(of_step))
        of_step = []
    return losses


def test_a_test_ends_where_the_loss_diverges():
    model = network()
    model.compile("sgd", "mse")
    before = states(model)
    result = learning_rate_range_test(model, X, Y, smallest=1e-3, largest=1e4, steps=60)
    assert result.diverged
    assert len(result.losses) == len(result.rates) == len(result.smoothed) < 60
    assert np.isfinite(result.losses).all()
    assert result.smoothed[-1] > 4 * result.smoothed.min()
    assert 1e-3 < result.suggestion < result.rates[-1]
    for one, other in zip(before, states(model), strict=False):
        np.testing.assert_array_equal(one, other)


def test_a_loss_that_is_not_finite_ends_the_test():
    model = network()
    model.compile("sgd", "mse")
    spoiled = Y.copy()
    spoiled[30] = np.nan
    options = {**RATES, "batch_size": 8}
    result = learning_rate_range_test(model, X, spoiled, **options)
    assert result.diverged
    assert len(result.losses) == 3
    with pytest.raises(ValueError, match="the loss of the first step must be finite.*nan"):
        learning_rate_range_test(model, X, spoiled * np.nan, **options)


def test_everything_is_put_back_after_an_error():
    model, _ = compiled("AdamW", WarmupLinear(0.02, 3, 40), "several an execution", 0.3)
    model.fit(X, Y, verbose=0)
    before, schedule = states(model), model.optimizer._learning_rate

    def batches():
        yield X[:8], Y[:8]
        raise RuntimeError("the disk is gone")

    with pytest.raises(Exception, match="the disk is gone"):
        learning_rate_range_test(model, batches(), steps=5)
    assert model.optimizer._learning_rate is schedule
    assert model.steps_per_execution == 4
    for one, other in zip(before, states(model), strict=True):
        np.testing.assert_array_equal(one, other)


class Batches(keras.utils.PyDataset):
    def __init__(self, number):
        super().__init__()
        self.number = number

    @property
    def num_batches(self):
        return self.number

    def __getitem__(self, index):
        rows = slice(8 * (index % 6), 8 * (index % 6) + 8)
        return X[rows], Y[rows]


def endless():
    index = 0
    while True:
        yield Batches(6)[index]
        index += 1


def datasets():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return [dataset, dataset.repeat(), Batches(6), Batches(None), endless()]


def test_data_of_every_kind_are_taken_and_begun_again():
    model = network()
    model.compile(AdamW(0.1), "mse")
    options = {**RATES, "steps": 15}
    expected = learning_rate_range_test(model, X, Y, **options).losses
    del options["batch_size"]
    for data in datasets():
        result = learning_rate_range_test(model, data, **options)
        np.testing.assert_allclose(result.losses, expected, rtol=1e-6)
    weights = np.linspace(0.1, 2, 48).astype("float32")
    weighted = learning_rate_range_test(model, X, Y, weights, stop_factor=99.0, **RATES)
    assert np.abs(weighted.losses - expected[:7]).max() > 1e-3
    shuffled = learning_rate_range_test(model, X, Y, **{**RATES, "shuffle": True})
    order = np.random.default_rng(0).permutation(48)
    expected = learning_rate_range_test(model, X[order], Y[order], **RATES)
    np.testing.assert_allclose(shuffled.losses, expected.losses, rtol=1e-6)


def test_steps_that_the_scaling_of_the_loss_leaves_out_are_no_steps(monkeypatch):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = network()
        model.compile(keras.optimizers.LossScaleOptimizer(AdamW(0.1), 2.0**40), "mse")
    finally:
        keras.config.set_dtype_policy("float32")
    batches, count = [], schedules._RisingRate.on_train_batch_end

    def on_train_batch_end(callback, batch, logs=None):
        batches.append(batch)
        count(callback, batch, logs)

    monkeypatch.setattr(schedules._RisingRate, "on_train_batch_end", on_train_batch_end)
    result = learning_rate_range_test(model, X, Y, **RATES)
    assert len(result.losses) == 7
    assert (
        len(batches) > 12
    )  # float16 ends at 2 ** 16, and each one that is left out halves 2 ** 40
    assert float(to_numpy(model.optimizer.dynamic_scale)) == 2.0**40


def test_the_suggestion_is_the_steepest_descent_between_the_beginning_and_the_lowest_loss():
    rates = np.geomspace(1e-6, 1, 61)
    falling = 1 / (1 + (rates / 1e-3) ** 2)  # over the logarithm, steepest at 1e-3
    assert schedules._suggest(rates, falling) == pytest.approx(1e-3, rel=1e-6)
    spoiled = falling.copy()
    spoiled[:3] += [9.0, 4.0, 1.0]  # in the first tenth
    spoiled[55:] = [0.5, 9.0, 9.0, 2.0, 3.0, 4.0]  # after the lowest
    assert schedules._suggest(rates, spoiled) == pytest.approx(1e-3, rel=1e-6)
    assert schedules._suggest(rates, np.linspace(1, 2, 61)) is None


def test_what_cannot_be_tested_is_refused():
    model = network()
    with pytest.raises(ValueError, match="must be built, and compiled.*not compiled"):
        learning_rate_range_test(model, X, Y)
    plain = keras.Sequential([keras.layers.Dense(2)])
    plain.compile("sgd", "mse")
    with pytest.raises(ValueError, match="must be built.*not built"):
        learning_rate_range_test(plain, X, Y)
    model.compile("sgd", "mse")
    for options, message in (
        ({"smallest": 0.0}, "`smallest` must be positive"),
        ({"smallest": 1.0, "largest": 0.1}, "below `largest`"),
        ({"steps": 1}, "an integer of at least 2"),
        ({"steps": 2.5}, "an integer of at least 2"),
        ({"smoothing": 1.0}, r"`smoothing` must be in \[0, 1\)"),
        ({"stop_factor": 1.0}, "`stop_factor` above 1"),
    ):
        with pytest.raises(ValueError, match=message):
            learning_rate_range_test(model, X, Y, **options)
    optimizers = keras.optimizers
    several = optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD()))
    model.compile(several, "mse")
    with pytest.raises(ValueError, match="one learning rate. Received: a MultiOptimizer"):
        learning_rate_range_test(model, X, Y)
