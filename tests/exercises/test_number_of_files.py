"""Claims that what CONTRIBUTING.md says of new parts takes no more files than it says."""

import ast
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
# Section of CONTRIBUTING.md -> the files of its exercise, and at most how many there may be.
EXERCISES = {
    "Add a score": (["test_new_score.py"], 2),
    "Add a task": (["similarity_meter.py", "test_similarity_meter.py"], 2),
    "Add a recipe": (["forecasting.py", "test_forecasting.py"], 2),
}


def section(title):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no section {title}"
    return found[1]


def classes(path):
    """Names of the classes that a file defines, without the groups that every recipe has."""
    body = ast.parse(path.read_text()).body
    names = {each.name for each in body if isinstance(each, ast.ClassDef)}
    return names - {"Config", "Data", "Architecture", "Training"}


@pytest.mark.parametrize("title", EXERCISES)
def test_an_exercise_is_written_down_with_its_files(title):
    files, most = EXERCISES[title]
    assert len(files) <= most
    named = set(re.findall(r"`tests/exercises/(\w+\.py)`", section(title)))
    assert named == set(files)


@pytest.mark.parametrize("title", EXERCISES)
def test_an_exercise_needs_nothing_of_other_exercises(title):
    files, _ = EXERCISES[title]
    others = {path.stem for path in HERE.glob("*.py")} - {pathlib.Path(each).stem for each in files}
    for file in files:
        text = (HERE / file).read_text()
        imported = re.findall(r"tests\.exercises(?:\.(\w+)| import ([\w, ]+))", text)
        names = {name for pair in imported for name in re.findall(r"\w+", " ".join(pair))}
        assert not names & others


@pytest.mark.parametrize("title", EXERCISES)
def test_no_other_file_knows_of_an_exercise(title):
    """So that nothing else had to be touched for it."""
    files, _ = EXERCISES[title]
    words = {pathlib.Path(file).stem for file in files}
    words |= {name for file in files for name in classes(HERE / file)}
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    for folder in ("keras_transformers", "recipes", "benchmarks", ".ci"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not pattern.search(path.read_text()), path
