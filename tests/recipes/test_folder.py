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
from recipes import folder as folders
from recipes.command import RunConfig
from recipes.folder import RunFolder, is_finished

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_a_file_that_is_written_anew_can_be_read_all_the_time(tmp_path):
    """As one host reads the numbers of a run while the first writes them."""
    folder = RunFolder(tmp_path, RunConfig())
    writer = threading.Thread(
        target=lambda: [folder.write_json("config.json", {"i": i}) for i in range(300)]
    )
    writer.start()
    while writer.is_alive():
        json.loads((tmp_path / "config.json").read_text())
    assert json.loads((tmp_path / "config.json").read_text()) == {"i": 299}
    assert not list(tmp_path.glob("unfinished-*"))


def test_what_fails_after_the_metrics_costs_a_sentence(tmp_path, capsys):
    folder = RunFolder(tmp_path, RunConfig())
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
    again = RunFolder(tmp_path, RunConfig())
    again.write_metrics({"score": 1.5})
    again.end()
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert is_finished(tmp_path) and metrics["seconds"] > 0


def test_tensorboard_that_is_not_there_is_named_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"--tensorboard needs .*tensorboard\]"):
        RunFolder(tmp_path / "run", RunConfig(tensorboard=True))
    RunFolder(tmp_path / "run", RunConfig())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "tensorboard" in extras["optional-dependencies"]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_an_example_of_any_number_of_channels_is_written(channels, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype="uint8")
    path = RunFolder(tmp_path, RunConfig()).write_example(pixels)
    found = np.load(path) if path.endswith(".npy") else np.asarray(Image.open(path))
    np.testing.assert_array_equal(found.reshape(pixels.shape), pixels)


DRAWING = visualization.__all__
RECIPES = {path.stem: path for path in (ROOT / "recipes").glob("*.py")}
WITH_METRICS = sorted(n for n, p in RECIPES.items() if ".write_metrics(" in p.read_text())


def called(node):
    """Name of what a call calls, without what it is an attribute of."""
    return getattr(node.func, "attr", getattr(node.func, "id", None))


@pytest.mark.parametrize("recipe", [*WITH_METRICS, "image_figures", "vit", "translation"])
def test_every_recipe_writes_its_metrics_before_it_draws_or_exports(recipe):
    tree = ast.parse(RECIPES[recipe].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = {f.name: [n for n in ast.walk(f) if isinstance(n, ast.Call)] for f in functions}
    written = [n.lineno for n in calls.get("run", ()) if called(n) == "write_metrics"]
    late = ("drawing", "exporting", "publish", "show_use", "end", "export", "draw", "draw_more")
    for node in calls["run"] if written else ():
        assert called(node) not in (*late, *DRAWING) or node.lineno > written[0], called(node)
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.With)
              and any(called(i.context_expr) == "drawing" for i in n.items)]
    inside = {id(n) for scope in scopes for n in ast.walk(scope)}
    for function in functions:  # what draws is in such a scope, or is given the path of one
        given = "path" in [argument.arg for argument in function.args.args]
        for node in calls[function.name]:
            assert called(node) not in DRAWING or given or id(node) in inside, function.name


def test_recipes_with_pictures_are_among_them():
    assert {"images", "mae", "detr", "mixers", "language_model", "seq2seq"} <= set(WITH_METRICS)
