"""The options of a run: their sources, their checks, and the command line of every recipe.

A recipe's configuration is a frozen dataclass of groups (`run`, `data`, `model`, `training`, ...),
each a frozen dataclass of numbers. No two numbers have the same name: options, files of options and
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

from . import fine_tuning
from .command_line import INTERRUPTED, errors_in_one_line, option_name, program
from .folder import has_checkpoint, is_finished
from .progress import lines_that_fit, shell_command

# Adapters learn best at ten times the rate of full fine-tuning (Schulman et al. 2025, "LoRA without
# regret").
LORA_RATE = 10
HOST_VARIABLES = "KERAS_DISTRIBUTION_"  # the variables that Keras reads
TERMINATED = 128 + signal.SIGTERM  # the status of a run that SIGTERM has ended
OF_THIS_PROCESS = ("output", "resume", "overwrite", "config", "devices", "hosts")
OF_THIS_PROCESS += ("checkpoint_minutes", "checkpoint_steps", "compile_cache", "measure")
SCHEDULE_OPTIONS = ("minutes", "epochs")  # may change in a resumed run, whose weights then differ
FLAT = (tyro.conf.OmitArgPrefixes,)
WHOLE = 2**28  # bytes of a file or folder that are hashed in full
ENDS = 2**16  # of larger ones, the bytes at the beginning and at the end of each file
MOST_OPENED = 100_000  # of folders with more files, only names and sizes are hashed


@dataclasses.dataclass(frozen=True)
class Run:
    """The options of every run, whatever it trains."""

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


# Numbers of a configuration.


def numbers(config):
    """Returns a dict of option -> value of all groups."""
    groups = vars(config).values()
    options = {name: value for group in groups for name, value in vars(group).items()}
    del options["user_options"]  # not an option
    return options


def numbers_of(folder):
    """Returns the numbers of the run in a folder, a dict; None if none was begun there."""
    path = pathlib.Path(folder, "config.json")
    return json.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else None


def changed(config, /, **new_numbers):
    """Returns the configuration with other numbers; TypeError if a name is unknown."""
    groups, unknown = {}, set(new_numbers)
    for group_name, group in vars(config).items():
        values = {name: new_numbers[name] for name in vars(group) if name in new_numbers}
        groups[group_name] = dataclasses.replace(group, **values)
        unknown -= values.keys()
    if unknown:
        raise TypeError(f"{type(config).__name__} has no {', '.join(sorted(unknown))}")
    return dataclasses.replace(config, **groups)


def identity(config):
    """Returns the numbers and fingerprints of files that must stay when a run is resumed."""
    of_run = {name: x for name, x in numbers(config).items() if name not in OF_THIS_PROCESS}
    options = {name: x for name, x in of_run.items() if name not in SCHEDULE_OPTIONS}
    return {"options": options, "data": fingerprints(of_run)}


def fingerprints(options):
    """Returns fingerprints of all files and folders that options name.

    Args:
        options: Dict of name -> value. A value is a path, a pattern such as "shards/*.tsv", a
            direction with a path such as "en-de=a.tsv", or a tuple of these. Other values are
            passed over.

    Returns:
        Dict of "name value" -> dict of `bytes`, `files` and `sha256`.
    """
    prints = {}
    for name, value in options.items():
        for text in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(text, str):
                continue
            files = _find_files(text) or _find_files(text.partition("=")[2])  # behind a direction
            if files:
                prints[f"{name} {text}"] = _fingerprint(files)
    return prints


def _find_files(text):
    """Returns pairs of the name to hash and the path of the files that a text names, a list."""
    if not text:
        return []
    try:
        path = pathlib.Path(text)
        if path.is_file():
            return [("", path)]
        if path.is_dir():
            files = (file for file in path.rglob("*") if file.is_file())
            files = (file for file in files if file.name != "lock")  # of a run
            return sorted((file.relative_to(path).as_posix(), file) for file in files)
    except (OSError, ValueError):  # a long text, or one with a zero byte, is no path
        return []
    if not glob.has_magic(text):
        return []
    paths = map(pathlib.Path, sorted(glob.glob(text)))
    return [(str(path), path) for path in paths if path.is_file()]


def _fingerprint(files):
    """Returns the fingerprint of pairs of a name and a path."""
    digest = hashlib.sha256()
    sizes = [path.stat().st_size for _, path in files]
    is_whole = sum(sizes) <= WHOLE
    for (name, path), size in zip(files, sizes, strict=True):
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        if not is_whole and len(files) > MOST_OPENED:
            continue
        with open(path, "rb") as file:
            if is_whole:
                digest.update(hashlib.file_digest(file, "sha256").digest())
            else:
                digest.update(file.read(ENDS))
                file.seek(max(size - ENDS, 0))
                digest.update(file.read(ENDS))
    return {"bytes": sum(sizes), "files": len(files), "sha256": digest.hexdigest()}


# Sources of numbers.


def configure(kind, /, **new_numbers):
    """Returns the configuration that the command line with these options makes.

    Numbers come from five sources, of which a later one is stronger: the recipe; its presets
    `PUBLISHED` if `pretrained` names published weights; its presets `SMOKE`; the file `config`; and
    the arguments. With `resume` they come from the run in `output` instead of the first three. With
    `lora` the learning rate of the recipe is `LORA_RATE` times as high.

    Args:
        kind: The dataclass of a recipe. Its presets are dicts of name -> number, or name ->
            function from the folder of published weights to the number.
        **new_numbers: Name -> number.

    Raises:
        ValueError: If a number differs from that of the resumed run, rows are longer than the
            positions of a published model, or the file has no valid options.
    """
    base, default, options = _read_sources(kind, new_numbers)
    config = tyro.cli(kind, args=options, default=default, config=FLAT) if options else default
    names = (*config.run.user_options, *new_numbers)
    config = changed(config, **new_numbers, user_options=names)
    _check(config, base)
    return config


def _read_sources(kind, new_numbers):
    """Reads the sources of numbers except the arguments.

    Returns:
        The configuration without the file of options; the same with the lists of the file; and the
        other options of the file as a command line has them, so that tyro checks their types.
    """
    base = kind()
    of_file = _read_file(new_numbers["config"], base) if new_numbers.get("config") else {}
    chosen = {**numbers(base), **of_file, **new_numbers}
    of_run = numbers_of(chosen["output"]) if chosen["resume"] else None
    if of_run is None:
        base = _with_presets(base, chosen)
    else:
        names = (numbers(base).keys() - set(OF_THIS_PROCESS)) & of_run.keys()
        base = changed(base, **{name: _as_tuple(of_run[name]) for name in names})
    lists = {name: tuple(value) for name, value in of_file.items() if isinstance(value, list)}
    options = [_as_argument(name, x) for name, x in of_file.items() if name not in lists]
    return base, changed(base, **lists, user_options=tuple(of_file)), options


def _with_presets(base, chosen):
    """Returns the configuration of a recipe with the presets that the chosen numbers call for."""
    folder = chosen.get("pretrained")
    presets = {}
    if fine_tuning.is_published(folder):
        presets |= getattr(base, "PUBLISHED", {})
    if chosen["smoke"]:
        presets |= getattr(base, "SMOKE", {})
    presets = {name: x(folder) if callable(x) else x for name, x in presets.items()}
    config = changed(base, **presets)
    most_positions = fine_tuning.positions(folder)
    if most_positions and numbers(config).get("row_length", 0) > most_positions:
        config = changed(config, row_length=most_positions)
    if chosen["lora"] is not None:
        config = changed(config, learning_rate=LORA_RATE * config.training.learning_rate)
    return config


def _read_file(path, base):
    """Returns the options of a YAML or JSON file, a dict without groups.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has no valid options.
    """
    import yaml

    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"--config: there is no file {path}")
    try:
        content = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--config: {path} is neither YAML nor JSON: {reason}") from None
    if not isinstance(content, dict):
        raise ValueError(f"--config: {path} must hold options, as `epochs: 3`.")
    options = {}
    for key, value in content.items():
        is_group = key in vars(base) and isinstance(value, dict)
        options |= value if is_group else {key: value}
    options = {str(name).replace("-", "_"): value for name, value in options.items()}
    for name in ("config", "resume"):  # options of a command, not of a run
        options.pop(name, None)
    defaults = numbers(base)
    for name, value in options.items():
        if name not in defaults:
            raise ValueError(f"--config: {path} has {name}, which is no option of this recipe.")
        takes_list = name in _names_of_lists(type(base)) or _fits(value, defaults[name])
        if isinstance(value, dict) or isinstance(value, list) and not takes_list:
            raise ValueError(f"--config: {path} has a wrong {name}: {value}")
    return options


def _fits(values, default):
    """Returns True if a list can replace the default, a tuple of values of one type."""
    if not isinstance(values, list) or not isinstance(default, tuple):
        return False
    return all(isinstance(value, type(default[0]) if default else object) for value in values)


def _as_tuple(value):
    return tuple(value) if isinstance(value, list) else value


def _as_argument(name, value):
    """Returns an option of a file as a command line has it."""
    option = option_name(name)
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option}={value}"


def _names_of_lists(kind):
    """Returns the names of the options that take one str or several, a list."""
    groups = filter(dataclasses.is_dataclass, typing.get_type_hints(kind).values())
    hints = (hint for group in groups for hint in typing.get_type_hints(group).items())
    return [name for name, hint in hints if {str, tuple[str, ...]} <= {*typing.get_args(hint)}]


# Checks.


def _check(config, base):
    """Raises a ValueError if a number is invalid, see `configure`."""
    if config.run.resume and numbers_of(config.run.output) is not None:
        _check_resumed(config, base)
        return
    options = numbers(config)
    _check_lora(options)
    folder, length = options.get("pretrained"), options.get("row_length", 0)
    most_positions = fine_tuning.positions(folder)
    if most_positions and length > most_positions:
        raise ValueError(
            f"--row-length must be at most {most_positions}, the positions of {folder}. "
            f"Received: {length}"
        )


def _check_resumed(config, base):
    """Raises a ValueError if a number differs from that of the resumed run, `base`."""
    for name, now in numbers(config).items():
        then, option = numbers(base)[name], option_name(name)
        if name in SCHEDULE_OPTIONS and now != then:
            print(
                f"{option} was {then} when the run began and is {now}: the learning rates "
                "change, and with them the weights.",
                flush=True,
            )
        elif name not in OF_THIS_PROCESS and now != then:
            raise ValueError(
                f"--resume continues the run in {config.run.output}, begun with {option} {then}. "
                f"Received: {option} {now}"
            )


def _check_lora(options):
    """Raises a ValueError if `--lora` does not fit the other options."""
    rank = options["lora"]
    if rank is None:
        return
    if rank < 1:
        raise ValueError(f"--lora must be the rank of adapters, 1 or more. Received: {rank}")
    if options.get("pretrained") is None:
        raise ValueError(
            "--lora needs weights that are worth keeping: --pretrained, of a recipe that has it."
        )
    if options.get("freeze"):
        raise ValueError("--freeze and --lora: blocks are kept as they are, or have adapters.")


# The command line.


def main(run, kind, description):
    """Runs a recipe with the numbers of its command line; bad input ends in one line."""
    called, arguments = program(), join_repeated(sys.argv[1:], kind)
    with errors_in_one_line(called, FloatingPointError):
        base, default, options = _read_sources(kind, _read_switches(arguments))
        config = tyro.cli(
            kind,
            prog=called,
            description=description,
            args=[*options, *arguments],  # the last value of an option counts
            default=default,
            config=FLAT,
        )
        if config.run.resume and is_finished(config.run.output):
            print(f"The run in {config.run.output} is finished.")
            return
        names = (*config.run.user_options, *_option_names(arguments))
        config = changed(config, user_options=names)
        _check(config, base)
        if config.run.compile_cache:
            compile_cache()
        devices = on_devices(config.run.devices, config.run.hosts)
        with lines_that_fit(), devices, _with_resume_advice(called, config):
            run(config)


def join_repeated(arguments, kind):
    """Returns a command line on which `--train a --train b` has become `--train a b`.

    Only options that take one str or several are joined. Of other options the last value counts.

    Args:
        arguments: List of str.
        kind: The dataclass of a recipe.
    """
    for name in _names_of_lists(kind):
        option = option_name(name)
        parts = [[]]  # the words before the first option, then each option with its values
        for argument in arguments:
            parts += [[]] if argument.startswith("--") else []
            parts[-1].append(argument)
        repeated = [part for part in parts if part and part[0].partition("=")[0] == option]
        if len(repeated) > 1:
            values = [value for part in repeated for value in _values(part)]
            rest = [part for part in parts if part not in repeated]
            arguments = [argument for part in rest for argument in part] + [option, *values]
    return arguments


def _values(part):
    """Returns the values of `["--train", "a", "b"]` or `["--train=a"]`."""
    _, equals, first = part[0].partition("=")
    return [first, *part[1:]] if equals else part[1:]


def _read_switches(arguments):
    """Returns the options of a command line that decide about other options, a dict."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("output", "config", "pretrained", "lora"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    for name in ("smoke", "resume"):
        parser.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS
        )
    try:
        switches = vars(parser.parse_known_args(arguments)[0])
    except argparse.ArgumentError:  # which tyro explains
        return {}
    return {name: None if value == "None" else value for name, value in switches.items()}


def _option_names(arguments):
    """Returns the names of the options on a command line, a list."""
    names = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    return [name.removeprefix("no-").replace("-", "_") for name in names]


@contextlib.contextmanager
def on_devices(devices, hosts=False):
    """A scope that computes on these devices, and on those of the other hosts of the run.

    Args:
        devices: Text as "data=8", or None.
        hosts: True if JAX finds other hosts by itself, as on a TPU pod and under Slurm. The
            environment can name them, too, see `distribution.initialize`.

    Raises:
        ValueError: If there are fewer devices, or several hosts and no `devices`.
    """
    if hosts or any(name.startswith(HOST_VARIABLES) for name in os.environ):
        if devices is None:
            raise ValueError("--devices must say how the hosts' devices share the work.")
        distribution.initialize()
    with distribution.distribute(devices):
        yield


@contextlib.contextmanager
def _with_resume_advice(called, config):
    """A scope in which a run that is stopped prints the command that continues it."""
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
