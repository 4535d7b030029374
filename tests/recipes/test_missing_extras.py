"""Claims about a package that is not installed: one line names it, and the extra that has it."""

import ast
import importlib
import importlib.metadata
import pathlib
import re
import sys
import tomllib

import pytest

from keras_transformers import __main__ as installed
from keras_transformers.core.imports import EXTRAS, advice, needed_by

ROOT = pathlib.Path(__file__).parent.parent.parent
FILES = [path for top in ("keras_transformers", "recipes") for path in (ROOT / top).rglob("*.py")]
# Files of a format that `export.formats` looks for the package of before, and classes that
# `training.Tracker` makes, which has done the same. `text.tokenizers` decides where
# tensorflow-text is.
CHECKED_BEFORE = {"conversion.py", "callbacks.py", "flops.py"}
ON_JAX = {"backend.py", "caching.py", "layouts.py"}  # where JAX is the backend


@pytest.fixture
def fresh(monkeypatch):
    """The recipes as a new process has them, which imports them again."""
    for name in [name for name in sys.modules if name.split(".")[0] == "recipes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield monkeypatch
    for name in [name for name in sys.modules if name.split(".")[0] == "recipes"]:
        del sys.modules[name]


def block(monkeypatch, package):
    """From now on, importing a package fails as if it were not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("name", installed.NAMES)
def test_a_recipe_without_the_extra_ends_in_a_line(name, fresh):
    block(fresh, "tyro")
    fresh.setattr(sys, "argv", ["keras-transformers", name])
    with pytest.raises(SystemExit) as ended:
        installed.main()
    assert str(ended.value) == (
        f"keras-transformers {name}: needs the package tyro: "
        "pip install 'keras_transformers[recipes]'"
    )


@pytest.mark.parametrize("name", installed.NAMES)
def test_a_module_of_the_clone_without_the_extra_ends_in_a_line(name, fresh, capsys):
    block(fresh, "tyro")
    fresh.setattr(sys, "argv", ["-m"])  # as it is until the module is found
    importlib.import_module("recipes")
    fresh.setattr(sys, "argv", [str(ROOT / "recipes" / f"{name}.py")])
    try:
        importlib.import_module(f"recipes.{name}")
    except ModuleNotFoundError as error:
        sys.excepthook(type(error), error, error.__traceback__)  # as the interpreter does
    said = capsys.readouterr().err
    assert said.splitlines() == [
        f"recipes.{name}: needs the package tyro: pip install 'keras_transformers[recipes]'"
    ]


@pytest.mark.parametrize("module", ["fcntl", "pwd", "resource"])
def test_every_command_is_imported_without_a_module_of_posix(module, fresh):
    """Windows has none of them."""
    block(fresh, module)
    fresh.setattr(sys, "argv", ["program.py"])
    for name in installed.NAMES:
        importlib.import_module(f"recipes.{name}")
    for path in (ROOT / "recipes").rglob("*.py"):
        if "pages" not in path.parts:  # which need gradio
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def test_other_errors_keep_their_traceback(fresh, capsys):
    fresh.setattr(sys, "argv", ["-m"])
    importlib.import_module("recipes")
    for error in (ImportError("cannot import name", name="keras"), KeyError("x")):
        sys.excepthook(type(error), error, error.__traceback__)
        assert type(error).__name__ in capsys.readouterr().err.splitlines()[-1]


def test_an_import_leaves_the_hook_of_a_program_alone(fresh):
    before = sys.excepthook
    fresh.setattr(sys, "argv", ["program.py"])
    importlib.import_module("recipes")
    assert sys.excepthook is before


def test_who_needs_it_is_said(monkeypatch):
    block(monkeypatch, "sacrebleu")
    advised = r"BLEU needs the package sacrebleu: pip install 'keras_transformers\[recipes\]'"
    with pytest.raises(ImportError, match=advised), needed_by("BLEU"):
        importlib.import_module("sacrebleu.metrics")
    with pytest.raises(ModuleNotFoundError, match="no_such"), needed_by("BLEU"):
        importlib.import_module("no_such")
    assert advice(ImportError("its own words")) is None


def test_extras_have_what_is_said_of_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    distributions = importlib.metadata.packages_distributions()
    for module, extra in EXTRAS.items():
        listed = {re.split(r"[<>=\[;! ]", each.strip())[0] for each in extras[extra]}
        listed = {name.lower().replace("_", "-") for name in listed}
        known = {name.lower().replace("_", "-") for name in distributions.get(module, ())}
        assert not known or listed & known, (module, extra)


def unguarded(path):
    """Imports of packages of extras for which nobody says what to install."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if {name.split(".")[0] for name in names}.isdisjoint(EXTRAS.keys() - {"tensorflow_text"}):
            continue
        above, guards = node, []
        while above in parents:
            above = parents[above]
            guards.append(type(above))
        if not {ast.With, ast.Try, ast.If}.intersection(guards):
            yield f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_says_what_an_import_needs(path):
    if path.name in CHECKED_BEFORE | ON_JAX or path.parts[len(ROOT.parts)] == "recipes":
        return  # a recipe's own are said by `recipes.lib.command_line`
    assert list(unguarded(path)) == []
