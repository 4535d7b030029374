"""Claims about what a hosted runner is told: it parses, and what it calls is there."""

import importlib.metadata
import importlib.util
import pathlib
import re
import shlex
import tomllib

import pytest

import keras_transformers
from keras_transformers.__main__ import RECIPES
from tests.lowest_versions import lowest_versions, numbers

yaml = pytest.importorskip("yaml")

ROOT = pathlib.Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def jobs():
    """`(job, settings)` of every workflow."""
    for path in WORKFLOWS:
        yield from yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()


def commands():
    """`job: words` of every line that a shell is given."""
    for name, job in jobs():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                yield pytest.param(shlex.split(line), id=f"{name}: {line[:60]}")


def requirements(words):
    """What a `pip install` of these words names."""
    return [word for word in words[4:] if not word.startswith("-") and "{" not in word]


def test_there_are_workflows():
    assert WORKFLOWS and len(dict(jobs())) > 3


@pytest.mark.parametrize("words", commands())
def test_commands_name_what_is_there(words):
    assert words[:2] == ["python", "-m"], "a module of the environment, on every system"
    module = words[2]
    of_an_extra = {requirement.split(">=")[0] for all_ in EXTRAS.values() for requirement in all_}
    assert module in {"pip", *of_an_extra} or importlib.util.find_spec(module)
    for word in words[3:]:
        for path in re.findall(r"(?:^|=)(tests/[\w./]*)", word):
            assert (ROOT / path).exists(), path
        if extras := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert set(extras[1].split(",")) <= set(EXTRAS)


def test_pytest_is_given_markers_that_exist():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = " ".join(known["tool"]["pytest"]["ini_options"]["markers"])
    for param in commands():
        (words,) = param.values
        if words[2] == "pytest" and "-m" in words[3:]:
            asked = words[words.index("-m", 3) + 1]
            assert set(asked.split()) - {"not", "or", "and"} <= set(re.findall(r"(\w+):", markers))


def test_the_versions_of_python_are_those_that_are_promised():
    promised = {
        each.rsplit(" ", 1)[-1] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d", each)
    }
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    assert promised == {f"3.{minor}" for minor in range(int(low), int(high))}
    matrix = dict(jobs())["tests"]["strategy"]["matrix"]
    assert set(matrix["python"]) == promised
    systems = {*matrix["os"], *(each["os"] for each in matrix["include"])}
    assert {name.split("-")[0] for name in systems} == {"ubuntu", "macos", "windows"}


def test_every_recipe_is_run_with_the_lowest_and_the_newest_versions():
    job = dict(jobs())["versions"]
    rows = job["strategy"]["matrix"]["include"]
    assert [row["versions"] for row in rows] == ["lowest", "newest"]
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    assert {f"python -m recipes.{name} --smoke" for name in RECIPES} <= set(lines)


def test_lower_bounds_leave_out_versions_that_do_not_work():
    lowest = lowest_versions()
    broken = {"tyro": "1.0.8", "tensorflow-text": "2.21.0", "tensorflow-datasets": "4.9.2"}
    for name, version in broken.items():
        assert numbers(lowest[name]) > numbers(version)
    for requirement in PROJECT["dependencies"]:
        assert re.split(">=", requirement)[0] in lowest


def test_what_is_not_released_yet_may_fail():
    assert dict(jobs())["next"]["continue-on-error"] is True
    required = [name for name, job in jobs() if not job.get("continue-on-error")]
    assert {"style", "tests", "jax", "docs", "package"} <= set(required)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
def test_templates_of_issues_have_what_a_form_needs(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    kinds = [part["type"] for part in form["body"]]
    assert set(kinds) <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        assert part["attributes"].get("label") or part["type"] == "markdown"


def test_commits_are_checked_by_the_same_ruff():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    names = [hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert {"ruff-check", "ruff-format", "nbstripout", "end-of-file-fixer"} <= set(names)
    (revision,) = (each["rev"] for each in hooks["repos"] if "ruff" in each["repo"])
    (asked,) = (each for each in EXTRAS["test"] if each.startswith("ruff"))
    low, high = re.fullmatch(r"ruff>=0\.(\d+),<0\.(\d+)", asked).groups()
    assert int(low) <= int(revision.split(".")[1]) < int(high)
    if importlib.util.find_spec("ruff"):
        assert revision == f"v{importlib.metadata.version('ruff')}"


def test_one_version_is_told_everywhere():
    version = keras_transformers.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert headings[1] == f"[{version}] - {citation['date-released']}"
    assert citation["version"] == version


def test_changes_stand_under_the_headings_of_keep_a_changelog():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    known = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for release in changes.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert kinds == [each for each in known if each in kinds], release[:40]
