"""The folder that every run leaves behind."""

import contextlib
import csv
import json
import math
import pathlib
import shutil
import time

import keras
import numpy as np

import keras_transformers
from keras_transformers import distribution
from keras_transformers.training import Tracker

from . import next_steps


class RunFolder:
    """Where a recipe writes: `config.json`, `history.csv`, `metrics.json`, model and figures.

    Results come first: `write_metrics` as soon as they are known; then what is drawn and exported,
    each image in the scope of `drawing` and each export in that of `exporting`; then `end`.

    Args:
        path: The folder; made if it is missing.
    """

    def __init__(self, path):
        self._started, self._failed, self._tracker = time.perf_counter(), [], None
        self._asked = None  # what was exported, if it has answered
        self.path = self.shared = pathlib.Path(path)  # that of the first host: it has checkpoints
        if not distribution.is_first_host():
            self.path = self.path / "other_host"
        self.figures = self.path / "figures"
        self.figures.mkdir(parents=True, exist_ok=True)

    def __truediv__(self, name):
        return self.path / name

    def seconds(self):
        """Since the run began, those of processes that were killed up to their last checkpoint."""
        return time.perf_counter() - self._started

    def count_from(self, seconds):
        """Takes so many as spent."""
        self._started = time.perf_counter() - seconds

    def keep_best(self, monitor, mode, patience):
        """Callbacks that write `model.keras` and go back to it after `patience` worse scores."""
        best = {"monitor": monitor, "mode": mode}
        return [
            keras.callbacks.ModelCheckpoint(self / "model.keras", save_best_only=True, **best),
            _Patience(patience=patience, restore_best_weights=True, **best),
        ]

    def track(self, service, config, resume):
        """Shows the run in an experiment tracker, see `Tracker`; None shows it nowhere.

        Raises:
            ValueError: If its package is not installed.
        """
        if service is not None and distribution.is_first_host():
            try:
                self._tracker = Tracker(service, self.path, config, resume)
            except ImportError as error:
                raise ValueError(f"--track {error}") from None

    def callbacks(self, name=None):
        """History as CSV, but for one of several models, `name`; and what shows it in a tracker."""
        callbacks = [_HistoryFile(self / "history.csv")] if name is None else []
        return callbacks + ([self._tracker.callback(name or "")] if self._tracker else [])

    def write_metrics(self, metrics):
        """Writes a flat dict of numbers, and prints it: before anything is drawn or exported.

        `seconds`, of the run so far, comes to it, and is brought up to date by `end`.
        """
        self._metrics = metrics
        metrics["seconds"] = self.seconds()
        self.write_json("metrics.json", metrics)
        for name, value in metrics.items():
            number = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            print(f"  {name:32} {number}")

    @contextlib.contextmanager
    def drawing(self, name):
        """A scope in which an image is drawn, which gives its path; to fail costs a sentence."""
        try:
            yield self.figures / f"{name}.png"
        except Exception as error:
            print(f"{name}.png could not be drawn: {_first_line(error)}", flush=True)

    @contextlib.contextmanager
    def exporting(self, name):
        """A scope in which something is exported, which gives its path.

        To fail costs a sentence and what comes of it; `end` then ends the run with an error.
        """
        try:
            yield self / name
        except Exception as error:
            print(f"{name} could not be exported: {_first_line(error)}", flush=True)
            self._failed.append(name)

    def end(self):
        """The run is over: no more checkpoints. Gives its metrics.

        Raises:
            ValueError: If an export failed. The checkpoints then stay, for `--resume` to try again.
        """
        self._metrics["seconds"] = self.seconds()
        self.write_json("metrics.json", self._metrics)
        if self._failed:
            raise ValueError(
                f"{' and '.join(self._failed)} could not be exported; all else is in {self.path}"
            )
        shutil.rmtree(self / "checkpoints", ignore_errors=True)
        if self._tracker:
            self._tracker.finish(self._metrics)
        print(f"Everything is in {self.path}")
        return self._metrics

    def write_example(self, pixels):
        """Writes uint8 `(height, width, channels)` as `example.png`, or `.npy`; gives its path."""
        if pixels.shape[-1] in (1, 3):
            path = self / "example.png"
            keras.utils.save_img(path, pixels, scale=False)
        else:
            path = self / "example.npy"
            np.save(path, pixels)
        return str(path)

    def show_use(self, raw, shown="{}", of=lambda answer: answer, repeatable=True, **options):
        """Prints the line that uses what was exported, and its answer, for which it is asked.

        Args:
            raw: What to ask, a str.
            shown: Expression of the answer, which stands for `{}`.
            of: Function of the answer that gives the same.
            repeatable: Whether the answer is the same each time.
            **options: Of `predict`, each a str.
        """
        quoted = [json.dumps(str(each), ensure_ascii=False) for each in (self.path, raw)]
        told = (f"{name}={json.dumps(value)}" for name, value in options.items())
        quoted = quoted[0], ", ".join([quoted[1], *told])
        line = shown.format("keras_transformers.load({}).predict({})".format(*quoted))
        try:
            answer = of(keras_transformers.load(self.path).predict(raw, **options))
        except Exception as error:  # which costs a sentence, not the run
            print(f"What was exported gives no answer: {error}")
            return
        print(f"{line}  # {'' if repeatable else 'another each time: '}{answer!r}")
        self._asked = (raw, options)

    def show_next(self):
        """Prints the commands with which one goes on: see `next_steps`."""
        for command, what in next_steps.commands(self.path, self._asked):
            print(f"{what}:\n  {command}")

    def write_table(self, name, header, rows, delimiter="\t"):
        """Writes rows as values separated by tabs."""
        with open(self / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(header)
            writer.writerows(rows)

    def write_json(self, name, content):
        """Writes a dict as JSON, at once: another host, or the run that goes on, may read it."""
        text = json.dumps(content, indent=2, default=str)
        unfinished = self / f"unfinished-{name}"
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(self / name)


def _first_line(error):
    """What an error says, in a line."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    # What fails in a graph begins with the way that led there.
    return lines[-1 if lines[0].startswith("in user code") else 0].strip()


def is_finished(path):
    """Whether the run in a folder has ended, and not only got as far as its metrics."""
    path = pathlib.Path(path)
    return (path / "metrics.json").is_file() and not (path / "checkpoints").exists()


class _HistoryFile(keras.callbacks.Callback):
    """Writes `history.csv` anew after each epoch: what a killed run added to it is not doubled."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        numbers = {name: float(logs[name]) for name in sorted(logs)}
        taken = {name: "" if x == -math.inf else x for name, x in numbers.items()}
        self.rows.append({"epoch": epoch, **taken})
        with open(self._path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.rows)


class _Patience(keras.callbacks.EarlyStopping):
    """`EarlyStopping` that counts scores, not epochs without one."""

    def on_epoch_end(self, epoch, logs=None):
        if (logs or {}).get(self.monitor) != -math.inf:
            super().on_epoch_end(epoch, logs)


class Clock(keras.callbacks.Callback):
    """Keeps the seconds of a run in its checkpoints."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def get_state(self):
        return {"seconds": self._folder.seconds()}

    def set_state(self, state):
        self._folder.count_from(state["seconds"])
