"""Claims about what is installed: one package, small, with the recipes inside and one command."""

import email
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import keras_transformers
from keras_transformers.__main__ import NAMES

pytest.importorskip("hatchling")

ROOT = pathlib.Path(__file__).parent.parent
MEGABYTE = 1_000_000
LIMIT = 2_100_000  # of the wheel; headers and records of its 590 files take 120,000


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
    assert max(sizes.values()) < MEGABYTE and wheel.stat().st_size <= LIMIT
    ours = {f"keras_transformers/{path.relative_to(ROOT)}" for path in ROOT.glob("recipes/**/*.py")}
    ours |= {str(path.relative_to(ROOT)) for path in ROOT.glob("keras_transformers/**/*.py")}
    assert {name for name in sizes if name.endswith(".py")} == ours
    data = {name for name in sizes if "/recipes/data/" in name and name.endswith((".gz", ".xz"))}
    assert len(data) == 3 and "keras_transformers/py.typed" in sizes


def test_the_source_distribution_has_everything():
    from hatchling.builders.sdist import SdistBuilder

    names = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    tracked = {str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/data/**/*.*z")}
    assert len(tracked) > 6 and tracked <= names
    assert {"tests/test_wheel.py", "keras_transformers/__main__.py", "NOTICE"} <= names
    tops = {name.split("/")[0] for name in names}
    ignored = {"runs", "dist", "build", "site", "PKG-INFO"}
    here = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert tops >= here - ignored - {"pyproject.toml"}, "what stands at the top of the repository"
    assert {".github", ".ci", ".pre-commit-config.yaml"} <= tops


def test_what_is_shown_of_the_project_holds(wheel):
    """Its page on an index, of the metadata inside."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Version"] == keras_transformers.__version__
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert all("https://" in url for url in metadata.get_all("Project-URL", []))


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


def run(*command, **options):
    """What a command prints; AssertionError with its last words if it fails."""
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result.stdout


def without_this_clone():
    """The environment of a process that finds what is installed, and nothing else."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with a source distribution and the wheel made of it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    return folder


@pytest.mark.slow
def test_an_index_would_take_what_is_built(built):
    pytest.importorskip("twine")
    files = sorted(built.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    assert files[0].stat().st_size <= LIMIT
    said = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert said.count("PASSED") == 2


@pytest.mark.slow
def test_the_readme_s_layer_runs_in_an_empty_environment(built, tmp_path):
    """With what the wheel requires and nothing else, of the index that pip is set to."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    (wheel,) = built.glob("*.whl")
    environment = without_this_clone()
    run(python, "-m", "pip", "install", "--quiet", wheel, env=environment, cwd=tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    example = next(block for block in blocks if "layers.EncoderBlock(" in block)
    run(python, "-c", example, env=environment, cwd=tmp_path)
    version = "import keras_transformers as k; print(k.__version__)"
    said = run(python, "-c", version, env=environment, cwd=tmp_path)
    assert said.strip() == keras_transformers.__version__
    command = python.with_name("keras-transformers")
    for name in NAMES:  # without the extra, a line that names it
        result = subprocess.run([command, name], capture_output=True, text=True)
        (line,) = [line for line in result.stderr.splitlines() if "keras_transformers" in line]
        assert result.returncode == 1
        assert line.endswith("pip install 'keras_transformers[recipes]'")


@pytest.mark.slow
def test_tests_pass_from_the_source_distribution(built, tmp_path):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    subset = ["tests/test_house.py", "tests/test_imports.py", "tests/test_workflows.py"]
    subset += ["tests/data/test_tables.py", "tests/layers/test_scores.py"]
    subset += ["tests/recipes/test_options.py", "tests/recipes/test_missing_extras.py"]
    subset = [name for name in subset if (ROOT / name).exists()]
    command = [sys.executable, "-m", "pytest", "-n", "0", *subset]
    run(*command, cwd=folder, env={**without_this_clone(), "PYTHONPATH": str(folder)})
    # Every test of the clone is there, and is collected.
    ours, theirs = ({p.relative_to(top) for p in top.glob("tests/**/*")} for top in (ROOT, folder))
    assert {path for path in ours - theirs if "__pycache__" not in path.parts} == set()
