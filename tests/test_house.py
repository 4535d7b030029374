"""Claims about the shape of the code, as CONTRIBUTING.md states it."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for package in ("keras_transformers", "recipes")
    for path in sorted((ROOT / package).rglob("*.py"))
}
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def limit(words):
    """The number before these words in CONTRIBUTING.md."""
    return int(re.search(rf"(\d+) {words}", GUIDE)[1])


def functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_files_are_short():
    longest = limit("lines a file")
    assert [name for name, text in FILES.items() if text.count("\n") > longest] == []


def test_functions_are_short():
    longest = limit("lines a function")
    long = [
        f"{name}: {node.name}"
        for name, text in FILES.items()
        for node in functions(text)
        if node.end_lineno - node.lineno + 1 - (ast.get_docstring(node) or "").count("\n") > longest
    ]
    assert long == []


def test_constructors_take_few_arguments():
    most = limit("arguments a constructor")
    many = [
        f"{name}:{node.lineno}"
        for name, text in FILES.items()
        for node in functions(text)
        if node.name == "__init__" and len(node.args.args) + len(node.args.kwonlyargs) - 1 > most
    ]
    assert many == []


@pytest.mark.parametrize("name", re.findall(r"`([\w/.]+\.(?:py|md|toml))`", GUIDE))
def test_files_that_the_guide_names_are_there(name):
    parts = [ROOT, ROOT / "keras_transformers", ROOT / "keras_transformers" / "models"]
    assert [folder for folder in parts if (folder / name).exists()], name


def test_positions_are_called_so():
    """What is in a sequence or on a grid is a position; a place is where a thing stands or goes."""
    idiom = r"(?i)(the|its|their|whole|attention's|other) places?\b|in place\b|first place"
    lines = [
        f"{name}: {line.strip()}"
        for name, text in FILES.items()
        for line in text.splitlines()
        if re.search(r"\bplaces?\b", line) and not re.search(idiom, line)
    ]
    assert lines == []
