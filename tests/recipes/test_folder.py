"""Claims about the folder of a run."""

import ast
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import tomllib
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

from keras_transformers import visualization
from keras_transformers.__main__ import RECIPES as NAMES
from keras_transformers.training import callbacks
from recipes.lib import options, training
from recipes.lib.folder import LOCK, RunFolder, is_finished, lock_folder
from recipes.lib.options import fingerprints

ROOT = pathlib.Path(__file__).parent.parent.parent


def begun(path, **options):
    """The folder of a run that has begun."""
    folder = RunFolder(path, **options)
    folder.begin()
    return folder


def contents(path):
    """Dict of relative path -> bytes of all files, but for the lock."""
    files = (each for each in path.rglob("*") if each.is_file() and each.name != LOCK)
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in files}


def earlier_run(path):
    """What an earlier run and its user have left in a folder."""
    folder = begun(path, identity={"options": {"seed": 1}, "data": {"train a.tsv": {"bytes": 3}}})
    folder.write_json("config.json", {"seed": 1})
    folder.write_table("of_my_recipe.tsv", ["a"], [["b"]])
    for name in ("saved_model", "checkpoints", "tensorboard"):
        (path / name).mkdir()
        (path / name / "old").write_text("old")
    for name in ("model.keras", "history.csv", "tokenizer.model", "figures/old.png"):
        (path / name).write_text("old")
    for name in ("notes.txt", "figures/mine.svg"):
        (path / name).write_text("the user's")
    return contents(path)


def test_a_folder_that_holds_a_run_is_refused_with_three_ways_on(tmp_path):
    before = earlier_run(tmp_path / "run")
    with pytest.raises(ValueError, match="--resume and --overwrite"):
        RunFolder(tmp_path / "run", resume=True, overwrite=True)
    (tmp_path / "run_2").mkdir()
    message = r"run holds a run.* --resume, .* --overwrite, .* --output .*run_3\."
    with pytest.raises(ValueError, match=message):
        RunFolder(tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_nothing_changes_before_a_run_begins_and_then_nothing_old_is_left(tmp_path):
    before = earlier_run(tmp_path)
    folder = RunFolder(tmp_path, overwrite=True)
    folder.write_json("config.json", {"seed": 2})
    folder.keep("tokenizer.model", lambda path: path.write_text("new"))
    assert contents(tmp_path) == before  # the run may still be refused
    folder.begin()
    after = contents(tmp_path)
    assert set(after) == {
        "run.json",
        "config.json",
        "tokenizer.model",
        "notes.txt",
        "figures/mine.svg",
    }
    assert json.loads(after["config.json"]) == {"seed": 2} and after["tokenizer.model"] == b"new"
    old, new = (json.loads(each["run.json"])["run"] for each in (before, after))
    assert old != new


def test_a_resumed_run_is_the_same_run_of_the_same_data_and_tokenizer(tmp_path, capsys):
    before = earlier_run(tmp_path)
    same = {"options": {"seed": 1}, "data": {"train a.tsv": {"bytes": 3}}}
    again = RunFolder(tmp_path, resume=True, identity=same)
    assert again.checkpoint_identity()["run"] == json.loads(before["run.json"])["run"]
    other = {**same, "data": {"train a.tsv": {"bytes": 4}}}
    message = "began with another data, train a.tsv, bytes. Then: 3. Now: 4"
    with pytest.raises(ValueError, match=message):
        RunFolder(tmp_path, resume=True, identity=other)
    again.keep("tokenizer.model", lambda path: path.write_text("new"))
    with pytest.raises(ValueError, match=r"--resume: .*tokenizer.model is not what this run would"):
        again.begin()
    assert contents(tmp_path) == before
    assert not capsys.readouterr().out


def test_a_run_that_cannot_be_resumed_says_that_it_begins(tmp_path, capsys):
    RunFolder(tmp_path / "none", resume=True)
    assert "There is no run in" in capsys.readouterr().out
    begun(tmp_path / "killed")
    RunFolder(tmp_path / "killed", resume=True)
    assert "has no checkpoint: it begins anew" in capsys.readouterr().out


OTHER_PROCESS = """
import sys
if BLOCKED:
    sys.modules["fcntl"] = None  # as on Windows
from recipes.lib.folder import lock_folder
lock = lock_folder(PATH)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("blocked", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_folder_belongs_to_one_process_until_it_is_killed(tmp_path, blocked):
    code = OTHER_PROCESS.replace("PATH", repr(str(tmp_path))).replace("BLOCKED", str(blocked))
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe)
    assert other.stdout.readline() == b"locked\n"
    here = OTHER_PROCESS.replace("PATH", repr(str(tmp_path))).replace("BLOCKED", str(blocked))
    refused = subprocess.run([sys.executable, "-c", here], cwd=ROOT, capture_output=True, text=True)
    assert "ValueError: Another process is at work in" in refused.stderr
    other.kill()
    other.wait()
    if not blocked:
        lock_folder(tmp_path).release()


def test_a_disk_without_room_is_said_before_training(tmp_path, monkeypatch):
    model = keras.Sequential([keras.layers.Input((1000,)), keras.layers.Dense(1000)])
    folder = RunFolder(tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000_000))
    message = r"needs about 56 MB for checkpoints and exports, and the disk of .*run has 50 MB free"
    with pytest.raises(ValueError, match=message):
        folder.check_room(model)
    monkeypatch.undo()
    folder.check_room(model)
    assert contents(tmp_path) == {}


def test_files_are_known_again_by_their_content(tmp_path):
    for name in ("a.tsv", "b.tsv", "images/cat/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    named = {
        "train": ("english-german=" + str(tmp_path / "a.tsv"), str(tmp_path / "*.tsv")),
        "dataset": str(tmp_path / "images"),
        "vocab_size": 3,
        "size": "mini",
        "text": "x" * 10_000,
    }
    found = fingerprints(named)
    assert [each["files"] for each in found.values()] == [1, 2, 1]
    assert fingerprints(named) == found
    for name, changed in {"b.tsv": 1, "images/cat/1.png": 2, "a.tsv": 0}.items():
        before = fingerprints(named)
        (tmp_path / name).write_text(name[::-1])  # as long as before
        after = fingerprints(named)
        keys = list(found)
        assert before[keys[changed]] != after[keys[changed]]
        assert before[keys[changed]]["bytes"] == after[keys[changed]]["bytes"]


def test_ends_of_large_files_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "WHOLE", 100)
    monkeypatch.setattr(options, "ENDS", 10)
    path = tmp_path / "large.tsv"
    seen = set()
    for text in ("a" * 200, "b" + "a" * 199, "a" * 199 + "b", "a" * 201):
        path.write_text(text)
        (found,) = fingerprints({"train": str(path)}).values()
        seen.add(found["sha256"])
    assert len(seen) == 4


def test_a_file_that_is_written_anew_can_be_read_all_the_time(tmp_path):
    """As one host reads the numbers of a run while the first writes them."""
    folder = begun(tmp_path)
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
    folder = begun(tmp_path)
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
    again = begun(tmp_path, resume=True)
    again.write_metrics({"score": 1.5})
    again.end()
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert is_finished(tmp_path) and metrics["seconds"] > 0


@pytest.mark.parametrize("service", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_there_is_named_before_anything_is_done(
    service, tmp_path, monkeypatch
):
    monkeypatch.setattr(callbacks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"--track {service} needs .* {service}: .*{service}\]"):
        RunFolder(tmp_path).track(service, {})
    RunFolder(tmp_path).track(None, {})
    assert contents(tmp_path) == {}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert service in extras["optional-dependencies"]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_an_example_of_any_number_of_channels_is_written(channels, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype="uint8")
    path = begun(tmp_path).write_example(pixels)
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
    folder, order = begun(tmp_path), []

    def note(name, error=None):
        def act(path):
            assert path.stem == name and (tmp_path / "metrics.json").is_file()
            order.append(name)
            if error:
                raise error

        return act

    with pytest.raises(ValueError, match="saved_model could not be exported; all else is in"):
        training.finish(
            folder,
            {"score": 1.5},
            exports={
                "saved_model": note("saved_model", OSError("full")),
                "none": None,
                "published": note("published"),
            },
            figures={"first": note("first", MemoryError()), "second": note("second")},
        )
    assert order == ["saved_model", "published", "first", "second"]
    said = capsys.readouterr().out
    assert said.index("score") < said.index("model could not") < said.index("first.png could not")
    used = []
    metrics = training.finish(
        begun(tmp_path, resume=True), {"score": 1.5}, use=lambda: used.append(is_finished(tmp_path))
    )
    assert used == [True] and metrics["seconds"] >= metrics["seconds_training_and_evaluation"]
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics
