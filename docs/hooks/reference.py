"""The reference: a page for each public name, and one that lists the names of each package.

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

from mkdocs.structure.files import File, InclusionLevel

PACKAGE = "keras_transformers"
CODE = re.compile(r"<code>([\w.]+)</code>")
LEFT_ALONE = re.compile(r"(<(?:a|h\d|pre)\b.*?</(?:a|h\d|pre)>)", re.DOTALL)
SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
BELOW_GUIDES = "---\nsearch: {boost: 0.3}\n---\n"  # guides are found before the reference
PAGE = """---
title: {name}
package: keras_transformers.{package}
search: {{boost: 0.3}}
---

::: keras_transformers.{package}.{name}
    options: {{heading_level: 1}}
"""
GROUPS = {  # title -> folders and modules of `layers`, in the order of its page
    "Attention": ("attention",),
    "Positions": ("positions",),
    "Blocks and feed-forward networks": ("blocks", "feed_forward", "pooling"),
    "In attention's place": ("mixers",),
    "Patches and maps": ("patches", "convolutions"),
}
OTHERS = "Embeddings, masks, regularization"  # the title of the other layers
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
    "localization": "Localization",
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
    """A public name, the folder or module of its package, its first line, and its page."""

    name: str
    folder: str
    summary: str
    page: str  # the name of its page, without a suffix


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
    listed = _listed(tree) or _defined(tree)
    for name in listed:
        home = homes.get(name, f"{PACKAGE}.{package}")
        below = home.removeprefix(f"{PACKAGE}.{package}").strip(".").split(".")
        # `Detector.html` and `detector.html` are one file where the file system ignores case.
        is_shared = name.islower() and name in {other.lower() for other in listed if other != name}
        page = f"{name}_function" if is_shared else name
        found.append(Name(name, below[0], _summary(root, home, name), page))
    return sorted(found, key=lambda each: (each.name.lower(), each.name))


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


def grouped(package: str, names: list[Name]) -> list[tuple[str, list[Name]]]:
    """The names of `layers` under the titles of `GROUPS`; those of others without a title."""
    if package != "layers":
        return [("", names)]
    titles = {folder: title for title, folders in GROUPS.items() for folder in folders}
    return [
        (title, [name for name in names if titles.get(name.folder, OTHERS) == title])
        for title in (*GROUPS, OTHERS)
    ]


def index(root: pathlib.Path, package: str) -> str:
    """The page of a package: its docstring, and a table of its names."""
    path = f"{PACKAGE}.{package}"
    lines = [
        BELOW_GUIDES,
        f"# {PAGES[package]}",
        "",
        f"`{path}`",
        "",
        ast.get_docstring(_read(root, path)) or "",
    ]
    for title, names in grouped(package, public(root, package)):
        lines += ["", f"## {title}"] if title else []
        lines += ["", "| name | what it is |", "| --- | --- |"]
        for name in names:
            summary = name.summary.replace("|", "\\|")
            lines.append(f"| [`{name.name}`]({name.page}.md) | {summary} |")
    return "\n".join(lines) + "\n"


def summary(root: pathlib.Path, package: str) -> str:
    """The list of a package's pages, for the navigation."""
    lines = [f"* [{PAGES[package]}](index.md)"]
    for title, names in grouped(package, public(root, package)):
        lines += [f"* {title}"] if title else []
        indent = "    " if title else ""
        lines += [f"{indent}* [{name.name}]({name.page}.md)" for name in names]
    return "\n".join(lines) + "\n"


def folder(package: str) -> str:
    """The folder of a package's pages."""
    return f"reference/{package.replace('.', '_')}"


def pages(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Address and text of each page in the folder `reference`, and of the lists of pages."""
    listed = ["* [Reference](index.md)"]
    table = ["| package | what is in it |", "| --- | --- |"]
    for package, title in PAGES.items():
        start = folder(package)
        yield f"{start}/index.md", index(root, package)
        yield f"{start}/SUMMARY.md", summary(root, package)
        for name in public(root, package):
            yield f"{start}/{name.page}.md", PAGE.format(package=package, name=name.name)
        below = start.removeprefix("reference/")
        listed.append(f"* [{title}]({below}/)")
        first = _first(ast.get_docstring(_read(root, f"{PACKAGE}.{package}")))
        table.append(f"| [`{package}`]({below}/index.md) | {first} |")
    about = "A page for each public class and function, from docstrings and signatures."
    start = f"# Reference\n\n{about}\n\n"
    yield "reference/index.md", start + "\n".join(table) + "\n"
    yield "reference/SUMMARY.md", "\n".join(listed) + "\n"


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    for address, text in pages(root):
        is_list = address.endswith("SUMMARY.md")  # for the navigation; it is no page
        inclusion = InclusionLevel.EXCLUDED if is_list else InclusionLevel.UNDEFINED
        files.append(File.generated(config, address, content=text, inclusion=inclusion))
    config.extra["names"] = addresses(root)
    return files


def addresses(root: pathlib.Path) -> dict[str, str]:
    """Where a name in code leads: `layers.ALiBi`, and `ALiBi` where only one package has it."""
    found = {
        f"{package}.{name.name}": f"{folder(package)}/{name.page}.html"
        for package in PAGES
        for name in public(root, package)
    }
    short = collections.Counter(name.rpartition(".")[2] for name in found)
    for name, address in list(found.items()):
        last = name.rpartition(".")[2]
        if short[last] == 1 and len(re.findall("[A-Z]", last)) > 1:  # no word of other meaning
            found[last] = address
    return found


def on_page_content(content, page, config, **_):
    """Links names in code to the reference, and takes the sources out while search reads a page."""
    taken = page.meta["sources"] = SOURCE.findall(content)
    numbers = iter(range(len(taken)))
    content = SOURCE.sub(lambda _: f"<!-- source {next(numbers)} -->", content)
    up = "../" * page.file.src_uri.count("/")
    if "package" in page.meta:
        line = f"from {page.meta['package']} import {page.title}"
        content = content.replace("</h1>", f"</h1>\n<p><code>{line}</code></p>", 1)

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
