"""The folder that every run leaves behind."""

import csv
import dataclasses
import json
import pathlib
import sys
import time

import keras
import tyro

from keras_transformers import pretrained
from keras_transformers.models import DETR
from keras_transformers.training import keep_freed_memory


class RunFolder:
    """Where a recipe writes: `config.json`, `history.csv`, `metrics.json`, model and figures.

    Args:
        path: The folder; made if it is missing.
        config: The recipe's dataclass, written at once.
    """

    def __init__(self, path, config):
        self._started = time.perf_counter()
        self.path = pathlib.Path(path)
        self.figures = self.path / "figures"
        self.figures.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", dataclasses.asdict(config))

    def __truediv__(self, name):
        return self.path / name

    def seconds(self):
        """Since the run began."""
        return time.perf_counter() - self._started

    def keep_best(self, monitor, mode, patience):
        """Callbacks that write `model.keras` and go back to it after `patience` worse epochs."""
        best = {"monitor": monitor, "mode": mode}
        return [
            keras.callbacks.ModelCheckpoint(self / "model.keras", save_best_only=True, **best),
            keras.callbacks.EarlyStopping(patience=patience, restore_best_weights=True, **best),
        ]

    def callbacks(self, tensorboard=False):
        """History as CSV, and TensorBoard's logs on request."""
        callbacks = [keras.callbacks.CSVLogger(str(self / "history.csv"))]
        if tensorboard:
            callbacks.append(keras.callbacks.TensorBoard(str(self / "tensorboard")))
        return callbacks

    def write_metrics(self, metrics):
        """Writes a flat dict of numbers, and prints it."""
        self.write_json("metrics.json", metrics)
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


def begin(config, smoke, tuning=None):
    """What every run begins with: sizes of a smoke run, memory, seeds, precision and the folder.

    Args:
        config: The recipe's dataclass, with `smoke`, `seed`, `precision` and `output`.
        smoke: Dict of field -> value under `--smoke`, where the field was not chosen.
        tuning: The same for a run that goes on from published weights.

    Returns:
        The configuration of the run and its `RunFolder`.
    """
    if config.smoke:
        config = _where_unchosen(config, smoke)
    if tuning and is_published(config.pretrained):
        config = _where_unchosen(config, tuning)
    keep_freed_memory()
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    return config, RunFolder(config.output, config)


def main(run, config, description):
    """Runs a recipe with the numbers of its command line; bad input ends in one sentence."""
    name = f"recipes.{pathlib.Path(sys.argv[0]).stem}"
    try:
        run(tyro.cli(config, prog=f"python -m {name}", description=description))
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"{name}: {error}") from None


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
    return keras.models.load_model(pathlib.Path(folder, "model.keras"))


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
