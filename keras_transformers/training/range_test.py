"""The learning-rate range test: losses at rates that rise from step to step."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Scalar
from keras_transformers.training import checkpoints
from keras_transformers.training.schedules import unscaled_optimizer

SHARE_PASSED_OVER = 0.1  # of the steps, the first: their smoothed losses are means of few
ENOUGH = 10  # times as many batches as are needed, where the scaling of the loss leaves steps out


@dataclasses.dataclass(frozen=True)
class RangeTest:
    """Losses at learning rates that rise from step to step.

    Args:
        rates: Rate of each step, float64 `(steps,)`.
        losses: Loss of each step, before it changed the weights, float64 `(steps,)`. All of them
            are finite.
        smoothed: Their exponentially weighted mean, float64 `(steps,)`.
        suggestion: The rate at which `smoothed` falls most steeply, see
            `learning_rate_range_test`; None if it never falls.
        diverged: True if the test ended because the loss diverged or was not finite.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import RangeTest
    >>> RangeTest(np.array([0.1]), np.array([2.0]), np.array([2.0]), None, False).diverged
    False
    """

    rates: Array
    losses: Array
    smoothed: Array
    suggestion: float | None
    diverged: bool


def learning_rate_range_test(
    model: keras.Model,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    smallest: float = 1e-7,
    largest: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.9,
    stop_factor: float = 4.0,
    shuffle: bool = True,
    verbose: Any = 0,
) -> RangeTest:
    """Trains for some steps at a learning rate that rises exponentially, and takes all of it back.

    The rates at which the loss falls, and the one from which it grows, tell which learning rate to
    train with (Smith 2017, https://arxiv.org/abs/1506.01186, section 3.3; fastai's `lr_find`). The
    model trains afterwards as one that was never tested, to the bit: weights, optimizer, seeds of
    dropout, statistics, and the random states of Python and NumPy are put back, also after an
    error. A learning-rate schedule of the optimizer stands still meanwhile. The state of a dataset
    or generator of yours is not put back.

    A step is one of the optimizer: with `gradient_accumulation_steps=k` its loss is the mean of `k`
    batches. `steps_per_execution` is 1 meanwhile.

    The suggestion is the rate at which the smoothed loss falls most steeply over the logarithm of
    the rate. The first tenth of the steps, and those after the lowest smoothed loss, do not count.
    Look at the curve (`visualization.learning_rate_range`) before you take it. With a schedule that
    warms up and decays it is a sensible peak.

    Args:
        model: Built and compiled.
        x, y, sample_weight, batch_size: As of `model.fit`. Data that end are begun again.
        smallest, largest: Rates of the first and the last step.
        steps: How many, at least 2.
        smoothing: Share of the past in the weighted mean, in `[0, 1)`; 0 smooths nothing. The mean
            is corrected for its beginning, as in Adam.
        stop_factor: The test ends when the smoothed loss is above its lowest value by more than
            `stop_factor - 1` times that value, or when a loss is not finite.
        shuffle: Whether arrays are put into a random order, always the same.
        verbose: As of `model.fit`.

    Returns:
        `RangeTest`.

    Raises:
        ValueError: If the model is not built and compiled, its optimizer has no single learning
            rate, a number is out of range, or not even the first loss is finite.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import learning_rate_range_test
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    >>> found = learning_rate_range_test(model, x, x[:, :1] + 2, batch_size=16, smallest=1e-4)
    >>> found.diverged, 1e-3 < found.suggestion < 1
    (True, True)
    >>> round(float(model.optimizer.learning_rate), 4)  # as it was
    0.01
    """
    _check_numbers(smallest, largest, steps, smoothing, stop_factor)
    _check_model(model)
    data, is_endless = _batches(x, y, sample_weight, shuffle)
    rates = np.geomspace(smallest, largest, steps)
    with _unchanged(model), _settable_rate(model) as variable:
        callback = _RisingRate(variable, rates, smoothing, stop_factor)
        batches = ENOUGH * steps * (unscaled_optimizer(model).gradient_accumulation_steps or 1)
        data["steps_per_epoch" if is_endless else "epochs"] = batches
        options = {"batch_size": batch_size, "shuffle": False, "verbose": verbose}
        model.fit(**data, **options, callbacks=[callback])
    losses, smoothed = np.array(callback.losses), np.array(callback.smoothed)
    if not len(losses):
        raise ValueError(
            "learning_rate_range_test: the loss of the first step must be finite. "
            f"Received: {callback.last_loss}, at a rate of {smallest:g}"
        )
    rates = rates[: len(losses)]
    return RangeTest(rates, losses, smoothed, _suggest(rates, smoothed), callback.diverged)


class _RisingRate(keras.callbacks.Callback):
    """Sets the rate of each step, records its loss, and ends training."""

    def __init__(
        self, variable: keras.Variable, rates: Array, smoothing: float, stop_factor: float
    ) -> None:
        super().__init__()
        self._variable, self._rates = variable, rates
        self._smoothing, self._stop_factor = smoothing, stop_factor
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.diverged = False
        self.last_loss = math.nan  # of a batch
        self._mean = 0.0
        self._of_step: list[float] = []  # losses of the batches of a step
        self._made = 0  # steps of the optimizer

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._synchronize()
        if not self._of_step:
            self._made = self._steps_made()
        self._variable.assign(self._rates[len(self.losses)])
        self.model.reset_metrics()  # so that the loss is that of the batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._synchronize()
        self.last_loss = float((logs or {})["loss"])
        self._of_step.append(self.last_loss)
        if not math.isfinite(self.last_loss):
            self._stop(diverged=True)
        elif self._steps_made() > self._made:
            self._record(sum(self._of_step) / len(self._of_step))
            self._of_step = []

    def _record(self, loss: float) -> None:
        self.losses.append(loss)
        self._mean = self._smoothing * self._mean + (1 - self._smoothing) * loss
        self.smoothed.append(self._mean / (1 - self._smoothing ** len(self.losses)))
        lowest = min(self.smoothed)
        is_high = self.smoothed[-1] > lowest + (self._stop_factor - 1) * abs(lowest)
        if is_high or len(self.losses) == len(self._rates):
            self._stop(diverged=is_high)

    def _stop(self, diverged: bool) -> None:
        self.diverged, self.model.stop_training = diverged, True

    def _steps_made(self) -> int:
        return int(ops.convert_to_numpy(unscaled_optimizer(self.model).iterations))

    def _synchronize(self) -> None:
        """Brings the variables up to date, and makes the next step read them."""
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()


class _Held(keras.optimizers.schedules.LearningRateSchedule):
    """The value of a variable, in the place of a schedule."""

    def __init__(self, variable: keras.Variable) -> None:
        super().__init__()
        self.variable = variable

    def __call__(self, step: Any) -> Scalar:
        return ops.convert_to_tensor(self.variable)


@contextlib.contextmanager
def _settable_rate(model: Any) -> Iterator[keras.Variable]:
    """A context in which the learning rate of the optimizer is a variable, which it yields."""
    optimizer = unscaled_optimizer(model)
    if isinstance(optimizer.learning_rate, keras.Variable):
        yield optimizer.learning_rate
        return
    schedule = optimizer._learning_rate  # Keras has no public way to read it
    variable = optimizer.add_variable((), dtype="float32", name="rate_of_range_test")
    optimizer.learning_rate = _Held(variable)
    try:
        yield variable
    finally:
        optimizer.learning_rate = schedule
        optimizer._untrack_variable(variable)  # as Keras does with that of a rate


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """A context after which a model, its optimizer and random states are what they were."""
    steps_per_execution, train_function = model.steps_per_execution, model.train_function
    model.steps_per_execution, model.train_function = 1, None
    with checkpoints.restored_state(model):
        try:
            yield
        finally:
            model.steps_per_execution, model.train_function = steps_per_execution, train_function


def _batches(x: Any, y: Any, sample_weight: Any, shuffle: bool) -> tuple[dict[str, Any], bool]:
    """The data for `fit`, and whether they never end or cannot be begun again."""
    leaves = keras.tree.flatten(x)
    if all(hasattr(leaf, "shape") for leaf in leaves):
        order = np.arange(len(leaves[0]))
        if shuffle:
            order = np.random.default_rng(0).permutation(order)
        parts = [part if part is None else _rows(part, order) for part in (x, y, sample_weight)]
        return dict(zip(("x", "y", "sample_weight"), parts, strict=True)), False
    is_endless = hasattr(x, "__next__")
    if hasattr(x, "cardinality"):
        is_endless = int(x.cardinality()) == -1
    elif isinstance(x, keras.utils.PyDataset):
        is_endless = x.num_batches is None
    return {"x": x, "y": y, "sample_weight": sample_weight}, is_endless


def _rows(part: Any, order: Array) -> Any:
    """Rows of arrays, in an order."""
    return keras.tree.map_structure(lambda array: np.asarray(array)[order], part)


def _check_numbers(
    smallest: float, largest: float, steps: int, smoothing: float, stop_factor: float
) -> None:
    if not (0 < smallest < largest < math.inf and isinstance(steps, int) and steps >= 2):
        raise ValueError(
            "learning_rate_range_test: `smallest` must be positive and below `largest`, and "
            f"`steps` an integer of at least 2. Received: smallest={smallest}, largest={largest}, "
            f"steps={steps!r}"
        )
    if not 0 <= smoothing < 1 or not stop_factor > 1:
        raise ValueError(
            "learning_rate_range_test: `smoothing` must be in [0, 1), and `stop_factor` above 1. "
            f"Received: smoothing={smoothing}, stop_factor={stop_factor}"
        )


def _check_model(model: Any) -> None:
    optimizer = getattr(model, "optimizer", None)
    if not (model.built and model.compiled and optimizer is not None):
        raise ValueError(
            "learning_rate_range_test: `model` must be built, and compiled with an optimizer. "
            f"Received: '{model.name}', {'built' if model.built else 'not built'}, "
            f"{'compiled' if model.compiled else 'not compiled'}"
        )
    if isinstance(unscaled_optimizer(model), keras.optimizers.MultiOptimizer):
        raise ValueError(
            "learning_rate_range_test: the optimizer must have one learning rate. Received: a "
            "MultiOptimizer"
        )


def _suggest(rates: Array, smoothed: Array) -> float | None:
    """The rate of the steepest descent; None if there is none."""
    first, last = int(SHARE_PASSED_OVER * len(rates)), int(np.argmin(smoothed))
    if last <= first:
        return None
    slopes = np.gradient(smoothed, np.log(rates))[first : last + 1]
    return float(rates[first + np.argmin(slopes)]) if slopes.min() < 0 else None
