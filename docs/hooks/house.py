"""Changelog and Contributing, from the files at the top, with a map of the house.

The map is read from the imports themselves: a room stands above all rooms that it imports.
"""

import ast
import functools
import html
import pathlib
from collections.abc import Iterator

from mkdocs.structure.files import File

PACKAGE = "keras_transformers"
MAP = """## A map of the house

A room is a file or folder of `keras_transformers`. Each imports only from the floors below its own
(`tests/test_imports.py` says which it may). `recipes` and `benchmarks` stand above them all, and
nothing imports them.

{floors}

| room | what is in it | imports |
| --- | --- | --- |
{rows}

"""


@functools.cache
def rooms(root: pathlib.Path) -> dict[str, tuple[str, set[str]]]:
    """Of each room the first line of its docstring, and the rooms that it imports."""
    sources = {
        path.stem: path for path in (root / PACKAGE).glob("*.py") if not path.stem.startswith("__")
    } | {path.parent.name: path for path in (root / PACKAGE).glob("*/__init__.py")}
    found = {}
    for name, source in sorted(sources.items()):
        files = source.parent.rglob("*.py") if source.stem == "__init__" else [source]
        imported = {each for file in files for each in _imports(ast.parse(file.read_text()).body)}
        first = (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n\n")[0]
        found[name] = (first.replace("\n", " "), (imported & sources.keys()) - {name})
    return found


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    """The rooms that these statements import when they run, those in functions too."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            below = node.module.split(".")[1:2]
            yield from below or (alias.name for alias in node.names)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from _imports(getattr(node, "body", []))


def floors(imports: dict[str, set[str]]) -> list[list[str]]:
    """The rooms by their height, the ground floor first; refuses a circle."""
    heights: dict[str, int] = {}
    while len(heights) < len(imports):
        ready = [
            room
            for room, below in imports.items()
            if room not in heights and below <= heights.keys()
        ]
        if not ready:
            raise ValueError(f"{sorted(imports.keys() - heights.keys())} import in a circle")
        heights |= dict.fromkeys(ready, max(heights.values(), default=-1) + 1)
    return [
        [room for room in imports if heights[room] == height]
        for height in range(max(heights.values()) + 1)
    ]


def map_of(root: pathlib.Path, pages: set[str]) -> str:
    """The section with the floors as boxes and the rooms as a table; a room links to its page."""
    known = rooms(root)
    levels = floors({room: below for room, (_, below) in known.items()})
    boxes = [["recipes", "benchmarks"], *reversed(levels)]
    lines = ['<div class="house">']
    for level in boxes:
        lines.append("<div>" + "".join(_box(room, pages) for room in level) + "</div>")
    rows = [
        f"| {_named(room, pages)} | {known[room][0]} | {', '.join(sorted(known[room][1]))} |"
        for level in reversed(levels)
        for room in level
    ]
    return MAP.format(floors="\n".join([*lines, "</div>"]), rows="\n".join(rows))


def _box(room: str, pages: set[str]) -> str:
    if room in pages:
        return f'<a href="reference/{room}/index.html">{html.escape(room)}</a>'
    return f"<span>{html.escape(room)}</span>"


def _named(room: str, pages: set[str]) -> str:
    return f"[`{room}`](reference/{room}/index.md)" if room in pages else f"`{room}`"


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    pages = {room for room in rooms(root) if files.get_file_from_path(f"reference/{room}/index.md")}
    contributing = (root / "CONTRIBUTING.md").read_text()
    before, title, after = contributing.partition("## How the code looks")
    texts = {
        "changelog.md": (root / "CHANGELOG.md").read_text(),
        "contributing.md": before + map_of(root, pages) + title + after,
    }
    for address, text in texts.items():
        text = f"---\nsearch: {{boost: 0.1}}\n---\n\n{text}"
        files.append(File.generated(config, address, content=text))
    return files
