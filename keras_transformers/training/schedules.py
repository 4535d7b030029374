"""Learning rates: schedules, a rate that fits a budget, and the range test.

The range test trains at rates that rise from step to step, and records the losses.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Scalar
from keras_transformers.training import checkpoints


@keras.saving.register_keras_serializable("keras_transformers")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

    `lr = scale D^-0.5 min(step^-0.5, step warmup^-1.5)`, steps counted from 1 (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, eq. 3).

    Args:
        hidden_dim: D, the width of the model.
        warmup_steps: Steps until the peak, `scale (D warmup)^-0.5`.
        scale: Factor on the whole.

    Raises:
        ValueError: If `hidden_dim` or `warmup_steps` is not positive.

    Example:
    >>> from keras_transformers.training import InverseSquareRoot
    >>> schedule = InverseSquareRoot(hidden_dim=512, warmup_steps=4000)
    >>> [round(float(schedule(step)), 6) for step in (1999, 3999, 15999)]
    [0.000349, 0.000699, 0.000349]
    """

    def __init__(self, hidden_dim: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        super().__init__()
        if hidden_dim < 1 or warmup_steps < 1:
            raise ValueError(
                "InverseSquareRoot: `hidden_dim` and `warmup_steps` must be positive. "
                f"Received: hidden_dim={hidden_dim}, warmup_steps={warmup_steps}"
            )
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: Any) -> Scalar:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        rate = ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rate

    def get_config(self) -> dict[str, Any]:
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay to zero (Devlin et al. 2019, section A.2).

    `lr = peak min(step / warmup, (total + 1 - step) / (total + 1 - warmup))`, steps counted from 1:
    zero comes after the last step, so that no step is spent on a rate of zero.

    Args:
        peak: Highest rate, at the last step of the warm-up.
        warmup_steps: Steps until the peak; 0 starts there.
        total_steps: Steps of the whole training.

    Raises:
        ValueError: Unless `0 <= warmup_steps <= total_steps` and `1 <= total_steps`.

    Example:
    >>> from keras_transformers.training import WarmupLinear
    >>> schedule = WarmupLinear(peak=1.0, warmup_steps=2, total_steps=5)
    >>> [round(float(schedule(step)), 2) for step in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int) -> None:
        super().__init__()
        if not 0 <= warmup_steps <= total_steps or total_steps < 1:
            raise ValueError(
                "WarmupLinear: `warmup_steps` must be in [0, total_steps] and `total_steps` "
                f"positive. Received: warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step: Any) -> Scalar:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        warmup = max(self.warmup_steps, 1)
        left = (self.total_steps + 1 - step) / (self.total_steps + 1 - warmup)
        return self.peak * ops.maximum(ops.minimum(step / warmup, left), 0.0)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }


DECAYS = {
    "linear": lambda spent: 1 - spent,
    "cosine": lambda spent: (1 + math.cos(math.pi * spent)) / 2,
}


def unscaled_optimizer(model: keras.Model) -> Any:
    """Returns the optimizer of a model, without one around it that scales the loss."""
    optimizer: Any = model.optimizer
    return getattr(optimizer, "inner_optimizer", optimizer)


class StepCounter(keras.callbacks.Callback):
    """Counts steps of the optimizer, for callbacks that change something as training goes on.

    Keras calls callbacks once for each execution, of `steps_per_execution` batches; and an
    optimizer with `gradient_accumulation_steps` makes one step of several batches.
    """

    _model: keras.Model  # whose property `model` waits for JAX

    def __init__(self) -> None:
        super().__init__()
        self._step = 0  # batches, those of the execution that runs included
        self._first = 0  # of all batches of the optimizer

    def optimizer(self) -> Any:
        """The optimizer, without one around it that scales the loss."""
        return unscaled_optimizer(self._model)

    def batches_of_a_step(self) -> int:
        """Returns the number of batches that make one step of the optimizer."""
        return getattr(self.optimizer(), "gradient_accumulation_steps", None) or 1

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._step = 0
        self._first = self._all_batches()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # The last execution of an epoch has fewer batches, unless the data go on beyond the epoch.
        # Steps that the scaling of the loss leaves out count as well, but not for the optimizer.
        is_scaled = self.optimizer() is not self._model.optimizer
        if self._per_execution() > 1 and not is_scaled:
            self._step = self._all_batches() - self._first

    def get_state(self) -> dict[str, Any]:
        """Returns the counts, for `ExactResume`."""
        return {"step": self._step, "first": self._first}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the counts of another process."""
        self._step = state["step"] if "step" in state else state.get("_step", 0)  # of 0.2.0
        self._first = state.get("first", self._first)

    def begin_execution(self, batch: int) -> range:
        """Counts the batches of an execution, which begins with this one of the epoch.

        Returns:
            The numbers of the steps that they end, or of the one that they work for.
        """
        size = self._per_execution()
        of_epoch = (self.params or {}).get("steps")
        before = self._step
        self._step += min(size, of_epoch - batch) if of_epoch else size
        batches = self.batches_of_a_step()
        first = before // batches
        return range(first, max(self._step // batches, first + 1))

    def _per_execution(self) -> int:
        return getattr(self._model, "steps_per_execution", 1)

    def _all_batches(self) -> int:
        return int(keras.ops.convert_to_numpy(self.optimizer()._iterations))


class BudgetedDecay(StepCounter):
    """Warms the learning rate up, decays it to zero over a budget, and stops there.

    `lr = peak min(step / warmup, decay(spent))`, where `spent` is the used share of the budget and
    `decay` is `1 - spent` (Li et al. 2020, "Budgeted training", https://arxiv.org/abs/1905.04753)
    or `(1 + cos(pi spent)) / 2` (Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983).
    With `steps` alone the rates are the same on every machine; with `minutes` a quicker machine
    takes more steps, and the decay still ends in time. The clock starts when the first step, which
    compiles, has run; it goes on during validation and in other callbacks. Puts two numbers into
    each epoch's logs: `seconds` on that clock, and `epochs`, the trained ones with the share of the
    last that was trained.

    Steps are those of the optimizer: with `gradient_accumulation_steps=k`, `k` batches make one.
    With `steps_per_execution` above 1 the rate is set once for each execution, to the mean of the
    rates of its steps, and training ends with the execution that reaches the budget.

    Stand it first in the list of callbacks, so that those after it know which epoch is the last.
    Compile the model with a number as learning rate, not with a schedule.

    Args:
        learning_rate: The peak.
        warmup_steps: Steps until the peak; 0 starts there.
        steps: Budget of steps of the optimizer, or None.
        minutes: Budget of time, or None.
        decay: "linear" or "cosine".

    Raises:
        ValueError: If `learning_rate` or a budget is not positive, both budgets are None,
            `warmup_steps` is negative or `decay` unknown; when training begins, if the optimizer
            has a schedule, or several hosts train with a budget of `minutes`.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import BudgetedDecay
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((4, 2), "float32")
    >>> budget = BudgetedDecay(learning_rate=0.1, steps=2, minutes=5)
    >>> history = model.fit(x, x[:, :1], epochs=9, verbose=0, callbacks=[budget])
    >>> len(history.history["seconds"]), round(float(model.optimizer.learning_rate), 2)
    (2, 0.05)
    """

    def __init__(
        self,
        learning_rate: float,
        warmup_steps: int = 0,
        steps: int | None = None,
        minutes: float | None = None,
        decay: Literal["linear", "cosine"] = "linear",
    ) -> None:
        super().__init__()
        limits = [limit for limit in (steps, minutes) if limit is not None]
        if learning_rate <= 0 or warmup_steps < 0 or not limits or min(limits) <= 0:
            raise ValueError(
                "BudgetedDecay: `learning_rate` and `steps` or `minutes` must be positive, "
                "`warmup_steps` not negative. Received: "
                f"learning_rate={learning_rate}, warmup_steps={warmup_steps}, steps={steps}, "
                f"minutes={minutes}"
            )
        if decay not in DECAYS:
            raise ValueError(
                f"BudgetedDecay: `decay` must be one of {', '.join(DECAYS)}. Received: {decay!r}"
            )
        self.decay = decay
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.steps = steps
        self.minutes = minutes
        self._start = math.nan  # of the clock; until training begins
        self._second = math.nan  # when the second execution began: the first compiles
        self._ahead = 1  # batches of the execution that runs

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if isinstance(
            getattr(optimizer, "_learning_rate", None),
            keras.optimizers.schedules.LearningRateSchedule,
        ):
            raise ValueError(
                "BudgetedDecay: the optimizer's `learning_rate` must be a number, for this "
                f"callback to set. Received: {optimizer._learning_rate}"
            )
        if self.minutes is not None and _hosts() > 1:
            raise ValueError(
                "BudgetedDecay: `minutes` must be None with several hosts, whose clocks differ and "
                f"with them their learning rates. Received: minutes={self.minutes}"
            )
        super().on_train_begin(logs)
        self._start = self._second = time.monotonic()

    # At the beginning of a step: a callback at its end makes Keras wait for the step's result,
    # and the accelerator for Keras.
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if 0 < self._step == self._ahead:  # the second execution
            self._start = self._second = time.monotonic()
        before = self._step
        shares = [self._share(step) for step in self.begin_execution(batch)]
        self._ahead = self._step - before
        self._set(sum(shares) / len(shares))
        self._stop_if_over()  # Keras heeds it after this step

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if logs is not None:
            logs["seconds"] = self.seconds()
            logs["epochs"] = self.epochs() if (self.params or {}).get("steps") else epoch + 1.0
        self._stop_if_over()

    def get_state(self) -> dict[str, Any]:
        """Batches and seconds, for `ExactResume`: the clock of another process says nothing."""
        if math.isnan(self._start):
            return {}
        return {**super().get_state(), "seconds": self.seconds()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from the steps and seconds of another run."""
        super().set_state(state)
        self._start = time.monotonic() - state["seconds"]
        if self._step > self._ahead:  # the pace of the other process
            self._second = self._start

    def seconds(self) -> float:
        """Returns the seconds on the clock, those of earlier processes included."""
        return time.monotonic() - self._start

    def epochs(self) -> float:
        """Returns how many epochs were trained, the step that runs included."""
        return self._step / (self.params or {})["steps"]

    def minutes_left(self) -> float:
        """Of the budget that ends first; of one of steps, at the pace so far, the first left out.

        Training can end earlier, as by `EarlyStopping`. NaN as long as there is no pace.
        """
        now = time.monotonic()
        left = [self.minutes - (now - self._start) / 60] if self.minutes else []
        done = self._step - self._ahead  # batches
        if self.steps and done > 0:
            pace = (now - self._second) / done
            left.append((self.steps * self.batches_of_a_step() - done) * pace / 60)
        return max(min(left, default=math.nan), 0.0)

    def _share(self, step: int) -> float:
        """The share of the peak that a step of the optimizer, counted from 0, is made at."""
        decayed = DECAYS[self.decay](min(self._spent(step), 1.0))
        return min((step + 1) / max(self.warmup_steps, 1), decayed)

    def _spent(self, step: int) -> float:
        by_steps = step / self.steps if self.steps else 0.0
        minutes = (time.monotonic() - self._start) / 60
        return max(by_steps, minutes / self.minutes if self.minutes else 0.0)

    def _set(self, share: float) -> None:
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # else the step would not see the new rate
        self.model.optimizer.learning_rate = self.learning_rate * max(share, 0.0)

    def _stop_if_over(self) -> None:
        if self._spent(self._step // self.batches_of_a_step()) >= 1:
            self.model.stop_training = True


def _hosts() -> int:
    """How many processes train together."""
    return getattr(keras.distribution.distribution(), "num_processes", 1)


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
