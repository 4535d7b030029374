"""The reference: a page for each public package, with each of its public names once.

Names are those of `__all__`, or, in a module without one, what it defines without an underscore.
The sources are read, not imported.
"""

import ast
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from mkdocs.structure.files import File

PACKAGE = "keras_transformers"
GROUPS = {  # folders of `layers`, in the order in which its page has them
    "attention": "Attention",
    "positions": "Positions",
    "blocks": "Blocks and feed-forward networks",
    "mixing": "In attention's place",
    "vision": "Patches and maps",
    "": "Embeddings, masks, regularization",
}
PAGES = {  # in the order of a life: made, trained, used
    "layers": "Layers",
    "models": "Models",
    "generation": "Generation",
    "detection": "Detection",
    "training": "Training",
    "fitting": "Fitting",
    "saving": "Saving",
    "distribution": "Distribution",
    "text": "Text",
    "text.cleaning": "Text: cleaning",
    "text.files": "Text: files",
    "vision": "Vision",
    "tables": "Tables",
    "shards": "Shards",
    "streams": "Streams",
    "pretrained": "Pretrained",
    "alignment": "Alignment",
    "loading": "Loading",
    "predictors": "Predictors",
    "export": "Export",
    "inspection": "Inspection",
    "precision": "Precision",
    "caching": "Caching",
    "visualization": "Visualization",
}


class Name(NamedTuple):
    """A public name, the folder below its package where it is defined, and its first line."""

    name: str
    folder: str
    summary: str


def public(root: pathlib.Path, package: str) -> list[Name]:
    """The public names of `keras_transformers.PACKAGE`, as its source has them."""
    folder = root / PACKAGE / package.replace(".", "/")
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    tree = ast.parse(source.read_text())
    homes = {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    found = []
    for name in _listed(tree) or _defined(tree):
        home = homes.get(name, f"{PACKAGE}.{package}")
        below = home.removeprefix(f"{PACKAGE}.{package}").strip(".").split(".")
        found.append(Name(name, below[0] if len(below) > 1 else "", _summary(root, home, name)))
    return sorted(found, key=lambda each: each.name.lower())


def _listed(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def _defined(tree: ast.Module) -> list[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]


def _summary(root: pathlib.Path, home: str, name: str) -> str:
    path = root / home.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text()).body:
        if getattr(node, "name", None) == name:
            return (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
    return ""


def page(root: pathlib.Path, package: str) -> str:
    """The page of a package: its docstring, a table of its names, and each of them."""
    names, path = public(root, package), f"{PACKAGE}.{package}"
    lines = [f"# {PAGES[package]}", "", f"`{path}`", "", _intro(root, package), ""]
    lines += ["| name | |", "| --- | --- |"]
    lines += [
        f"| [`{each.name}`][{path}.{each.name}] | {each.summary.replace('|', chr(92) + '|')} |"
        for each in names
    ]
    groups = GROUPS if any(each.folder in GROUPS and each.folder for each in names) else {"": ""}
    for folder, title in groups.items():
        lines += ["", f"## {title}"] if title else []
        for each in names:
            if each.folder == folder or not title:
                level = 3 if title else 2
                lines += ["", f"::: {path}.{each.name}", f"    options: {{heading_level: {level}}}"]
    return "\n".join(lines) + "\n"


def _intro(root: pathlib.Path, package: str) -> str:
    folder = root / PACKAGE / package.replace(".", "/")
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return ast.get_docstring(ast.parse(source.read_text())) or ""


def pages(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    """What the folder `reference` holds: address and text of each page, and their list."""
    listed = ["* [Reference](index.md)"]
    table = ["| package | |", "| --- | --- |"]
    for package, title in PAGES.items():
        address = f"{package.replace('.', '_')}.md"
        yield f"reference/{address}", page(root, package)
        listed.append(f"* [{title}]({address})")
        first = _intro(root, package).split("\n\n")[0].replace("\n", " ")
        table.append(f"| [`{package}`]({address}) | {first} |")
    start = "# Reference\n\nEach public name once, from docstrings and signatures.\n\n"
    yield "reference/index.md", start + "\n".join(table) + "\n"
    yield "reference/SUMMARY.md", "\n".join(listed) + "\n"


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    for address, text in pages(root):
        files.append(File.generated(config, address, content=text))
    return files
