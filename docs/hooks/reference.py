"""The reference: a page for each public package, with each of its public names once.

Names are those of `__all__`, or, in a module without one, what it defines without an underscore.
The sources are read, not imported.
"""

import ast
import collections
import functools
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from mkdocs.structure.files import File

PACKAGE = "keras_transformers"
CODE = re.compile(r"<code>([\w.]+)</code>")
LEFT_ALONE = re.compile(r"(<(?:a|h\d|pre)\b.*?</(?:a|h\d|pre)>)", re.DOTALL)
SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
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
    tree = _read(root, f"{PACKAGE}.{package}")
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


@functools.cache
def _read(root: pathlib.Path, module: str) -> ast.Module:
    path = root / module.replace(".", "/")
    return ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    )


def _first(docstring: str | None) -> str:
    return (docstring or "").split("\n\n")[0].replace("\n", " ")


def _summary(root: pathlib.Path, home: str, name: str) -> str:
    found = (node for node in _read(root, home).body if getattr(node, "name", None) == name)
    return next((_first(ast.get_docstring(node)) for node in found), "")


def page(root: pathlib.Path, package: str) -> str:
    """The page of a package: its docstring, a table of its names, and each of them."""
    names, path = public(root, package), f"{PACKAGE}.{package}"
    told = ast.get_docstring(_read(root, path)) or ""
    lines = [f"# {PAGES[package]}", "", f"`{path}`", "", told, ""]
    lines += ["| name | what it is |", "| --- | --- |"]
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


def pages(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    """What the folder `reference` holds: address and text of each page, and their list."""
    listed = ["* [Reference](index.md)"]
    table = ["| package | what is in it |", "| --- | --- |"]
    for package, title in PAGES.items():
        address = f"{package.replace('.', '_')}.md"
        yield f"reference/{address}", page(root, package)
        listed.append(f"* [{title}]({address})")
        first = _first(ast.get_docstring(_read(root, f"{PACKAGE}.{package}")))
        table.append(f"| [`{package}`]({address}) | {first} |")
    start = "# Reference\n\nEach public name once, from docstrings and signatures.\n\n"
    yield "reference/index.md", start + "\n".join(table) + "\n"
    yield "reference/SUMMARY.md", "\n".join(listed) + "\n"


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    for address, text in pages(root):
        files.append(File.generated(config, address, content=text))
    config.extra["names"] = addresses(root)
    return files


def addresses(root: pathlib.Path) -> dict[str, str]:
    """Where a name in code leads: `layers.ALiBi`, and `ALiBi` where only one package has it."""
    full = {
        f"{package}.{each.name}": package for package in PAGES for each in public(root, package)
    }
    found = {name: _address(package, name) for name, package in full.items()}
    short = collections.Counter(name.rpartition(".")[2] for name in full)
    for name, package in full.items():
        last = name.rpartition(".")[2]
        if short[last] == 1 and len(re.findall("[A-Z]", last)) > 1:  # no word of other meaning
            found[last] = _address(package, name)
    return found


def _address(package: str, name: str) -> str:
    return f"reference/{package.replace('.', '_')}.html#{PACKAGE}.{name}"


def on_page_content(content, page, config, **_):
    """Links names in code to the reference, and takes the sources out while search reads a page."""
    taken = page.meta["sources"] = SOURCE.findall(content)
    numbers = iter(range(len(taken)))
    content = SOURCE.sub(lambda _: f"<!-- source {next(numbers)} -->", content)
    up = "../" * page.file.src_uri.count("/")

    def linked(found):
        address = config.extra["names"].get(found[1].removeprefix(f"{PACKAGE}."))
        return f'<a href="{up}{address}">{found[0]}</a>' if address else found[0]

    parts = LEFT_ALONE.split(content)
    parts[::2] = [CODE.sub(linked, part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output, page, **_):
    """Puts the sources back."""
    taken = page.meta["sources"]
    return re.sub(r"<!-- source (\d+) -->", lambda found: taken[int(found[1])], output)
