"""The command lines of recipes and tools: help before TensorFlow is imported, errors in one line.

The package `recipes` imports this module before all others. So the module needs nothing but the
standard library.
"""

import ast
import contextlib
import dataclasses
import difflib
import itertools
import os
import pathlib
import re
import shutil
import signal
import sys
import textwrap

INTERRUPTED = 130  # the status by which shells know a program that Ctrl-C has ended
COMMAND = "keras-transformers"  # of an installed package, before the name of a recipe
RECIPES = pathlib.Path(__file__).parent.parent
PACKAGE = __package__.rpartition(".")[0]  # `recipes`, or `keras_transformers.recipes` in a wheel


def program(name=None):
    """Returns the call of this process: `keras-transformers NAME` or `python -m recipes.NAME`.

    Args:
        name: The name of the recipe; None reads it from the arguments of the process.
    """
    called = sys.argv[0]
    if called.startswith(f"{COMMAND} "):
        return called
    return f"python -m {PACKAGE}.{name or pathlib.Path(called).stem}"


def option_name(name):
    """Returns an option as a command line has it: "batch_size" -> "--batch-size"."""
    return f"--{name.replace('_', '-')}"


def run_command(name, kind, description, run, *errors, compiles=False):
    """Calls a function with the configuration of the command line of a tool.

    A tool answers, makes or compares, but trains nothing: `options.main` runs recipes.

    Args:
        name: The name of the tool.
        kind: Its dataclass of options.
        description: The text of `--help` above the options.
        run: The function.
        *errors: Exceptions whose text is all that the user needs, besides those of
            `errors_in_one_line`.
        compiles: True if programs that XLA compiles are kept for the next run.
    """
    import tyro

    import keras_transformers

    called = program(name)
    config = tyro.cli(kind, prog=called, description=description)
    with errors_in_one_line(called, *errors):
        if compiles:
            keras_transformers.compile_cache()
        raise_at_interrupt()
        run(config)


@contextlib.contextmanager
def errors_in_one_line(program, *kinds):
    """A scope in which bad input ends the program with one line, without a traceback.

    Args:
        program: The call of the program, which the line begins with.
        *kinds: Exceptions whose text is all that the user needs, besides ValueError,
            FileNotFoundError, and the ImportError of a package that an extra installs.
    """
    name = program.removeprefix("python -m ")
    try:
        yield
    except ImportError as error:
        advice = _advice_on_extras(error)
        if advice is None:
            raise
        raise SystemExit(f"{name}: {advice}") from None
    except (ValueError, FileNotFoundError, *kinds) as error:
        raise SystemExit(f"{name}: {error}") from None
    except OSError as error:
        raise SystemExit(f"{name}: {_system_message(error)}") from None
    except KeyboardInterrupt:
        print(f"\n{name}: stopped", file=sys.stderr, flush=True)
        raise SystemExit(INTERRUPTED) from None


def _system_message(error):
    """Returns the system's message on a file, with the name of the file."""
    if error.strerror is None:
        return str(error)
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' and '.join(names)}: {error.strerror}" if names else error.strerror


def _advice_on_extras(error):
    """Returns which extra to install; None if the ImportError is a fault of the code."""
    from keras_transformers.core.imports import advice  # which imports TensorFlow

    return advice(error) or (str(error) if error.name is None else None)


def name_missing_extras():
    """From now on, a program that ends because an extra is missing says so in one line.

    Modules of recipes import packages of extras at their top, before any function of theirs runs.
    """
    previous_hook = sys.excepthook

    def hook(kind, error, traceback):
        advice = _advice_on_extras(error) if isinstance(error, ImportError) else None
        if advice is None:
            previous_hook(kind, error, traceback)
        else:
            print(f"{program().removeprefix('python -m ')}: {advice}", file=sys.stderr)

    sys.excepthook = hook


def end_at_interrupt():
    """From now on, Ctrl-C ends the process at once, with a word and without a traceback.

    This is for the start of a process, when no work can be lost. Imports and tracing take long, and
    an exception that is raised within them can get lost.
    """
    terminal = os.dup(2)  # TensorFlow's import is kept from writing to the standard one

    def end(kind, frame):
        os.write(terminal, b"\nStopped.\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)


def raise_at_interrupt():
    """From now on, Ctrl-C raises a KeyboardInterrupt, and the next one ends the process at once.

    Does nothing unless `end_at_interrupt` was called.
    """
    end = signal.getsignal(signal.SIGINT)
    if getattr(end, "__module__", None) != __name__:
        return

    def interrupt(kind, frame):
        signal.signal(signal.SIGINT, end)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


# What follows answers a command line before TensorFlow is imported, which takes seconds. It reads
# the options from the source of a recipe: fields of dataclasses with a comment each.


def answer_early():
    """Answers `--help`, and refuses wrong options, for the recipe that this process runs."""
    if sys.argv[0] == "-m":
        names = [word for word in sys.orig_argv if word.startswith(f"{PACKAGE}.")]
        name = names[0].removeprefix(f"{PACKAGE}.") if names else ""
    else:
        name = sys.argv[0].partition(" ")[2].replace("-", "_")
    path = RECIPES / f"{name}.py"
    if name and path.is_file():
        answer_from_source(path, sys.argv[1:])


HELP, HELP_ALL = ("-h", "--help"), "--help-all"
# Those that `--help` shows, as many as a recipe has of them.
FIRST = ("dataset", "train", "valid", "test", "pretrained", "variant", "size", "minutes")
FIRST += ("epochs", "batch_size", "learning_rate", "output", "smoke", "resume", "seed")
MOST = 12
OF_FILES = ("config", "train", "valid", "test", "extra", "input", "pretrained", "images")
OTHER_NAMES = {  # what others call an option
    "lr": "learning-rate",
    "bs": "batch-size",
    "wd": "weight-decay",
    "epoch": "epochs",
    "out": "output",
    "output-dir": "output",
    "model": "variant",
    "size": "variant",
    "data": "dataset",
    "warmup": "warmup-steps",
}
WIDEST_NAME = 26  # characters


@dataclasses.dataclass(frozen=True)
class Option:
    """An option as the source of a recipe has it.

    Args:
        name: The name without dashes.
        kind: The annotation.
        default: The default as it is written.
        comment: The comment on the field.
    """

    name: str
    kind: str
    default: str
    comment: str

    @property
    def is_positional(self):
        """True if the option is given without its name."""
        return "Positional[" in self.kind

    def usage(self):
        """Returns the option as a command line has it, with its choices or a placeholder."""
        if self.is_positional:
            return self.name.upper() + (" ..." if "tuple" in self.kind else "")
        if self.kind == "bool":
            return f"--no-{self.name}" if self.default == "True" else f"--{self.name}"
        choices = re.findall(r"'([^']*)'", self.kind.partition("Literal[")[2].partition("]")[0])
        if choices:
            return f"--{self.name} {'|'.join(choices)}"
        if "tuple" in self.kind:
            return f"--{self.name} {self.placeholder()} ..."
        return f"--{self.name} {self.placeholder()}"

    def placeholder(self):
        """Returns the word that stands for the value."""
        for part, shown in {"int": "N", "float": "X", "str": "TEXT"}.items():
            if part in self.kind:
                return shown
        return "VALUE"

    def explanation(self):
        """Returns the comment and the default."""
        default = re.sub(r"['\"(),]", "", self.default)
        if self.kind == "bool" or default in ("None", ""):
            return self.comment
        return f"{self.comment} (default {default})".strip()


def read_groups(path):
    """Returns a dict of group -> (sentence, list of options); empty if the file has no options.

    The options of a tool are one group, with the name of the tool.
    """
    source = pathlib.Path(path).read_text(encoding="utf-8")
    shared = pathlib.Path(__file__).with_name("options.py").read_text(encoding="utf-8")
    classes = {**_read_classes(shared), **_read_classes(source)}
    config = classes.get("Config")
    if config is None:
        return {}
    fields = _fields(config[0])
    kinds = [ast.unparse(field.annotation) for field in fields]
    if not {*kinds} <= classes.keys():
        return {pathlib.Path(path).stem: ("", _read_options(config))}
    groups = {}
    for field, kind in zip(fields, kinds, strict=True):
        options = _read_options(classes[kind])
        arguments = getattr(field.value, "args", ())
        if field.target.id == "run" and arguments:  # Run("runs/NAME")
            options[0] = dataclasses.replace(options[0], default=ast.unparse(arguments[0]))
        groups[field.target.id] = (ast.get_docstring(classes[kind][0]) or "", options)
    return groups


def _read_options(node_and_lines):
    """Returns the options of a dataclass and of its base classes, positional options first."""
    node, lines = node_and_lines
    options = [option for base in node.bases for option in _read_options(_find_base(base))]
    options += [_read_option(field, lines) for field in _fields(node)]
    return sorted(options, key=lambda option: not option.is_positional)


def _find_base(base):
    """Finds a base class in the files of this package."""
    name = ast.unparse(base).rpartition(".")[2]
    texts = (path.read_text("utf-8") for path in pathlib.Path(__file__).parent.rglob("*.py"))
    return next(_read_classes(text)[name] for text in texts if f"\nclass {name}" in text)


def _read_classes(source):
    """Returns a dict of class name -> (syntax node, lines of the file)."""
    lines = source.splitlines()
    nodes = ast.parse(source).body
    return {node.name: (node, lines) for node in nodes if isinstance(node, ast.ClassDef)}


def _fields(node):
    """Returns the fields of a dataclass, without the constants of the class."""
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
    hidden = ("ClassVar", "KW_ONLY", "Suppress")
    return [
        field for field in fields if not any(x in ast.unparse(field.annotation) for x in hidden)
    ]


def _comments(lines):
    """Returns the texts of the comment lines before the first other line."""
    comments = itertools.takewhile(lambda line: line.lstrip().startswith("# "), lines)
    return [line.strip()[2:] for line in comments]


def _read_option(field, lines):
    """Reads an option from a field and its comment: beside it and below, or above it."""
    comment = lines[field.end_lineno - 1].partition("  # ")[2]
    if comment:
        below = _comments(lines[field.end_lineno :])
        next_line = lines[field.end_lineno + len(below) :][:1]
        # Comments below belong to the next field unless that has a comment of its own.
        if below and any("  # " in line for line in next_line):
            comment = " ".join([comment, *below])
    else:
        comment = " ".join(reversed(_comments(lines[field.lineno - 2 :: -1])))
    kind = ast.unparse(field.annotation)
    default = ast.unparse(field.value) if field.value is not None else ""
    if any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(ast.parse(default))):
        default = ""  # which only Python knows
    return Option(option_name(field.target.id).removeprefix("--"), kind, default, comment)


def answer_from_source(path, arguments):
    """Answers a call for help, and refuses unknown options and files that are missing.

    Args:
        path: The source of the recipe.
        arguments: The command line.

    Raises:
        SystemExit: After help, without a message; or with a sentence.
    """
    groups = read_groups(path)
    if groups and {*HELP, HELP_ALL} & {*arguments}:
        print(help_text(path, groups, HELP_ALL in arguments))
        raise SystemExit(0)
    name = program(pathlib.Path(path).stem).removeprefix("python -m ")
    if groups:
        known = {option.name for _, options in groups.values() for option in options}
        for argument in arguments:
            fault = _fault_of_option(argument, known)
            if fault:
                raise SystemExit(f"{name}: {fault}")
    fault = _fault_of_files(arguments)
    if fault:
        raise SystemExit(f"{name}: {fault}")


def _fault_of_option(argument, known):
    """Returns a sentence on an argument that is an unknown option; None for all others."""
    if not argument.startswith("--"):
        return None
    name = argument[2:].partition("=")[0].replace("_", "-")
    if {name, name.removeprefix("no-")} & {*known, ""} or "." in name:
        return None
    meant = OTHER_NAMES.get(name)
    close = [meant] if meant in known else difflib.get_close_matches(name, known, 1)
    advice = f"do you mean --{close[0]}?" if close else f"{HELP_ALL} lists all options."
    return f"there is no option --{name}; {advice}"


def _fault_of_files(arguments):
    """Returns a sentence on the first file or folder that an option names and that is missing."""
    option = None
    for argument in arguments:
        if argument.startswith("--"):
            option, equals, value = argument.partition("=")
            values = [value] if equals else []
        else:
            values = [argument]
        for value in values if option and option[2:] in OF_FILES else []:
            path = value.partition("=")[2] or value  # of en-de=FILE
            is_name = not ("/" in path or pathlib.Path(path).suffix)  # of something to be found
            is_name |= option == "--pretrained" and path.count("/") == 1
            is_pattern = any(sign in path for sign in "*?[") or "://" in path
            if not (is_name or is_pattern or any(pathlib.Path(x).exists() for x in (path, value))):
                return f"{option}: there is no file or folder {path}"
    return None


def help_text(path, groups, with_all):
    """Returns the help of a recipe.

    Args:
        path: The source of the recipe.
        groups: The groups of `read_groups`.
        with_all: True shows all options, False those that matter first.
    """
    about = ast.get_docstring(ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))) or ""
    options = [option for _, own in groups.values() for option in own]
    called = program(pathlib.Path(path).stem)
    positional = [option.usage() for option in options if option.is_positional]
    lines = [f"usage: {' '.join([called, *positional])} [options]", "", about, ""]
    if len(groups) == 1:
        lines += _help_rows(options)
    elif with_all:
        for name, (sentence, own) in groups.items():
            heading = f"{name}: {sentence.splitlines()[0] if sentence else ''}"
            lines += [heading, *_help_rows(own), ""]
    else:
        by_name = {option.name.replace("-", "_"): option for option in options}
        first = [by_name[name] for name in FIRST if name in by_name][:MOST]
        lines += [*_help_rows(first), "", f"All {len(options)} options: {called} {HELP_ALL}"]
    return "\n".join(lines).rstrip()


def _help_rows(options):
    """Returns lines of options, with their explanations beside or below."""
    width = max(shutil.get_terminal_size().columns, 50)
    rows = []
    for option in options:
        left = f"  {option.usage()}"
        room = width - WIDEST_NAME
        text = textwrap.wrap(option.explanation(), room, break_on_hyphens=False) or [""]
        if len(left) >= WIDEST_NAME:
            rows += textwrap.wrap(left, width, subsequent_indent="    ")
            left = ""
        rows.append(f"{left:{WIDEST_NAME}}{text[0]}".rstrip())
        rows += [" " * WIDEST_NAME + line for line in text[1:]]
    return rows
