"""The folder that every run leaves behind, and the commands that can follow a run."""

import contextlib
import csv
import fnmatch
import functools
import glob
import json
import math
import pathlib
import shlex
import shutil
import sys
import tempfile
import textwrap
import time
import uuid

import filelock
import keras
import numpy as np

import keras_transformers
from keras_transformers import distribution
from keras_transformers.training import Tracker
from keras_transformers.training.resume import difference

from .command_line import COMMAND, option_name, program
from .progress import one_line, shell_command

RUN, LOCK = "run.json", "lock"
# What recipes write, in the order in which `--overwrite` removes it; `run.json` lists what other
# recipes write. A folder that holds one of the first five holds a run.
FILES = (
    RUN,
    "config.json",
    "checkpoints",
    "metrics.json",
    "history.csv",
    "model.keras",
    "saved_model",
    "published",
    "adapter",
    "adapter-*",
    "alignment.keras",
    "preprocessing.json",
    "tokenizer.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "target_vocab.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "source.spm",
    "target.spm",
    "sentencepiece.bpe.model",
    "last_part.json",
    "stream*.jsonl",
    "tracking.json",
    "classes.tsv",
    "predictions.tsv",
    "runs.tsv",
    "table.tsv",
    "test_texts.tsv",
    "translations.tsv",
    "samples.txt",
    "samples.tsv",
    "report.json",
    "shortlist.npz",
    "example.npy",
    "example.png",
    "figures/*.png",
    "figures",
    "tensorboard",
    "other_host",
    "unfinished-*",
)
MARKS = FILES[:5]
IMPROVEMENT = 0.01  # of the validation loss in the last epoch, from which on longer training pays
OF_ONE_RUN = ("--output", "--minutes", "--epochs", "--seed", "--resume", "--overwrite")


class RunFolder:
    """The folder of a run: `config.json`, `history.csv`, `metrics.json`, model and figures.

    Nothing in the folder changes before `begin`, so that a run that is refused leaves it as it was:
    what is written earlier, with `write_json` or `keep`, waits until then. Results come first:
    `write_metrics` as soon as they are known; then what is drawn and exported, each image in the
    scope of `drawing` and each export in that of `exporting`; then `end`.

    Args:
        path: The folder. `begin` makes it if it is missing.
        resume: Whether to go on with the run in it.
        overwrite: Whether `begin` removes the files of an earlier run.
        identity: Dict that JSON can hold, of what must not change when a run is resumed.

    Raises:
        ValueError: If another process is at work in the folder, or it holds a run and neither
            `resume` nor `overwrite` is set, or it holds a run of another identity.
    """

    def __init__(self, path, resume=False, overwrite=False, identity=None):
        self._started, self._failed = time.perf_counter(), []
        self._track = self._tracker = None  # what it is made of, and the `Tracker`
        # For `next_commands`: the recipe's module, and the options of a longer run.
        self.recipe, self.longer = "__main__", None
        # The minutes that the default options need on this machine, if others were chosen.
        self.minutes_of_defaults = None
        self._request = None  # the last request that the exported model has answered
        self._begun, self._waiting = False, {}  # name -> arguments of `keep`
        self._resume, self._overwrite = resume, overwrite
        self.path = self.shared = pathlib.Path(path)  # that of the first host: it has checkpoints
        self.set_identity(identity or {})
        self._run, self._own_files = uuid.uuid4().hex, []
        if resume and overwrite:
            raise ValueError("--resume and --overwrite: a run continues, or another replaces it.")
        if distribution.is_first_host():
            self._lock = lock_folder(self.path)
            self._check_contents()
        if resume:
            self._read_record()
        if not distribution.is_first_host():
            self.path = self.path / "other_host"
        self.figures = self.path / "figures"

    def set_identity(self, identity):
        """Sets what must not change when the run is resumed, a dict that JSON can hold."""
        self.identity = json.loads(json.dumps(identity, default=str))

    def __truediv__(self, name):
        is_listed = any(fnmatch.fnmatchcase(name, pattern) for pattern in FILES)
        if not is_listed and name not in self._own_files:  # of somebody's own recipe
            self._own_files.append(name)
            self._write_record()
        return self.path / name

    def _write_record(self):
        if self._begun:
            record = {"run": self._run, "identity": self.identity, "files": self._own_files}
            _write_json(record, self.path / RUN)

    def _check_contents(self):
        """Raises a ValueError if the run must not begin; prints if there is nothing to resume."""
        holds_run = any((self.path / name).exists() for name in MARKS)
        if holds_run and not (self._resume or self._overwrite):
            raise ValueError(
                f"{self.path} holds a run. Continue it with --resume, replace it with --overwrite, "
                f"or choose another folder, as --output {free_folder(self.path)}."
            )
        if not self._resume:
            return
        if not holds_run:
            print(f"There is no run in {self.path} to resume: a new one begins.", flush=True)
        elif not (self.path / "checkpoints").exists():
            print(f"The run in {self.path} has no checkpoint: it begins anew.", flush=True)

    def _read_record(self):
        """Reads `run.json`; ValueError if its run has another identity."""
        record = self.path / RUN
        if not record.is_file():  # of version 0.2.0, or there is no run
            return
        begun = json.loads(record.read_text(encoding="utf-8"))
        self._run, self._own_files = begun["run"], begun["files"]
        if not (begun["identity"] and self.identity):
            return
        differs = difference(begun["identity"], self.identity)
        if differs is not None:
            name, then, now = differs
            raise ValueError(
                f"--resume: the run in {self.path} began with another {name}. Then: {then}. "
                f"Now: {now}"
            )

    def begin(self, model=None):
        """Begins the run: from now on the folder belongs to it.

        Removes what an earlier run left, with `overwrite`, and writes what has waited. Further
        calls do nothing.

        Args:
            model: The first one that is trained, for which the disk must have room.

        Raises:
            ValueError: If a resumed run would write another file than the one that is there, or the
                disk is too full.
        """
        if self._begun:
            return
        if model is not None:
            self.check_room(model)
        for name, (write, compared) in list(self._waiting.items()):
            if compared and self._resume and (self / name).exists():
                self._check_same(name, write)
                del self._waiting[name]
        self._begun = True
        if self._overwrite and not self._resume:
            remove_run(self.path)
        self.figures.mkdir(parents=True, exist_ok=True)
        self._write_record()
        for name, (write, _) in self._waiting.items():
            write(self / name)
        self._waiting.clear()
        if self._track is not None:
            self._tracker = Tracker(*self._track, self._resume)

    def _check_same(self, name, write):
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder, name))
            now = pathlib.Path(folder, name).read_bytes()
        if now != (self / name).read_bytes():
            raise ValueError(
                f"--resume: {self / name} is not what this run would write. It was changed, or the "
                "data or the versions of packages were."
            )

    def keep(self, name, write, compared=True):
        """Writes a file: at once, or when the run begins.

        Args:
            name: Of the file.
            write: Function of its path.
            compared: Whether a resumed run must find there what it would write, and is refused
                otherwise.
        """
        if self._begun:
            write(self / name)
        else:
            self._waiting[name] = (write, compared)

    def check_room(self, model):
        """Raises a ValueError if the disk has no room for checkpoints and exports of a model."""
        values = sum(math.prod(variable.shape) for variable in model.weights)
        trained = sum(math.prod(variable.shape) for variable in model.trainable_weights)
        # Weights and two moments, in two checkpoints and one that is written; then `model.keras`
        # with its moments, and the weights in a SavedModel and a published folder.
        needed = 4 * (4 * (values + 2 * trained) + 2 * values)
        parents = [self.path, *self.path.absolute().parents]
        existing = next(path for path in parents if path.exists())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise ValueError(
                f"--output: the run needs about {needed / 1e6:,.0f} MB for checkpoints and "
                f"exports, and the disk of {self.path} has {free / 1e6:,.0f} MB free."
            )

    def checkpoint_identity(self):
        """Returns the identity that a checkpoint must have: the run, and its numbers and data."""
        return {"run": self._run, **self.identity}

    def seconds(self):
        """Returns the seconds of the run; of processes that were killed, up to their checkpoint."""
        return time.perf_counter() - self._started

    def count_from(self, seconds):
        """Sets the seconds of the run until now."""
        self._started = time.perf_counter() - seconds

    def keep_best(self, monitor, mode, patience):
        """Returns callbacks that write the best model, and restore it after `patience` scores."""
        best = {"monitor": monitor, "mode": mode}
        return [
            keras.callbacks.ModelCheckpoint(self / "model.keras", save_best_only=True, **best),
            _Patience(patience=patience, restore_best_weights=True, **best),
        ]

    def track(self, service, config):
        """Shows the run in an experiment tracker, see `Tracker`; None shows it nowhere.

        Raises:
            ValueError: If its package is not installed.
        """
        if service is not None and distribution.is_first_host():
            try:
                Tracker.check(service)
            except ImportError as error:
                raise ValueError(f"--track {error}") from None
            self._track = (service, self.path, config)

    def callbacks(self, name=None):
        """Returns callbacks for `history.csv`, if the run fits one model, and for the tracker."""
        callbacks = [_HistoryFile(self / "history.csv")] if name is None else []
        return callbacks + ([self._tracker.callback(name or "")] if self._tracker else [])

    def write_metrics(self, metrics):
        """Writes a flat dict, and prints its numbers: before anything is drawn or exported.

        `seconds`, of the run so far, comes to it, and is brought up to date by `end`.
        """
        self._metrics = metrics
        metrics["seconds"] = self.seconds()
        self.write_json("metrics.json", metrics)
        for name, value in metrics.items():
            if not isinstance(value, str):
                number = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
                print(f"  {name:32} {number}")

    @contextlib.contextmanager
    def drawing(self, name):
        """A scope that draws an image to the path it gives; an error costs a sentence only."""
        try:
            yield self.figures / f"{name}.png"
        except Exception as error:
            print(f"{name}.png could not be drawn: {_first_line(error)}", flush=True)

    @contextlib.contextmanager
    def exporting(self, name):
        """A scope that exports to the path it gives.

        An error costs a sentence; `end` then ends the run with an error.
        """
        try:
            yield self / name
        except Exception as error:
            print(f"{name} could not be exported: {_first_line(error)}", flush=True)
            self._failed.append(name)

    def end(self):
        """Ends the run, removes its checkpoints, and returns its metrics.

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
        """Writes uint8 `(height, width, channels)` as `example.png` or `.npy`; returns the path."""
        if pixels.shape[-1] in (1, 3):
            path = self / "example.png"
            keras.utils.save_img(path, pixels, scale=False)
        else:
            path = self / "example.npy"
            np.save(path, pixels)
        return str(path)

    def show_use(
        self, raw, expression="{}", summarise=lambda answer: answer, repeatable=True, **options
    ):
        """Asks the exported model, and prints the line of Python that does so, and its answer.

        Args:
            raw: The request, a str.
            expression: An expression of the answer, for which `{}` stands.
            summarise: A function of the answer that computes the expression.
            repeatable: True if the answer is the same each time.
            **options: Options of `predict`, each a str.
        """
        quoted = [json.dumps(str(text), ensure_ascii=False) for text in (self.path, raw)]
        arguments = (f"{name}={json.dumps(value)}" for name, value in options.items())
        load = f"keras_transformers.load({quoted[0]})"
        predict = expression.format(f"model.predict({', '.join([quoted[1], *arguments])})")
        try:
            answer = summarise(keras_transformers.load(self.path).predict(raw, **options))
        except Exception as error:  # which costs a sentence, not the run
            print(f"What was exported gives no answer: {error}")
            return
        print(f"In Python:\n  model = {load}\n  {predict}")
        print(one_line(repr(answer), f"  # {'' if repeatable else 'another each time: '}"))
        self._request = (raw, options)

    def show_next(self, still_learning=False):
        """Prints commands or calls that the user can run next, see `next_commands`.

        They include a longer run if the minutes were too few for the default options, or if the
        model was still learning.
        """
        longer, reason = None, ""
        if self.minutes_of_defaults:
            longer = {"minutes": self.minutes_of_defaults}
            reason = "Train the default model, which needs more minutes on this machine"
        elif still_learning and self.longer:
            longer, reason = self.longer, "Train longer: the validation loss still fell"
        if self.recipe == "__main__":
            for command, what in next_commands(self.path, self._request, longer, reason):
                print(f"{what}:\n{textwrap.indent(shell_command(command), '  ')}")
        else:  # a program or a notebook has called it
            for call, what in next_calls(self.path, self.recipe, longer, reason):
                print(f"{what}:\n  {call}")

    def write_table(self, name, header, rows, delimiter="\t"):
        """Writes rows as values separated by tabs."""
        with open(self / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(header)
            writer.writerows(rows)

    def write_json(self, name, content):
        """Writes a dict as JSON, whole: another host, or the run that goes on, may read it."""
        self.keep(name, functools.partial(_write_json, content), compared=False)


def _write_json(content, path):
    text = json.dumps(content, indent=2, default=str)
    unfinished = path.with_name(f"unfinished-{path.name}")
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(path)


def lock_folder(folder):
    """Locks a folder for this process, until it ends or calls `release()` on the returned lock.

    The lock is the system's own, on every system, so that a process that is killed leaves none.

    Raises:
        ValueError: If another process has it.
        OSError: If nothing can be written there.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK, is_singleton=True)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(
            f"Another process is at work in {folder}. Wait until it has ended, or choose another "
            "--output."
        ) from None
    return lock


def free_folder(path):
    """Returns a folder beside a path that does not exist, with the first number that is free."""
    numbers = (path.with_name(f"{path.name}_{number}") for number in range(2, 10**6))
    return next(free for free in numbers if not free.exists())


def remove_run(path):
    """Removes the files of a run from a folder, and nothing else."""
    record = pathlib.Path(path, RUN)
    own_files = json.loads(record.read_text(encoding="utf-8"))["files"] if record.is_file() else []
    for pattern in (*map(glob.escape, own_files), *FILES):
        for file in pathlib.Path(path).glob(pattern):
            if not file.is_dir() or file.is_symlink():
                file.unlink()
            elif pattern != "figures":
                shutil.rmtree(file)
            elif not any(file.iterdir()):
                file.rmdir()


def _first_line(error):
    """Returns the text of an error in one line."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    # What fails in a graph begins with the way that led there.
    return lines[-1 if lines[0].startswith("in user code") else 0].strip()


def is_finished(path):
    """Returns whether the run in a folder has ended, and not only written its metrics."""
    path = pathlib.Path(path)
    return (path / "metrics.json").is_file() and not (path / "checkpoints").exists()


def has_checkpoint(path):
    """Returns whether the folder of a run has a checkpoint."""
    return any(pathlib.Path(path).glob("checkpoints/*/step-*"))


class _HistoryFile(keras.callbacks.Callback):
    """Writes `history.csv` anew after each epoch: what a killed run added to it is not doubled."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        numbers = {name: float(logs[name]) for name in sorted(logs)}
        row = {name: "" if x == -math.inf else x for name, x in numbers.items()}
        self.rows.append({"epoch": epoch, **row})
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


# The next commands.


def still_learning(history):
    """Returns whether the validation loss of a history fell by more than 1 % in the last epoch."""
    names = ("val_cross_entropy", "val_loss")
    values = next((history[name] for name in names if name in (history or {})), [])
    if len(values) < 2 or values[-1] > min(values):
        return False
    return values[-2] - values[-1] > IMPROVEMENT * abs(values[-2])


def next_commands(folder, request=None, longer=None, reason=""):
    """Returns commands that use a finished run, a list of `(command, its effect)`.

    Args:
        folder: The folder of the run.
        request: The last request that its model has answered: a text or the path of an image, and a
            dict of options of `predict`; None without such a request.
        longer: Dict of the options of a longer run, if that is advised.
        reason: The reason for a longer run, as a sentence without its stop.
    """
    called, folder = program(), pathlib.Path(folder)
    start, _, name = called.rpartition(" " if called.startswith(COMMAND) else ".")
    between = " " if called.startswith(COMMAND) else "."

    def line(recipe, *words):
        return " ".join([f"{start}{between}{recipe}", *(shlex.quote(str(word)) for word in words)])

    steps = []
    if request is not None:
        raw, options = request
        words_of_options = [word for key, x in options.items() for word in (option_name(key), x)]
        steps.append(
            (line("predict", folder, raw, *words_of_options), "Ask it on the command line")
        )
        steps.append((line("demo", folder), "Try it in a page in the browser"))
    if longer is not None:
        again = folder.with_name(f"{folder.name}_longer")
        words_of_options = [word for key, x in longer.items() for word in (f"--{key}", f"{x:g}")]
        steps.append((line(name, *_own_options(), *words_of_options, "--output", again), reason))
    another_run = _another(folder)
    if another_run is not None:
        steps.append((line("compare", another_run, folder), "Compare it with another run"))
    elif longer is None:
        again = folder.with_name(f"{folder.name}_seed_2")
        what = "See how much the score depends on the random seed"
        steps.append((line(name, *_own_options(), "--seed", 2, "--output", again), what))
    return steps


def next_calls(folder, recipe, longer=None, reason=""):
    """Returns lines of Python instead of commands, for a run that a program has called.

    Args:
        folder, longer, reason: Arguments of `next_commands`.
        recipe: The name of the recipe's module.
    """
    folder, short = pathlib.Path(folder), recipe.rpartition(".")[2]
    if longer is not None:
        options, ending, what = longer, "longer", reason
    else:
        options, ending = {"seed": 2}, "seed_2"
        what = "See how much the score depends on the random seed"
    arguments = ", ".join(f"{key}={value:g}" for key, value in options.items())
    again = str(folder.with_name(f"{folder.name}_{ending}"))
    call = f"{short}.run(configure({short}.Config, {arguments}, output={again!r}))"
    return [(call, f"{what} (add your other options)")]


def _own_options():
    """Returns the options of this command line without those that differ from run to run."""
    options, words = [], sys.argv[1:]
    while words:
        word = words.pop(0)
        if word.partition("=")[0] not in OF_ONE_RUN:
            options.append(word)
        elif "=" not in word and words and not words[0].startswith("--"):
            words.pop(0)
    return options


def _another(folder):
    """Returns the newest other run of the same recipe beside this one; None without such a run."""
    mine = _names(folder)
    runs = [path.parent for path in folder.parent.glob("*/metrics.json")]
    runs = [run for run in runs if run.name != folder.name and _names(run) == mine]
    return max(runs, key=lambda run: (run / "metrics.json").stat().st_mtime, default=None)


def _names(folder):
    """Returns the names of a run's options, which tell its recipe."""
    path = folder / "config.json"
    return set(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
