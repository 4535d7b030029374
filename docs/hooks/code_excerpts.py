"""Fills code blocks of the pages from the source, so that what is shown is what runs.

A page says which definition it shows, and the block after the marker is that definition:

    <!-- code: keras_transformers/layers/masks.py causal_mask -->
    ```py
    ...
    ```

The name is a function, a class, a method (`Class.method`) or a variable that is assigned at the top
of the file. Docstrings are left out. Of a long function a part is shown, from the first line with
one text to the next with another: `<!-- code: FILE NAME "text" "text" -->`.
`python docs/hooks/code_excerpts.py` rewrites the blocks of all pages; when the site is built, they
are filled in again.

Such blocks are "py" and not "python", for a method does not run by itself.

The table of equations names definitions and files. Each becomes a link to the source; each of
these files has a page of its own.
"""

import ast
import functools
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs"
MARKER = re.compile(
    r"^<!-- code: (?P<file>\S+) (?P<name>\S+)(?: \"(?P<start>[^\"]+)\" \"(?P<end>[^\"]+)\")? -->"
    r"(?:\n```py\n(?P<block>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
TABLE = "concepts/index.md"
ROW = re.compile(r"^(\|.*\|) ([^|]*) \| ([^|]*\.py`) \|$", re.MULTILINE)  # symbols and files
FILE = re.compile(r"`([\w/]+\.py)`")
REGISTRATION = "@keras.saving.register_keras_serializable"


def excerpt(
    file: str, name: str, part: tuple[str, str] | None = None, root: pathlib.Path = ROOT
) -> str:
    """The source of one definition without its docstrings, under a line that says where it is.

    Args:
        file: Path of a Python file in the repository.
        name: Its qualified name, as in `Class.method`.
        part: Texts in the first and the last line that are shown; by default all are.
        root: The repository.

    Raises:
        ValueError: If the file has no such definition, or that no such lines.
    """
    source = (root / file).read_text(encoding="utf-8")
    node, lines = _found(_parsed(source), file, name), source.splitlines()
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    hidden = {line for each in ast.walk(node) for line in _docstring(each)}
    hidden |= {i + 1 for i in hidden if not lines[i].strip()}  # the empty line after one
    shown = [
        lines[i - 1]
        for i in range(first, node.end_lineno + 1)
        if i not in hidden and not lines[i - 1].startswith(REGISTRATION)
    ]
    title = f"# {file}: {name}"
    if part is not None:
        shown, title = _between(shown, part, f"{file}: {name}"), f"{title}, in part"
    return f"{title}\n" + textwrap.dedent("\n".join(shown)).strip("\n") + "\n"


@functools.cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _between(lines: list[str], part: tuple[str, str], owner: str) -> list[str]:
    found = []
    for text in part:
        start = found[-1] if found else 0
        numbers = [i for i in range(start, len(lines)) if text in lines[i]]
        if not numbers:
            raise ValueError(f"code_excerpts: {owner} has no line with {text!r}")
        found.append(numbers[0])
    return lines[found[0] : found[1] + 1]


def _found(tree: ast.AST, file: str, name: str) -> Any:
    for part in name.split("."):
        named = [each for each in getattr(tree, "body", []) if part in _names(each)]
        if not named:
            raise ValueError(f"code_excerpts: {file} has no `{name}`")
        tree = named[-1]  # as Python does, the last one counts
    return tree


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _docstring(node: ast.AST) -> range:
    """The lines of a definition's docstring."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or ast.get_docstring(node) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def filled(page: str, root: pathlib.Path = ROOT) -> str:
    """The text of a page with every marked block as the source has it."""

    def block(match: re.Match[str]) -> str:
        marker = match[0].splitlines()[0]
        part = (match["start"], match["end"]) if match["start"] else None
        return f"{marker}\n```py\n{excerpt(match['file'], match['name'], part, root)}```"

    return MARKER.sub(block, page)


def linked(table: str, root: pathlib.Path = ROOT) -> str:
    """The table of equations, with a link on each definition and each file.

    Raises:
        ValueError: If none of the files in a row has a definition of that row.
    """

    def row(match: re.Match[str]) -> str:
        start, symbols, files = match.groups()
        symbols = re.sub(
            r"`([\w.]+)`", lambda name: _link(name[1], FILE.findall(files), root), symbols
        )
        files = FILE.sub(lambda file: f"[{file[0]}]({_source_page(file[1])})", files)
        return f"{start} {symbols} | {files} |"

    return ROW.sub(row, table)


def _link(name: str, files: list[str], root: pathlib.Path) -> str:
    for file in files:
        source = (root / "keras_transformers" / file).read_text(encoding="utf-8")
        try:
            line = _found(_parsed(source), file, name).lineno
        except ValueError:
            continue
        return f"[`{name}`]({_source_page(file)}#L-{line})"
    raise ValueError(f"{TABLE}: {', '.join(files)} must define `{name}`, and does not")


def _source_page(file: str) -> str:
    return f"../source/{file.removesuffix('.py')}.md"


def sources(root: pathlib.Path = ROOT) -> Iterator[tuple[str, str]]:
    """Address and text of a page for each file in the table of equations."""
    table = (root / "docs" / TABLE).read_text(encoding="utf-8")
    formatter = HtmlFormatter(linespans="L", wrapcode=True)
    files = {file for row in ROW.finditer(table) for file in FILE.findall(row[3])}
    for file in sorted(files):
        path = f"keras_transformers/{file}"
        code = highlight((root / path).read_text(encoding="utf-8"), PythonLexer(), formatter)
        head = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n"
        yield _source_page(file).removeprefix("../"), head + code


def on_files(files: Any, config: Any) -> Any:
    """A hook of MkDocs: adds the pages of the sources."""
    for address, text in sources():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A hook of MkDocs: the page as it is shown."""
    return filled(linked(markdown) if page.file.src_uri == TABLE else markdown)


def main() -> None:
    for path in sorted(PAGES.rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = filled(before)
        if before != after:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
