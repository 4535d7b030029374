"""Times the training steps of a machine, and chooses options that suit a small number of steps."""

import dataclasses
import statistics
import time

import keras
import numpy as np

from keras_transformers.training.checkpoints import restored_state

from .command_line import option_name
from .options import changed, numbers_of
from .progress import SCORING, minutes_for

TIMED_SECONDS = 8.0  # without the first step, which compiles
LEAST_STEPS, MOST_STEPS = 4, 1000


@dataclasses.dataclass(frozen=True)
class FewSteps:
    """Options that score more than the defaults of a recipe if a run makes few steps.

    Args:
        steps: The options hold for runs of fewer steps of the default model.
        options: Dict of name -> value.
        reason: The reason for the options, as text behind a colon.
    """

    steps: int
    options: dict
    reason: str


def usable_rows(config):
    """Returns the rows of the recipe's table `FEW_STEPS` that can change this run, a list.

    The list is empty if the machine must not be measured: the run has no budget of minutes, the
    user has set `--no-measure`, or several hosts train together and could choose differently. It is
    also empty if the run is resumed, because `config.json` holds the choice.
    """
    run = config.run
    is_resumed = run.resume and numbers_of(run.output) is not None
    if not (run.measure and config.training.minutes) or run.smoke or run.hosts or is_resumed:
        return []
    if getattr(config.model, "pretrained", None) is not None:
        return []  # the table is for new weights
    return [row for row in config.FEW_STEPS if row.options.keys() - {*run.user_options}]


def documented_steps(config):
    """Returns the number of batches of the documented result, None for other data or models."""
    documented, base = getattr(config, "DOCUMENTED_STEPS", None), type(config)()
    if documented is None or config.run.smoke:
        return None
    return documented if (config.data, config.model) == (base.data, base.model) else None


def choose_options(config, rows, step_seconds):
    """Chooses the options of the first row that applies, and prints them.

    Args:
        config: The configuration of a recipe.
        rows: Rows of `FEW_STEPS`, in increasing order of `steps`.
        step_seconds: The seconds of a training step.

    Returns:
        The configuration with the options of the row, and the minutes that this machine needs for
        the default options; the configuration itself and None if no row applies.
    """
    minutes = config.training.minutes
    steps = int(60 * minutes * (1 - SCORING) / step_seconds)
    print(f"A step takes {step_seconds:.2g} s here: about {steps:,} fit into {minutes:g} minutes.")
    row = next((row for row in rows if steps < row.steps), None)
    if row is None:
        return config, None
    options = {name: x for name, x in row.options.items() if name not in config.run.user_options}
    text = " ".join(f"{option_name(name)} {value}" for name, value in options.items())
    print(f"Below {row.steps:,} steps this recipe takes {text}: {row.reason}.")
    documented = documented_steps(config)
    needed = minutes_for(documented or row.steps, minutes, steps)
    if documented:
        print(f"The documented result needs --minutes {needed} on this machine.", flush=True)
    return changed(config, **options), needed


def seconds_of_a_step(model, dataset):
    """Returns the median seconds of a training step, and restores the model.

    Args:
        model: A built and compiled model.
        dataset: A dataset of batches.
    """
    clock = _Clock()
    with restored_state(model):
        endless = {"steps_per_epoch": MOST_STEPS, "shuffle": False, "verbose": 0}
        model.fit(dataset.repeat(), **endless, callbacks=[clock])
    return clock.median()


class _Clock(keras.callbacks.Callback):
    """Records the end of each step, and stops training after `TIMED_SECONDS`."""

    def on_train_begin(self, logs=None):
        self._ends = []

    def on_train_batch_end(self, batch, logs=None):
        self._ends.append(time.monotonic())
        seconds, steps = self._ends[-1] - self._ends[0], len(self._ends) - 1
        self.model.stop_training = seconds >= TIMED_SECONDS and steps >= LEAST_STEPS

    def median(self):
        return statistics.median(np.diff(self._ends))
