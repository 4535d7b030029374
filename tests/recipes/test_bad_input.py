"""Claims about what every recipe says to bad input."""

import runpy
import sys

import pytest

from recipes.lib import training
from recipes.lib.command_line import errors_in_one_line
from tests.recipes.command import command

REFUSED = [
    ("translation", ["--dataset", "ui.de-en"], "There is no data set 'ui.de-en'"),
    ("translation", ["--valid", "missing.tsv"], "need --train; missing: --train"),
    (
        "translation",
        ["--train", "no.tsv", "--valid", "no.tsv", "--test", "no.tsv"],
        "no.tsv does not exist",
    ),
    ("translation", ["--smoke", "--vocab-size", "90000"], "more than this text supports"),
    ("vit", ["--dataset", "mnist"], "There is no data set 'mnist'"),
    ("vit", ["--pretrained", "nowhere"], "nowhere is neither the folder of a run"),
    ("vit", ["--freeze"], "--freeze needs --pretrained"),
    ("vit", ["--smoke", "--patch-size", "5", "--stem", "patches"], "multiples of `patch_size`=5"),
    ("vit", ["--smoke", "--patch-size", "5"], "`patch_size` must be a power of two above 1"),
    ("mae", ["--label-share", "1.5"], "--label-share must be in (0, 1)"),
    ("mae", ["--seeds", "0"], "--label-share must be in (0, 1)"),
    ("detr", ["--dataset", "crowns"], "There is no data set 'crowns'"),
    ("detr", ["--train", "a.json"], "missing: --valid and --test"),
    ("mixers", ["--variants", "magic"], "--variants must be some of attention"),
    ("language_model", ["--dataset", "goethe"], "There is no data set 'goethe'"),
    ("language_model", ["--test", "a.txt"], "need --train; missing: --train"),
    ("masked_language_model", ["--smoke", "--vocab-size", "6"], "vocab_size"),
    ("text_classification", ["--compare"], "--compare needs --pretrained"),
    ("text_classification", ["--label-share", "0"], "--label-share in (0, 1]"),
    ("text_classification", ["--pretrained", "nowhere"], "nowhere is neither the folder"),
]


@pytest.mark.parametrize(("recipe", "arguments", "advice"), REFUSED)
def test_it_is_refused_in_a_sentence(recipe, arguments, advice, tmp_path, monkeypatch):
    # A run tells the C library to keep what it frees; other tests come after it.
    monkeypatch.setattr(training, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(sys, "argv", [f"{recipe}.py", "--output", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as refused:
        runpy.run_module(f"recipes.{recipe}", run_name="__main__")
    assert str(refused.value).startswith(f"recipes.{recipe}: ") and advice in str(refused.value)


def test_the_command_ends_with_an_error_and_no_traceback(tmp_path):
    recipe, arguments, advice = REFUSED[0]
    result = command(recipe, tmp_path, *arguments)
    assert result.returncode == 1
    assert advice in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "a.tsv"), "a.tsv: Permission denied"),
        (OSError(18, "Invalid link", "a", None, "b"), "a and b: Invalid link"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("no disk"), "no disk"),
        (KeyboardInterrupt(), None),
    ],
)
def test_what_ends_a_command_is_one_line_that_names_the_file(error, message, capsys):
    with pytest.raises(SystemExit) as ended, errors_in_one_line("python -m recipes.vit"):
        raise error
    if message is None:
        assert ended.value.code == 130
        assert capsys.readouterr().err == "\nrecipes.vit: stopped\n"
    else:
        assert ended.value.code == f"recipes.vit: {message}"
