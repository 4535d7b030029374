"""What can be said of a command line before TensorFlow is imported, which takes seconds.

The options of a recipe, or of a tool as `recipes.predict`, are read from its source, where they
stand as fields of dataclasses with a comment each.
"""

import ast
import dataclasses
import difflib
import itertools
import pathlib
import re
import shutil
import textwrap

from .bad_input import program

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
        name: Without the dashes.
        kind: The annotation.
        default: As it is written.
        about: The comment.
    """

    name: str
    kind: str
    default: str
    about: str

    @property
    def is_positional(self):
        """True if the option is given without its name."""
        return "Positional[" in self.kind

    def left(self):
        """How it is given."""
        if self.is_positional:
            return self.name.upper() + (" ..." if "tuple" in self.kind else "")
        if self.kind == "bool":
            return f"--no-{self.name}" if self.default == "True" else f"--{self.name}"
        choices = re.findall(r"'([^']*)'", self.kind.partition("Literal[")[2].partition("]")[0])
        if choices:
            return f"--{self.name} {'|'.join(choices)}"
        if "tuple" in self.kind:
            return f"--{self.name} {self.value()} ..."
        return f"--{self.name} {self.value()}"

    def value(self):
        """What stands for its value."""
        for part, shown in {"int": "N", "float": "X", "str": "TEXT"}.items():
            if part in self.kind:
                return shown
        return "VALUE"

    def right(self):
        """What it means, and its default."""
        default = re.sub(r"['\"(),]", "", self.default)
        if self.kind == "bool" or default in ("None", ""):
            return self.about
        return f"{self.about} (default {default})".strip()


def groups_of(path):
    """Returns a dict of group -> (sentence, list of options); empty if the file has no options.

    The options of a tool are one group, with the name of the tool.
    """
    source = pathlib.Path(path).read_text(encoding="utf-8")
    shared = pathlib.Path(__file__).with_name("options.py").read_text(encoding="utf-8")
    classes = {**_classes(shared), **_classes(source)}
    config = classes.get("Config")
    if config is None:
        return {}
    fields = _fields(config[0])
    kinds = [ast.unparse(field.annotation) for field in fields]
    if not {*kinds} <= classes.keys():
        return {pathlib.Path(path).stem: ("", _options_of(config))}
    groups = {}
    for field, kind in zip(fields, kinds, strict=True):
        options = _options_of(classes[kind])
        given = getattr(field.value, "args", ())
        if field.target.id == "run" and given:  # Run("runs/NAME")
            options[0] = dataclasses.replace(options[0], default=ast.unparse(given[0]))
        groups[field.target.id] = (ast.get_docstring(classes[kind][0]) or "", options)
    return groups


def _options_of(found):
    """Returns the options of a dataclass and of its base classes, positional options first."""
    node, lines = found
    options = [option for base in node.bases for option in _options_of(_base(base))]
    options += [_option(field, lines) for field in _fields(node)]
    return sorted(options, key=lambda option: not option.is_positional)


def _base(base):
    """Finds a base class in the files of this package."""
    name = ast.unparse(base).rpartition(".")[2]
    texts = (path.read_text("utf-8") for path in pathlib.Path(__file__).parent.rglob("*.py"))
    return next(_classes(text)[name] for text in texts if f"\nclass {name}" in text)


def _classes(source):
    lines = source.splitlines()
    nodes = ast.parse(source).body
    return {node.name: (node, lines) for node in nodes if isinstance(node, ast.ClassDef)}


def _fields(node):
    """The fields of a dataclass, without the constants of the class."""
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
    hidden = ("ClassVar", "KW_ONLY", "Suppress")
    return [each for each in fields if not any(x in ast.unparse(each.annotation) for x in hidden)]


def _comments(lines):
    """Returns the texts of the comment lines before the first other line."""
    comments = itertools.takewhile(lambda line: line.lstrip().startswith("# "), lines)
    return [line.strip()[2:] for line in comments]


def _option(field, lines):
    """Reads an option from a field and its comment: beside it and below, or above it."""
    about = lines[field.end_lineno - 1].partition("  # ")[2]
    if about:
        below = _comments(lines[field.end_lineno :])
        next_line = lines[field.end_lineno + len(below) :][:1]
        # Comments below belong to the next field unless that has a comment of its own.
        if below and any("  # " in line for line in next_line):
            about = " ".join([about, *below])
    else:
        about = " ".join(reversed(_comments(lines[field.lineno - 2 :: -1])))
    kind = ast.unparse(field.annotation)
    default = ast.unparse(field.value) if field.value is not None else ""
    if any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(ast.parse(default))):
        default = ""  # which only Python knows
    return Option(field.target.id.replace("_", "-"), kind, default, about)


def look(path, arguments):
    """Answers a call for help, and refuses unknown options and files that are not there.

    Args:
        path: The source of what is called.
        arguments: The command line.

    Raises:
        SystemExit: After help; and with a sentence.
    """
    groups = groups_of(path)
    if groups and {*HELP, HELP_ALL} & {*arguments}:
        print(help_of(path, groups, HELP_ALL in arguments))
        raise SystemExit(0)
    name = program(pathlib.Path(path).stem).removeprefix("python -m ")
    if groups:
        known = {option.name for _, options in groups.values() for option in options}
        for argument in arguments:
            unknown = _unknown(argument, known)
            if unknown:
                raise SystemExit(f"{name}: {unknown}")
    missing = _missing(arguments)
    if missing:
        raise SystemExit(f"{name}: {missing}")


def _unknown(argument, known):
    """Why an argument is no option; None if it is one, or no option at all."""
    if not argument.startswith("--"):
        return None
    asked = argument[2:].partition("=")[0].replace("_", "-")
    if {asked, asked.removeprefix("no-")} & {*known, ""} or "." in asked:
        return None
    meant = OTHER_NAMES.get(asked)
    close = [meant] if meant in known else difflib.get_close_matches(asked, known, 1)
    advice = f"do you mean --{close[0]}?" if close else f"{HELP_ALL} lists all options."
    return f"there is no option --{asked}; {advice}"


def _missing(arguments):
    """What is wrong with a file that an option names; None if nothing is."""
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


def help_of(path, groups, every):
    """The help of a recipe, a str.

    Args:
        path: Its source.
        groups: Those of `groups_of`.
        every: Whether all options are shown, or those that matter first.
    """
    about = ast.get_docstring(ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))) or ""
    options = [option for _, own in groups.values() for option in own]
    called = program(pathlib.Path(path).stem)
    positional = [option.left() for option in options if option.is_positional]
    lines = [f"usage: {' '.join([called, *positional])} [options]", "", about, ""]
    if len(groups) == 1:
        lines += _rows(options)
    elif every:
        for name, (sentence, own) in groups.items():
            lines += [f"{name}: {sentence.splitlines()[0] if sentence else ''}", *_rows(own), ""]
    else:
        by_name = {option.name.replace("-", "_"): option for option in options}
        first = [by_name[name] for name in FIRST if name in by_name][:MOST]
        lines += [*_rows(first), "", f"All {len(options)} options: {called} {HELP_ALL}"]
    return "\n".join(lines).rstrip()


def _rows(options):
    """Lines of options, with what they mean beside or below."""
    width = max(shutil.get_terminal_size().columns, 50)
    rows = []
    for option in options:
        left = f"  {option.left()}"
        text = textwrap.wrap(option.right(), width - WIDEST_NAME, break_on_hyphens=False) or [""]
        if len(left) >= WIDEST_NAME:
            rows += textwrap.wrap(left, width, subsequent_indent="    ")
            left = ""
        rows.append(f"{left:{WIDEST_NAME}}{text[0]}".rstrip())
        rows += [" " * WIDEST_NAME + line for line in text[1:]]
    return rows
