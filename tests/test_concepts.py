"""Claims about the pages on concepts: what they show is what runs, and every row leads on."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
CONCEPTS = ROOT / "docs" / "concepts"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def tool():
    """`docs/hooks/code_excerpts.py`, which is in no package."""
    path = ROOT / "docs" / "hooks" / "code_excerpts.py"
    spec = importlib.util.spec_from_file_location("code_excerpts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_code_of_the_pages_is_that_of_the_source():
    filled = tool().filled
    stale = [str(path) for path in PAGES if filled(text := path.read_text("utf-8")) != text]
    assert stale == [], "python docs/hooks/code_excerpts.py fills them in"


def test_a_change_of_the_source_is_seen(tmp_path):
    source = (
        'import x\n\n\nclass A:\n    """Doc."""\n\n    @x\n    def f(self):\n        """Doc."""\n'
    )
    (tmp_path / "a.py").write_text(source + "        # why\n        return 1\n", "utf-8")
    page = "text\n\n<!-- code: a.py A.f -->\n\nmore\n"
    filled = tool().filled(page, tmp_path)
    shown = "# a.py: A.f\n@x\ndef f(self):\n    # why\n    return 1\n"
    assert filled == f"text\n\n<!-- code: a.py A.f -->\n```py\n{shown}```\n\nmore\n"
    assert tool().filled(filled, tmp_path) == filled
    (tmp_path / "a.py").write_text(source + "        return 2\n", "utf-8")
    assert "return 2" in tool().filled(filled, tmp_path)
    with pytest.raises(ValueError, match="a.py has no `A.g`"):
        tool().excerpt("a.py", "A.g", root=tmp_path)


def test_a_part_of_a_function_is_shown(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    a = 1\n    b = a\n    return b\n", "utf-8")
    filled = tool().filled('<!-- code: a.py f "a = 1" "b =" -->\n', tmp_path)
    assert filled.endswith("```py\n# a.py: f, in part\na = 1\nb = a\n```\n")
    with pytest.raises(ValueError, match="a.py: f has no line with 'c ='"):
        tool().excerpt("a.py", "f", ("a = 1", "c ="), tmp_path)


def test_code_that_is_shown_is_short():
    long = [
        f"{path.name}: {found['name']}"
        for path in CONCEPTS.glob("*.md")
        for found in tool().MARKER.finditer(path.read_text("utf-8"))
        if found["block"].count("\n") > 26
    ]
    assert long == []


def test_every_row_of_the_index_names_code_that_is_there():
    rows = re.findall(r"^\|.*\]\(.*\|$", (CONCEPTS / "index.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 60
    excerpt = tool().excerpt
    for row in rows:
        *_, names, files, _ = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|"))
        files = files * len(names) if len(files) == 1 else files  # one for all, or one for each
        for name, file in zip(names, files, strict=True):
            assert excerpt(f"keras_transformers/{file}", name), row  # it raises where there is none
