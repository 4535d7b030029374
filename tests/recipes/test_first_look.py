"""Claims about what a command says before TensorFlow is imported: help, and what cannot be."""

import ast
import dataclasses
import importlib
import re
import subprocess
import sys

import pytest

from keras_transformers.__main__ import RECIPES, TOOLS
from recipes.lib import command_line
from recipes.lib.options import numbers

FOLDER = command_line.RECIPES


def options_of(name):
    groups = command_line.read_groups(FOLDER / f"{name}.py")
    return {option.name: option for _, own in groups.values() for option in own}


@pytest.mark.parametrize("name", RECIPES)
def test_the_source_is_read_as_python_reads_it(name):
    config = importlib.import_module(f"recipes.{name}").Config()
    found = {key.replace("-", "_"): option for key, option in options_of(name).items()}
    assert found.keys() == numbers(config).keys()
    for key, value in numbers(config).items():
        assert not found[key].default or ast.literal_eval(found[key].default) == value
        assert found[key].comment or key == "samples"


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", RECIPES)
def test_help_shows_twelve_options_at_most_and_all_on_demand(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    path, options = FOLDER / f"{name}.py", options_of(name)
    groups = command_line.read_groups(path)
    short, full = (command_line.help_text(path, groups, every) for every in (False, True))
    shown = short.split("\n\n")[-2].splitlines()
    assert 6 <= sum(re.match(r" {2,4}--", line) is not None for line in shown) <= 12
    assert f"All {len(options)} options: " in short
    for option in options.values():
        assert option.usage().split()[0] in full
    assert max(map(len, shown)) <= columns
    assert "STR" not in full and "{None}" not in full


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", TOOLS)
def test_help_of_a_tool_has_all_its_options(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    path, options = FOLDER / f"{name}.py", options_of(name)
    kind = importlib.import_module(f"recipes.{name}").Config
    fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(kind)}
    assert fields.keys() == options.keys()
    told = command_line.help_text(path, command_line.read_groups(path), False)
    shown = told.split("\n\n")[-1].splitlines()
    for each, option in options.items():
        required = fields[each].default is dataclasses.MISSING
        assert not required or option.is_positional
        assert option.comment
        assert any(line.strip().startswith(option.usage().split()[0]) for line in shown)
    assert max(map(len, shown)) <= columns


def test_a_comment_goes_on_below_its_option():
    about = options_of("predict")["stream"].comment
    assert about.endswith("(--search greedy), writes while it writes it")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lr", "3"], "there is no option --lr; do you mean --learning-rate?"),
        (["--epoch=3"], "there is no option --epoch; do you mean --epochs?"),
        (["--patienc", "3"], "there is no option --patienc; do you mean --patience?"),
        (["--qqq"], "there is no option --qqq; --help-all lists all options."),
        (["--train", "none.tsv"], "--train: there is no file or folder none.tsv"),
        (["--train", "en-de=none.tsv"], "--train: there is no file or folder none.tsv"),
        (["--config=none.yaml"], "--config: there is no file or folder none.yaml"),
    ],
)
def test_what_cannot_be_is_refused_at_once(arguments, said, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["recipes/translation.py"])
    with pytest.raises(SystemExit) as refusal:
        command_line.answer_from_source(FOLDER / "translation.py", arguments)
    assert refusal.value.code == f"recipes.translation: {said}"


def test_what_may_be_is_let_through(tmp_path):
    (tmp_path / "a=b.tsv").touch()
    arguments = ["--train", f"en-de={tmp_path / 'a=b.tsv'}", "shards/*.tsv", "gs://bucket/a.tsv"]
    arguments += ["--pretrained", "Helsinki-NLP/opus-mt-en-de", "--no-smoke", "--learning_rate=3"]
    command_line.answer_from_source(FOLDER / "translation.py", arguments)


def test_a_command_answers_without_tensorflow():
    program = "import sys; sys.modules['tensorflow'] = None; sys.orig_argv = ['-m', 'recipes.vit']"
    for argument in ("--help", "--lr"):
        code = f"{program}; sys.argv = ['-m', '{argument}']; import recipes"
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parent
        )
        said = answer.stdout + answer.stderr
        assert ("--learning-rate X" if argument == "--help" else "do you mean") in said
