"""Learning-rate schedules, and a learning rate that fits a budget."""

import math
import time
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.core.types import Scalar


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
