"""How quick a machine is, and what a recipe does where few steps fit into its minutes."""

import dataclasses
import statistics
import time

import keras
import numpy as np

from .options import changed, numbers_of
from .progress import SCORING, minutes_for

TIMED = 8.0  # seconds of steps, without the first one, which compiles
LEAST, MOST = 4, 1000  # steps that are timed


@dataclasses.dataclass(frozen=True)
class FewSteps:
    """Options that do better than the defaults of a recipe where a run makes few steps.

    Args:
        steps: A run that makes fewer steps of the default model takes these options.
        options: Dict of name -> value.
        reason: Why they are better, in words that follow a colon.
    """

    steps: int
    options: dict
    reason: str


def rows_for(config):
    """The rows of the recipe's table `FEW_STEPS` that may be taken, which is to be measured.

    There are none without a budget of minutes, with `--no-measure`, on several hosts (which would
    choose differently), in a run that goes on (whose `config.json` has the choice), and where the
    user has given all options of the table.
    """
    run, of = config.run, config.training
    goes_on = run.resume and numbers_of(run.output) is not None
    if not (run.measure and of.minutes) or run.smoke or run.hosts or goes_on:
        return []
    if getattr(config.model, "pretrained", None) is not None:
        return []  # the table is for weights that are new
    return [row for row in config.FEW_STEPS if row.options.keys() - {*run.given}]


def documented_steps(config):
    """Batches of the documented result of a recipe; None if the run has other data or model."""
    documented, base = getattr(config, "DOCUMENTED_STEPS", None), type(config)()
    if documented is None or config.run.smoke:
        return None
    return documented if (config.data, config.model) == (base.data, base.model) else None


def choose(config, rows, seconds):
    """The configuration with the options of the first row that applies; says what it takes.

    Args:
        config: Of the recipe.
        rows: Of `FEW_STEPS`, from the fewest steps to the most.
        seconds: That a step takes.
    """
    minutes = config.training.minutes
    steps = int(60 * minutes * (1 - SCORING) / seconds)
    print(f"A step takes {seconds:.2g} s here: about {steps:,} fit into {minutes:g} minutes.")
    row = next((row for row in rows if steps < row.steps), None)
    if row is None:
        return config
    options = {name: x for name, x in row.options.items() if name not in config.run.given}
    told = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    print(f"Below {row.steps:,} steps this recipe takes {told}: {row.reason}.")
    documented = documented_steps(config)
    if documented:
        needed = minutes_for(documented, minutes, steps)
        print(f"The documented result needs --minutes {needed} on this machine.", flush=True)
    return changed(config, **options)


def seconds_of_a_step(model, dataset):
    """The median seconds of a step of training, after which the model is as it was.

    Args:
        model: Built and compiled.
        dataset: Batches.
    """
    variables = [*model.variables, *model.optimizer.variables]
    before = [keras.ops.convert_to_numpy(variable) for variable in variables]
    clock = _Clock()
    endless = {"steps_per_epoch": MOST, "shuffle": False, "verbose": 0}
    model.fit(dataset.repeat(), **endless, callbacks=[clock])
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return clock.median()


class _Clock(keras.callbacks.Callback):
    """Takes the time of steps, and ends training when it has enough."""

    def on_train_begin(self, logs=None):
        self._ends = []

    def on_train_batch_end(self, batch, logs=None):
        self._ends.append(time.monotonic())
        seconds, steps = self._ends[-1] - self._ends[0], len(self._ends) - 1
        self.model.stop_training = seconds >= TIMED and steps >= LEAST

    def median(self):
        return statistics.median(np.diff(self._ends))
