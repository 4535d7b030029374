"""Claims about the folder of a run."""

import ast
import json
import pathlib
import threading
import tomllib

import numpy as np
import pytest
from PIL import Image

from keras_transformers import visualization
from keras_transformers.__main__ import RECIPES as NAMES
from keras_transformers.training import tracking
from recipes import training
from recipes.folder import RunFolder, is_finished

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_a_file_that_is_written_anew_can_be_read_all_the_time(tmp_path):
    """As one host reads the numbers of a run while the first writes them."""
    folder = RunFolder(tmp_path)
    folder.write_json("config.json", {"i": -1})
    writer = threading.Thread(
        target=lambda: [folder.write_json("config.json", {"i": i}) for i in range(300)]
    )
    writer.start()
    while writer.is_alive():
        json.loads((tmp_path / "config.json").read_text())
    assert json.loads((tmp_path / "config.json").read_text()) == {"i": 299}
    assert not list(tmp_path.glob("unfinished-*"))


def test_what_fails_after_the_metrics_costs_a_sentence(tmp_path, capsys):
    folder = RunFolder(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    folder.write_metrics({"score": 1.5})
    with folder.drawing("confusion") as path:
        assert path == tmp_path / "figures" / "confusion.png"
        raise MemoryError
    with folder.drawing("curves"):
        raise ValueError("no epoch\nand more")
    said = capsys.readouterr().out
    assert "confusion.png could not be drawn: MemoryError" in said
    assert "curves.png could not be drawn: no epoch\n" in said
    with folder.exporting("saved_model") as path:
        assert path == tmp_path / "saved_model"
        raise ValueError("no such op")
    assert "saved_model could not be exported: no such op" in capsys.readouterr().out
    assert json.loads((tmp_path / "metrics.json").read_text())["score"] == 1.5
    with pytest.raises(ValueError, match="saved_model could not be exported; all else is in"):
        folder.end()
    assert not is_finished(tmp_path)  # `--resume` tries again
    again = RunFolder(tmp_path)
    again.write_metrics({"score": 1.5})
    again.end()
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert is_finished(tmp_path) and metrics["seconds"] > 0


@pytest.mark.parametrize("service", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_there_is_named_before_anything_is_done(
    service, tmp_path, monkeypatch
):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"--track {service} needs .* {service}: .*{service}\]"):
        RunFolder(tmp_path).track(service, {}, resume=False)
    RunFolder(tmp_path).track(None, {}, resume=False)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert service in extras["optional-dependencies"]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_an_example_of_any_number_of_channels_is_written(channels, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype="uint8")
    path = RunFolder(tmp_path).write_example(pixels)
    found = np.load(path) if path.endswith(".npy") else np.asarray(Image.open(path))
    np.testing.assert_array_equal(found.reshape(pixels.shape), pixels)


DRAWING = visualization.__all__
RECIPES = {path.stem: path for path in (ROOT / "recipes").glob("*.py")}
LAST = ("write_metrics", "drawing", "exporting", "end")  # of a run, in `training.finish`


def called(node):
    """Name of what a call calls, without what it is an attribute of."""
    return getattr(node.func, "attr", getattr(node.func, "id", None))


def calls(recipe):
    """Pairs of a call in a file and the names of the arguments of all functions around it."""

    def found(node, around):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            around = around | {argument.arg for argument in node.args.args}
        if isinstance(node, ast.Call):
            yield node, around
        for child in ast.iter_child_nodes(node):
            yield from found(child, around)

    return list(found(ast.parse(RECIPES[recipe].read_text(encoding="utf-8")), set()))


@pytest.mark.parametrize(
    "recipe", sorted(RECIPES.keys() - {"training", "folder", "predict", "adapters"})
)
def test_the_end_of_a_run_stands_once_and_what_draws_is_given_a_path(recipe):
    for call, around in calls(recipe):
        assert called(call) not in LAST
        assert called(call) not in DRAWING or "path" in around, called(call)


@pytest.mark.parametrize("recipe", NAMES)
def test_every_recipe_ends_as_all_do(recipe):
    assert len([call for call, _ in calls(recipe) if called(call) == "finish"]) == 1


def test_metrics_are_there_before_anything_is_exported_or_drawn(tmp_path, capsys):
    folder, order = RunFolder(tmp_path), []

    def note(name, error=None):
        def act(path):
            assert path.stem == name and (tmp_path / "metrics.json").is_file()
            order.append(name)
            if error:
                raise error

        return act

    with pytest.raises(ValueError, match="model could not be exported; all else is in"):
        training.finish(
            folder,
            {"score": 1.5},
            exports={"model": note("model", OSError("full")), "none": None, "next": note("next")},
            figures={"first": note("first", MemoryError()), "second": note("second")},
        )
    assert order == ["model", "next", "first", "second"]
    said = capsys.readouterr().out
    assert said.index("score") < said.index("model could not") < said.index("first.png could not")
    used = []
    metrics = training.finish(
        RunFolder(tmp_path), {"score": 1.5}, use=lambda: used.append(is_finished(tmp_path))
    )
    assert used == [True] and metrics["seconds"] >= metrics["seconds_training_and_evaluation"]
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics
