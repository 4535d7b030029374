"""Claims about what is installed: one package, small, with the recipes inside and one command."""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from keras_transformers.__main__ import NAMES

pytest.importorskip("hatchling")

ROOT = pathlib.Path(__file__).parent.parent
MEGABYTE = 1_000_000


def called(*command, path, folder):
    """What came of a command in a folder, where Python finds packages in `path` first."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=folder, env=environment
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel):
    """A folder with the package and, in `bin`, its command."""
    target = wheel.parent / "installed"
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    return target


def test_the_wheel_is_one_small_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {file.filename: file.file_size for file in archive.infolist()}
    tops = {name.split("/")[0] for name in sizes}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"keras_transformers"}
    assert max(sizes.values()) < MEGABYTE and wheel.stat().st_size < 3 * MEGABYTE
    ours = {f"keras_transformers/{path.relative_to(ROOT)}" for path in ROOT.glob("recipes/**/*.py")}
    ours |= {str(path.relative_to(ROOT)) for path in ROOT.glob("keras_transformers/**/*.py")}
    assert {name for name in sizes if name.endswith(".py")} == ours
    data = {name for name in sizes if "/recipes/data/" in name and name.endswith(".gz")}
    assert len(data) == 3 and "keras_transformers/py.typed" in sizes


def test_the_source_distribution_has_everything():
    from hatchling.builders.sdist import SdistBuilder

    names = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    tracked = {str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/data/**/*.*z")}
    assert len(tracked) > 6 and tracked <= names
    assert {"tests/test_wheel.py", "keras_transformers/__main__.py", "NOTICE"} <= names


def test_the_command_knows_every_recipe():
    programs = {
        path.stem
        for path in (ROOT / "recipes").glob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert set(NAMES) == programs


def test_the_installed_command_is_the_recipes(installed, tmp_path):
    command = installed / "bin" / "keras-transformers"
    result = called(command, "translation", "--help", path=installed, folder=tmp_path)
    assert result.returncode == 0 and "usage: keras-transformers translation" in result.stdout
    assert "--learning-rate" in result.stdout


def test_what_is_too_large_to_be_installed_is_named(installed, tmp_path):
    command = installed / "bin" / "keras-transformers"
    result = called(command, "vit", "--smoke", path=installed, folder=tmp_path)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("keras-trans")]
    assert "keras-transformers vit: The data set fashion-mnist-12k is too large" in sentence
    assert "--dataset CLONE/recipes/data/fashion-mnist-12k" in sentence


def test_in_a_clone_the_same_command_takes_the_recipes_beside_the_package(tmp_path):
    (tmp_path / "recipes").mkdir()  # of somebody else
    (tmp_path / "recipes" / "__init__.py").write_text("raise ImportError")
    command = (sys.executable, "-m", "keras_transformers", "translation", "--dataset", "ui.de-en")
    result = called(*command, path=ROOT, folder=tmp_path)
    assert result.returncode == 1
    assert "keras-transformers translation: There is no data set 'ui.de-en'" in result.stderr


@pytest.mark.slow
def test_the_installed_command_trains(installed, tmp_path):
    command = installed / "bin" / "keras-transformers"
    result = called(command, "translation", "--smoke", path=installed, folder=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    metrics = json.loads((tmp_path / "runs/translation/metrics.json").read_text())
    assert metrics["test_bleu"] >= 0
