"""The folder that every run leaves behind."""

import csv
import dataclasses
import json
import pathlib
import shutil
import sys
import time
import typing

import keras
import tyro

from keras_transformers import pretrained, saving, streams
from keras_transformers.models import DETR
from keras_transformers.training import ExactResume, keep_freed_memory


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What every run can be told, whatever it trains."""

    output: str = "runs/run"
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    seed: int = 1
    resume: bool = False  # go on with the run in --output, if it was begun, with its numbers
    checkpoint_minutes: float | None = 10.0  # from one checkpoint to the next
    checkpoint_steps: int | None = None  # the same in steps
    tensorboard: bool = False
    smoke: bool = False  # the same path in under a minute, on little data


OF_THIS_PROCESS = ("output", "resume", "checkpoint_minutes", "checkpoint_steps")


class RunFolder:
    """Where a recipe writes: `config.json`, `history.csv`, `metrics.json`, model and figures.

    Args:
        path: The folder; made if it is missing.
        config: The recipe's dataclass, written at once.
    """

    def __init__(self, path, config):
        self._started = time.perf_counter()
        self._config = config
        self.path = pathlib.Path(path)
        self.figures = self.path / "figures"
        self.figures.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", dataclasses.asdict(config))

    def __truediv__(self, name):
        return self.path / name

    def seconds(self):
        """Since the run began, those of processes that were killed up to their last checkpoint."""
        return time.perf_counter() - self._started

    def count_from(self, seconds):
        """Takes so many as spent."""
        self._started = time.perf_counter() - seconds

    def fit(self, model, make, steps, epochs, callbacks, name="training", watch=None, **options):
        """`model.fit` that `--resume` goes on with where it was killed.

        Args:
            model: Compiled.
            make: Function from the number of an epoch to its dataset, see `streams.epochs`.
            steps, epochs: Batches of an epoch, and epochs at most.
            callbacks: List of them.
            name: Of the checkpoints' folder, where one run fits several models.
            watch: Optional function that wraps the whole dataset.
            **options: Of `model.fit`.

        Returns:
            The history, a dict.
        """
        config = self._config
        resume = ExactResume(
            self / "checkpoints" / name,
            config.checkpoint_minutes,
            config.checkpoint_steps,
            resume=config.resume,
        )
        batches = streams.epochs(make, steps, resume.start)
        return model.fit(
            watch(batches) if watch else batches,
            shuffle=False,  # the pipeline does that
            steps_per_epoch=steps,
            epochs=epochs,
            initial_epoch=resume.start[0],
            callbacks=resume.after([*callbacks, _Clock(self)]),
            **options,
        ).history

    def keep_best(self, monitor, mode, patience):
        """Callbacks that write `model.keras` and go back to it after `patience` worse epochs."""
        best = {"monitor": monitor, "mode": mode}
        return [
            keras.callbacks.ModelCheckpoint(self / "model.keras", save_best_only=True, **best),
            keras.callbacks.EarlyStopping(patience=patience, restore_best_weights=True, **best),
        ]

    def callbacks(self, tensorboard=False):
        """History as CSV, and TensorBoard's logs on request."""
        callbacks = [_HistoryFile(self / "history.csv")]
        if tensorboard:
            callbacks.append(keras.callbacks.TensorBoard(str(self / "tensorboard")))
        return callbacks

    def write_metrics(self, metrics):
        """Writes a flat dict of numbers, and prints it. The run is over: no more checkpoints."""
        self.write_json("metrics.json", metrics)
        shutil.rmtree(self / "checkpoints", ignore_errors=True)
        for name, value in metrics.items():
            number = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            print(f"  {name:32} {number}")
        print(f"Everything is in {self.path}")

    def write_table(self, name, header, rows, delimiter="\t"):
        """Writes rows as values separated by tabs."""
        with open(self / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(header)
            writer.writerows(rows)

    def write_json(self, name, content):
        """Writes a dict as JSON."""
        text = json.dumps(content, indent=2, default=str)
        (self / name).write_text(text + "\n", encoding="utf-8")


class _HistoryFile(keras.callbacks.Callback):
    """Writes `history.csv` anew after each epoch: what a killed run added to it is not doubled."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append({"epoch": epoch, **{name: float(logs[name]) for name in sorted(logs)}})
        with open(self._path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.rows)


class _Clock(keras.callbacks.Callback):
    """Keeps the seconds of a run in its checkpoints."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def get_state(self):
        return {"seconds": self._folder.seconds()}

    def set_state(self, state):
        self._folder.count_from(state["seconds"])


def begin(config, smoke, tuning=None):
    """What every run begins with: sizes of a smoke run, memory, seeds, precision and the folder.

    Args:
        config: The recipe's dataclass, with `smoke`, `seed`, `precision` and `output`.
        smoke: Dict of field -> value under `--smoke`, where the field was not chosen.
        tuning: The same for a run that goes on from published weights.

    Returns:
        The configuration of the run and its `RunFolder`.
    """
    if config.resume:
        config = _as_begun(config)
    if config.smoke:
        config = _where_unchosen(config, smoke)
    if tuning and is_published(config.pretrained):
        config = _where_unchosen(config, tuning)
    keep_freed_memory()
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    folder = RunFolder(config.output, config)
    (folder / "metrics.json").unlink(missing_ok=True)  # of an earlier run
    return config, folder


def _as_begun(config):
    """The numbers of the run in the output folder, if one was begun.

    Raises:
        ValueError: If others were chosen.
    """
    path = pathlib.Path(config.output, "config.json")
    if not path.is_file():
        return config
    begun = json.loads(path.read_text(encoding="utf-8"))
    changes = {}
    for field in dataclasses.fields(config):
        now = getattr(config, field.name)
        then = begun.get(field.name, now)
        then = tuple(then) if isinstance(then, list) else then
        if field.name in OF_THIS_PROCESS or then == now:
            continue
        if now != field.default:
            option = f"--{field.name.replace('_', '-')}"
            raise ValueError(
                f"--resume goes on with the run in {config.output}, begun with {option} {then}. "
                f"Received: {option} {now}"
            )
        changes[field.name] = then
    return dataclasses.replace(config, **changes)


def main(run, config, description):
    """Runs a recipe with the numbers of its command line; bad input ends in one sentence."""
    name = f"recipes.{pathlib.Path(sys.argv[0]).stem}"
    config = tyro.cli(config, prog=f"python -m {name}", description=description)
    if config.resume and pathlib.Path(config.output, "metrics.json").is_file():
        print(f"The run in {config.output} is finished.")
        return
    try:
        run(config)
    except (ValueError, FileNotFoundError, FloatingPointError) as error:
        raise SystemExit(f"{name}: {error}") from None
    except OSError as error:
        raise SystemExit(f"{name}: {error.strerror or error}") from None


def is_published(folder):
    """Whether `--pretrained` names a folder of published weights, and not one of a run.

    Raises:
        FileNotFoundError: If it is neither.
    """
    if folder is None or pathlib.Path(folder, "model.keras").is_file():
        return False
    if not pathlib.Path(folder, "config.json").is_file():
        raise FileNotFoundError(
            f"--pretrained: {folder} is neither the folder of a run, with model.keras, nor one of "
            "published weights, with config.json and model.safetensors."
        )
    return True


def start_from(folder):
    """The model that `--pretrained` names: of another run, or with published weights."""
    if is_published(folder):
        return pretrained.load(folder)
    return saving.load_model(pathlib.Path(folder, "model.keras"))


def publish(folder, model, tokenizer=None, classes=None, preprocessing=None):
    """Writes a model that started from published weights as such, into `published`."""
    path = pretrained.save(model, folder / "published", classes)
    if tokenizer is not None:
        pretrained.save_tokenizer(tokenizer, path)
    if preprocessing is not None:
        pretrained.save_preprocessing(preprocessing, path, isinstance(model, DETR))


def _where_unchosen(config, changes):
    unchosen = {
        name: value
        for name, value in changes.items()
        if getattr(config, name) == getattr(type(config), name)
    }
    return dataclasses.replace(config, **unchosen)
