"""What a run can be told, where its numbers come from, and the command line of every recipe.

A recipe's configuration is a frozen dataclass of groups (`run`, `data`, `model`, `training`, ...),
each a frozen dataclass of numbers. No two have the same name: options, files of options and
`config.json` name a number without its group.
"""

import argparse
import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import pathlib
import shlex
import signal
import sys
import typing

import tyro

from keras_transformers import compile_cache, distribution

from .command_line import INTERRUPTED, errors_in_one_line, option_name, program
from .fine_tuning import is_published, positions
from .folder import has_checkpoint, is_finished
from .progress import lines_that_fit, shell_command


@dataclasses.dataclass(frozen=True)
class Run:
    """What every run can be told, whatever it trains."""

    output: str  # folder for all that the run leaves
    seed: int = 1  # of weights, batches and dropout
    smoke: bool = False  # the same path in about a minute, on little data
    resume: bool = False  # continue the run in --output, if it was begun, with its numbers
    overwrite: bool = False  # replace the run in --output; other files there stay
    config: str | None = None  # YAML or JSON file of options; those given here are stronger
    # of computing; weights stay in float32. Mixed ones are for accelerators
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    accumulate: int | None = None  # batches whose mean gradient makes one step of the optimizer
    lora: int | None = None  # with --pretrained: rank of adapters, trained alone but for new heads
    lora_targets: tuple[str, ...] = ("attention", "feed_forward")  # or patterns of layers' paths
    rematerialize: bool = False  # compute blocks twice and keep their inputs only
    devices: str | None = None  # "data=8" or "data=4,model=2", with KERAS_BACKEND=jax
    hosts: bool = False  # a process on each host of a TPU pod or Slurm job; `--devices` of all
    checkpoint_minutes: float | None = 2.0  # from one checkpoint to the next
    checkpoint_steps: int | None = None  # the same in steps
    track: typing.Literal["tensorboard", "wandb", "mlflow"] | None = None  # where curves are shown
    compile_cache: bool = True  # programs that XLA compiles are kept for the next run
    measure: bool = True  # time some steps first, and take other defaults if few steps fit
    # the names of the options that the user has set
    user_options: tyro.conf.Suppress[tuple[str, ...]] = dataclasses.field(default=(), compare=False)


# Adapters learn best at ten times the rate of full fine-tuning (Schulman et al. 2025, "LoRA without
# regret").
LORA_RATE = 10
HOST_VARIABLES = "KERAS_DISTRIBUTION_"  # the variables that Keras reads
TERMINATED = 128 + signal.SIGTERM  # the status of a run that SIGTERM has ended
OF_THIS_PROCESS = ("output", "resume", "overwrite", "config", "devices", "hosts")
OF_THIS_PROCESS += ("checkpoint_minutes", "checkpoint_steps", "compile_cache", "measure")
SCHEDULE_OPTIONS = ("minutes", "epochs")  # may change in a resumed run, whose weights then differ


def numbers(config):
    """Returns a dict of option -> value of all groups."""
    groups = vars(config).values()
    options = {name: value for group in groups for name, value in vars(group).items()}
    del options["user_options"]  # not an option
    return options


def identity(config):
    """What must not change when a run is resumed: its numbers, and the files that it reads."""
    of_run = {name: x for name, x in numbers(config).items() if name not in OF_THIS_PROCESS}
    options = {name: x for name, x in of_run.items() if name not in SCHEDULE_OPTIONS}
    return {"options": options, "data": fingerprints(of_run)}


def changed(config, /, **given):
    """The configuration with other numbers; TypeError if it has none of such a name."""
    groups, unknown = {}, set(given)
    for group_name, group in vars(config).items():
        own = {name: given[name] for name in vars(group) if name in given}
        groups[group_name] = dataclasses.replace(group, **own)
        unknown -= own.keys()
    if unknown:
        raise TypeError(f"{type(config).__name__} has no {', '.join(sorted(unknown))}")
    return dataclasses.replace(config, **groups)


def configure(kind, /, **given):
    """The configuration of a run, as the command line with these options makes it.

    Numbers come from the recipe; from its presets `PUBLISHED`, where `pretrained` names published
    weights, and `SMOKE`; from the file `config`; and from what is given. What comes later is
    stronger. With `resume` they are those with which the run in `output` was begun. With `lora` the
    learning rate of the recipe is `LORA_RATE` times as high.

    Args:
        kind: The dataclass of a recipe. Its presets are dicts of name -> number, or function from
            the folder of published weights to it.
        **given: Name -> number.

    Raises:
        ValueError: If a number is not what the run was begun with, or rows are longer than a
            published model has positions for; or the file is not what it should be.
    """
    base, default, options = _sources(kind, given)
    config = tyro.cli(kind, args=options, default=default, config=FLAT) if options else default
    names = (*config.run.user_options, *given)
    return _checked(changed(config, **given, user_options=names), base)


def main(run, kind, description):
    """Runs a recipe with the numbers of its command line; bad input ends in one sentence."""
    called, arguments = program(), gathered(sys.argv[1:], kind)
    with errors_in_one_line(called, FloatingPointError):
        base, default, options = _sources(kind, _switches(arguments))
        config = tyro.cli(
            kind,
            prog=called,
            description=description,
            args=[*options, *arguments],  # of an option that comes twice, the last is taken
            default=default,
            config=FLAT,
        )
        if config.run.resume and is_finished(config.run.output):
            print(f"The run in {config.run.output} is finished.")
            return
        names = (*config.run.user_options, *_option_names(arguments))
        config = _checked(changed(config, user_options=names), base)
        if config.run.compile_cache:
            compile_cache()
        devices = on_devices(config.run.devices, config.run.hosts)
        with lines_that_fit(), devices, _with_resume_advice(called, config):
            run(config)


@contextlib.contextmanager
def _with_resume_advice(called, config):
    """A scope in which a run that is stopped says with which command it goes on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        by_signal = isinstance(error, KeyboardInterrupt) or error.code == TERMINATED
        if by_signal and has_checkpoint(config.run.output):
            command = f"{called} --output {shlex.quote(config.run.output)} --resume"
            print(f"Stopped. Continue with:\n{shell_command(command)}", flush=True)
        elif by_signal:
            print("Stopped before the first checkpoint.", flush=True)
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(INTERRUPTED) from None
        raise


@contextlib.contextmanager
def on_devices(devices, hosts=False):
    """What runs inside takes these devices, and those of the other hosts of the run.

    Args:
        devices: Text as "data=8", or None.
        hosts: Whether there are other hosts, which JAX finds by itself on a TPU pod and under
            Slurm; there are also if the environment names them, see `distribution.initialize`.

    Raises:
        ValueError: If there are fewer devices, or several hosts and no `devices`.
    """
    if hosts or any(name.startswith(HOST_VARIABLES) for name in os.environ):
        if devices is None:
            raise ValueError("--devices must say how the hosts' devices share the work.")
        distribution.initialize()
    with distribution.distribute(devices):
        yield


FLAT = (tyro.conf.OmitArgPrefixes,)


def _switches(arguments):
    """What a command line says of the options that others hang on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("output", "config", "pretrained", "lora"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    for name in ("smoke", "resume"):
        parser.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS
        )
    try:
        found = vars(parser.parse_known_args(arguments)[0])
    except argparse.ArgumentError:  # which tyro explains
        return {}
    return {name: None if value == "None" else value for name, value in found.items()}


def _option_names(arguments):
    """Returns the names of the options on a command line, a list."""
    names = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    return [name.removeprefix("no-").replace("-", "_") for name in names]


def _sources(kind, given):
    """Where numbers come from before what is given.

    Returns:
        The configuration without the file of options; with the lists in it; and its other options,
        as a command line has them, which checks their kinds.
    """
    base = kind()
    found = _read(given["config"], base) if given.get("config") else {}
    given = {**numbers(base), **found, **given}
    begun = numbers_of(given["output"]) if given["resume"] else None
    if begun is not None:
        known = numbers(base).keys() - set(OF_THIS_PROCESS)
        begun = {name: begun[name] for name in begun if name in known}  # presets are in them
        base = changed(base, **{name: _hashable(value) for name, value in begun.items()})
    else:
        folder = given.get("pretrained")
        presets = {}
        if is_published(folder):
            presets |= _preset_numbers(getattr(kind, "PUBLISHED", {}), folder)
        if given["smoke"]:
            presets |= _preset_numbers(getattr(kind, "SMOKE", {}), folder)
        base = changed(base, **presets)
        most = positions(folder)
        if most and numbers(base).get("row_length", 0) > most:
            base = changed(base, row_length=most)
        if given["lora"] is not None:
            base = changed(base, learning_rate=LORA_RATE * base.training.learning_rate)
    lists = {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
    options = [_option(name, value) for name, value in found.items() if name not in lists]
    return base, changed(base, **lists, user_options=tuple(found)), options


def _preset_numbers(presets, folder):
    """Returns the numbers of presets, some of which are functions of the published folder."""
    return {name: x(folder) if callable(x) else x for name, x in presets.items()}


def _checked(config, base):
    """The configuration; ValueError if some number cannot be, see `configure`."""
    run = config.run
    if run.resume and numbers_of(run.output) is not None:
        for name, now in numbers(config).items():
            then = numbers(base)[name]
            option = option_name(name)
            if name in SCHEDULE_OPTIONS and now != then:
                print(
                    f"{option} was {then} when the run began and is {now}: the learning rates "
                    "change, and with them the weights.",
                    flush=True,
                )
            elif name not in OF_THIS_PROCESS and now != then:
                raise ValueError(
                    f"--resume continues the run in {run.output}, begun with {option} {then}. "
                    f"Received: {option} {now}"
                )
        return config
    found = numbers(config)
    _check_lora(found)
    most, length = positions(found.get("pretrained")), found.get("row_length", 0)
    if most and length > most:
        raise ValueError(
            f"--row-length must be at most {most}, the positions of {found['pretrained']}. "
            f"Received: {length}"
        )
    return config


def _check_lora(found):
    """ValueError if what `--lora` says of adapters cannot be."""
    rank, folder = found["lora"], found.get("pretrained")
    if rank is None:
        return
    if rank < 1:
        raise ValueError(f"--lora must be the rank of adapters, 1 or more. Received: {rank}")
    if folder is None:
        raise ValueError(
            "--lora needs weights that are worth keeping: --pretrained, of a recipe that has it."
        )
    if found.get("freeze"):
        raise ValueError("--freeze and --lora: blocks are kept as they are, or have adapters.")


def numbers_of(folder):
    """The numbers of the run in a folder, a dict; None if none was begun there."""
    path = pathlib.Path(folder, "config.json")
    return json.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else None


def _read(path, base):
    """The options in a file, a dict; groups in it are opened.

    Raises:
        FileNotFoundError, ValueError: If there is no such file, or something else is in it.
    """
    import yaml

    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"--config: there is no file {path}")
    try:
        found = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--config: {path} is neither YAML nor JSON: {reason}") from None
    if not isinstance(found, dict):
        raise ValueError(f"--config: {path} must hold options, as `epochs: 3`.")
    groups = {field.name for field in dataclasses.fields(base)}
    options = {}
    for key, value in found.items():
        grouped = key in groups and isinstance(value, dict)
        options |= value if grouped else {key: value}
    options = {str(name).replace("-", "_"): value for name, value in options.items()}
    for name in ("config", "resume"):  # of a command, not of a run
        options.pop(name, None)
    known = numbers(base)
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"--config: {path} has {name}, which is no option of this recipe.")
        several = name in several_of(type(base))
        fits = isinstance(value, list) and (several or _fits(value, known[name]))
        if isinstance(value, dict) or isinstance(value, list) and not fits:
            raise ValueError(f"--config: {path} has a wrong {name}: {value}")
    return options


def _fits(values, default):
    """Whether a list can stand for the default, a tuple of one kind."""
    if not isinstance(default, tuple):
        return False
    return all(isinstance(value, type(default[0]) if default else object) for value in values)


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value


def _option(name, value):
    """An option of a file as a command line has it."""
    option = option_name(name)
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option}={value}"


def gathered(arguments, kind):
    """A command line on which `--train a --train b` has become `--train a b`.

    Only of options that take one str or several: of others that come twice, the last is taken.

    Args:
        arguments: List of str.
        kind: The dataclass of a recipe.
    """
    for name in several_of(kind):
        option = option_name(name)
        parts = [[]]  # what stands before the first option, then each with its values
        for argument in arguments:
            parts += [[]] if argument.startswith("--") else []
            parts[-1].append(argument)
        own = [part for part in parts if part and part[0].partition("=")[0] == option]
        if len(own) > 1:
            values = [value for part in own for value in _values(part)]
            others = [part for part in parts if part not in own]
            arguments = [argument for part in others for argument in part] + [option, *values]
    return arguments


def _values(part):
    """The values of `["--train", "a", "b"]` or `["--train=a"]`."""
    _, equals, first = part[0].partition("=")
    return [first, *part[1:]] if equals else part[1:]


def several_of(kind):
    """Names of the options that take one str or several, a list."""
    groups = filter(dataclasses.is_dataclass, typing.get_type_hints(kind).values())
    hints = (hint for group in groups for hint in typing.get_type_hints(group).items())
    return [name for name, hint in hints if {str, tuple[str, ...]} <= {*typing.get_args(hint)}]


WHOLE = 2**28  # bytes of a file or folder that are hashed in full
ENDS = 2**16  # of larger ones, the bytes at the beginning and at the end of each file
MOST_OPENED = 100_000  # of folders with more files, only names and sizes are hashed


def fingerprints(options):
    """Fingerprints of all files and folders that options name.

    Args:
        options: Dict of name -> value. A value is a path, a pattern such as "shards/*.tsv", a
            direction with a path such as "en-de=a.tsv", or a tuple of these. Other values are
            passed over.

    Returns:
        Dict of "name value" -> dict of `bytes`, `files` and `sha256`.
    """
    found = {}
    for name, value in options.items():
        for text in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(text, str):
                continue
            files = _files(text) or _files(text.partition("=")[2])  # behind a direction
            if files:
                found[f"{name} {text}"] = _fingerprint(files)
    return found


def _files(text):
    """Pairs of the name to hash and the path of the files that a text names, a list."""
    if not text:
        return []
    try:
        path = pathlib.Path(text)
        if path.is_file():
            return [("", path)]
        if path.is_dir():
            files = (each for each in path.rglob("*") if each.is_file())
            named = [(each.relative_to(path).as_posix(), each) for each in files]
            return sorted(each for each in named if each[1].name != "lock")  # of a run
    except (OSError, ValueError):  # a long text, or one with a zero byte, is no path
        return []
    if not glob.has_magic(text):
        return []
    paths = map(pathlib.Path, sorted(glob.glob(text)))
    return [(str(path), path) for path in paths if path.is_file()]


def _fingerprint(files):
    digest = hashlib.sha256()
    sizes = [path.stat().st_size for _, path in files]
    whole = sum(sizes) <= WHOLE
    for (name, path), size in zip(files, sizes, strict=True):
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        if not whole and len(files) > MOST_OPENED:
            continue
        with open(path, "rb") as file:
            if whole:
                digest.update(hashlib.file_digest(file, "sha256").digest())
            else:
                digest.update(file.read(ENDS))
                file.seek(max(size - ENDS, 0))
                digest.update(file.read(ENDS))
    return {"bytes": sum(sizes), "files": len(files), "sha256": digest.hexdigest()}
