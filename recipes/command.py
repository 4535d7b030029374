"""What every recipe can be told on its command line, and how it begins."""

import contextlib
import dataclasses
import json
import pathlib
import sys
import typing

import keras
import tyro

from keras_transformers import pretrained, saving
from keras_transformers.layers import rematerialized_blocks
from keras_transformers.models import DETR
from keras_transformers.models.settings import SEVERAL
from keras_transformers.training import keep_freed_memory

from .bad_input import ending_in_a_sentence, program
from .devices import spread
from .folder import RunFolder, is_finished


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What every run can be told, whatever it trains."""

    output: str = "runs/run"
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    devices: str | None = None  # "data=8" or "data=4,model=2", with KERAS_BACKEND=jax
    hosts: bool = False  # a process on each host of a TPU pod or Slurm job; `--devices` of all
    accumulate: int | None = None  # batches whose mean gradient makes one step of the optimizer
    rematerialize: bool = False  # compute blocks twice and keep their inputs only
    seed: int = 1
    resume: bool = False  # go on with the run in --output, if it was begun, with its numbers
    checkpoint_minutes: float | None = 10.0  # from one checkpoint to the next
    checkpoint_steps: int | None = None  # the same in steps
    tensorboard: bool = False
    smoke: bool = False  # the same path in under a minute, on little data

    def __new__(cls, *args, **kwargs):
        """Remembers which numbers were given: the others may be another run's, or a preset's.

        `dataclasses.replace` hands over all; there, what is no default counts as given.
        """
        config = super().__new__(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        given = {*names[: len(args)], *kwargs}
        if given.issuperset(names):
            values = dict(zip(names, args, strict=False)) | kwargs
            given = {name for name in names if values[name] != getattr(cls, name)}
        return config.with_chosen(given)

    def with_chosen(self, names):
        """The configuration itself, in which the fields of these names count as given."""
        object.__setattr__(self, "chosen", frozenset(names))
        return self

    def making(self):
        """The scope in which models are made."""
        return rematerialized_blocks() if self.rematerialize else contextlib.nullcontext()

    def make_optimizer(self, kind, **options):
        """An optimizer with the numbers of the run."""
        numbers = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        return kind(gradient_accumulation_steps=self.accumulate, **(numbers | options))

    @property
    def jit_compile(self):
        """Whether XLA compiles: not where TensorFlow copies a model to several devices."""
        return self.devices is None or keras.backend.backend() == "jax"


@dataclasses.dataclass(frozen=True)
class LabelConfig:
    """How many labels there can be, of a run that trains a classifier."""

    problem_type: typing.Literal[
        "single_label_classification", "multi_label_classification"
    ] = "single_label_classification"
    label_separator: str = ","  # between several labels, in own files

    @property
    def several(self):
        """Whether there can be several labels, or none."""
        return self.problem_type == SEVERAL

    @property
    def separator(self):
        """What stands between labels; None where there is one each."""
        return self.label_separator if self.several else None


OF_THIS_PROCESS = ("output", "devices", "hosts", "resume", "checkpoint_minutes", "checkpoint_steps")


def begin(config, smoke, tuning=None):
    """What every run begins with: sizes of a smoke run, memory, seeds, precision and the folder.

    Args:
        config: The recipe's dataclass, with `smoke`, `seed`, `precision` and `output`.
        smoke: Dict of field -> value under `--smoke`, where the field was not given.
        tuning: The same for a run that goes on from published weights.

    Returns:
        The configuration of the run and its `RunFolder`.
    """
    begun = _numbers_of(config.output) if config.resume else None
    if begun is not None:
        config = _as_begun(config, begun)  # presets are in its numbers
    else:
        presets = dict(tuning) if tuning and is_published(config.pretrained) else {}
        presets |= smoke if config.smoke else {}
        unchosen = {name: presets[name] for name in presets.keys() - config.chosen}
        config = dataclasses.replace(config, **unchosen).with_chosen(config.chosen)
        config = _within_positions(config)
    keep_freed_memory()
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    folder = RunFolder(config.output, config.tensorboard)
    folder._config = config
    folder.write_json("config.json", dataclasses.asdict(config))
    if not config.resume:
        (folder / "metrics.json").unlink(missing_ok=True)  # of an earlier run
    return config, folder


def _within_positions(config):
    """The configuration with rows no longer than a published model has positions for.

    Raises:
        ValueError: If longer ones were asked for.
    """
    length = getattr(config, "row_length", None)
    if length is None or not is_published(getattr(config, "pretrained", None)):
        return config
    theirs = _numbers_of(config.pretrained)
    most = theirs.get("max_position_embeddings", theirs.get("n_positions", length))
    if length <= most or theirs.get("model_type") == "marian":  # whose positions have no end
        return config
    if "row_length" in config.chosen:
        raise ValueError(
            f"--row-length must be at most {most}, the positions of {config.pretrained}. "
            f"Received: {length}"
        )
    return dataclasses.replace(config, row_length=most).with_chosen(config.chosen)


def begin_anew(config, seed):
    """Before the next model of a run: frees the last one, which compiled programs would hold."""
    spread = keras.distribution.distribution()
    keras.backend.clear_session()  # which forgets precision and devices too
    keras.config.set_dtype_policy(config.precision)
    if spread is not None:
        keras.distribution.set_distribution(spread)
    keras.utils.set_random_seed(seed)


def _numbers_of(folder):
    """The configuration of the run in a folder, a dict; None if none was begun there."""
    path = pathlib.Path(folder, "config.json")
    return json.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else None


def _as_begun(config, begun):
    """The configuration with the numbers of a run that was begun.

    Raises:
        ValueError: If others were given.
    """
    changes = {}
    for field in dataclasses.fields(config):
        now = getattr(config, field.name)
        then = begun.get(field.name, now)
        then = tuple(then) if isinstance(then, list) else then
        if field.name in OF_THIS_PROCESS or then == now:
            continue
        if field.name in config.chosen:
            option = f"--{field.name.replace('_', '-')}"
            raise ValueError(
                f"--resume goes on with the run in {config.output}, begun with {option} {then}. "
                f"Received: {option} {now}"
            )
        changes[field.name] = then
    return dataclasses.replace(config, **changes).with_chosen(config.chosen)


def main(run, config, description):
    """Runs a recipe with the numbers of its command line; bad input ends in one sentence."""
    called = program()
    given = _options(config, sys.argv[1:])
    config = tyro.cli(config, prog=called, description=description)
    config.with_chosen(given)
    if config.resume and is_finished(config.output):
        print(f"The run in {config.output} is finished.")
        return
    with ending_in_a_sentence(called, FloatingPointError), spread(config.devices, config.hosts):
        run(config)


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


def _options(kind, arguments):
    """Names of the fields that a command line gives a value, be it the default."""
    given = {argument.split("=")[0].replace("_", "-") for argument in arguments}
    named = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(kind)}
    return {
        name for name, option in named.items() if given & {f"--{option}", f"--no-{option}"}
    }
