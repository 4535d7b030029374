"""Claims about what the end of a run says to do next: commands that work as they stand."""

import pathlib
import shlex
import sys

import pytest

from recipes.lib import command_line
from recipes.lib.folder import RunFolder, next_commands

ROOT = pathlib.Path(__file__).parent.parent.parent


def finished(path, options=("seed", "epochs")):
    """A folder with what a run leaves, as far as others read it."""
    folder = RunFolder(path)
    folder.begin()
    folder.write_json("config.json", dict.fromkeys(options, 1))
    folder.write_json("metrics.json", {"score": 1.0})
    return folder


@pytest.mark.parametrize(
    ("called", "start"), [("recipes/vit.py", "python -m recipes."), ("keras-transformers vit", "")]
)
def test_commands_name_recipes_and_paths_that_are_there(tmp_path, monkeypatch, called, start):
    monkeypatch.setattr(sys, "argv", [called])
    folder = finished(tmp_path / "a run")
    example = tmp_path / "a run" / "example.png"
    example.touch()
    asked = (str(example), {"target_language": "de"})
    ask, page, again = next_commands(folder.path, asked)
    for command, _ in (ask, page, again):
        words = shlex.split(command)
        name = words[2].removeprefix("recipes.") if start else words[1]
        assert command.startswith(start or f"keras-transformers {name} ")
        assert (ROOT / "recipes" / f"{name}.py").is_file()
    assert shlex.split(ask[0])[-4:] == [str(folder.path), str(example), "--target-language", "de"]
    assert shlex.split(page[0])[-1] == str(folder.path)
    assert shlex.split(again[0])[-4:] == ["--seed", "2", "--output", f"{folder.path}_seed_2"]


def test_another_run_of_the_same_recipe_is_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["recipes/vit.py"])
    folder = finished(tmp_path / "vit")
    finished(tmp_path / "translation", ("seed", "beam_size"))
    ((again, _),) = next_commands(folder.path)
    assert "recipes.vit --seed 2" in again
    finished(tmp_path / "wide")
    ((compared, _),) = next_commands(folder.path)
    assert shlex.split(compared)[2:] == [
        "recipes.compare",
        *map(str, [tmp_path / "wide", folder.path]),
    ]


def test_what_gave_no_answer_is_not_asked_again(tmp_path, capsys):
    folder = finished(tmp_path / "run")
    folder.show_use("a text")  # of nothing that was exported
    folder.show_next()
    said = capsys.readouterr().out
    assert "gives no answer" in said and "recipes.predict" not in said


def test_the_command_line_is_called_as_this_process_was(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["keras-transformers mae"])
    assert command_line.program() == "keras-transformers mae"


@pytest.mark.parametrize(
    ("minutes_of_defaults", "is_still_learning", "expected"),
    [
        (None, False, ["--seed", "2"]),
        (None, True, ["--minutes", "30"]),
        (45, False, ["--minutes", "45"]),
        (45, True, ["--minutes", "45"]),
    ],
)
def test_a_longer_run_is_advised_where_it_would_score_more(
    tmp_path, monkeypatch, capsys, minutes_of_defaults, is_still_learning, expected
):
    monkeypatch.setattr(sys, "argv", ["recipes/translation.py", "--minutes", "10"])
    folder = finished(tmp_path / "run")
    folder.longer = {"minutes": 30.0}
    folder.minutes_of_defaults = minutes_of_defaults
    folder.show_next(is_still_learning)
    words = shlex.split(capsys.readouterr().out.partition(":\n")[2])
    assert words[2:5] == ["recipes.translation", *expected]
