"""A page for each result in `benchmarks/results`: the command that measured it, and its figures."""

import ast
import json
import pathlib
import re
from collections.abc import Iterator

from mkdocs.structure.files import File, InclusionLevel

OF_ONE_MODULE = {  # results whose names do not begin with that of their module
    "serving_soak": "tests/serving/__main__.py",
    "serving_versions": "tests/serving/__main__.py",
    "swin_training": "benchmarks/image_training.py",
    "vit_training": "benchmarks/image_training.py",
}


FAR_DOWN = "---\nsearch: {boost: 0.02}\n---"  # in the results of a search
ABOVE = ("what", "date", "machine", "versions")  # what stands above every result


def module(root: pathlib.Path, name: str) -> pathlib.Path:
    """The source of what measured `benchmarks/results/NAME.json`."""
    if name in OF_ONE_MODULE:
        return root / OF_ONE_MODULE[name]
    words = name.split("_")
    for count in range(len(words), 0, -1):
        path = root / "benchmarks" / "_".join(words[:count])
        for source in (path.with_suffix(".py"), path / "__main__.py"):
            if source.exists():
                return source
    raise LookupError(f"no module of benchmarks measures {name}: name it in OF_ONE_MODULE")


def about(source: pathlib.Path) -> tuple[str, str]:
    """What a module says of itself: its first line, and the rest, its commands fenced."""
    first, _, rest = (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n\n")
    fenced = re.sub(
        r"(?m)^((?: {4}.*\n)+)",
        lambda found: f"```bash\n{re.sub('(?m)^ {4}', '', found[1])}```\n",
        rest + "\n",
    )
    return first.replace("\n", " "), fenced


def _told(root: pathlib.Path, name: str, held: dict[str, object]) -> tuple[str, str]:
    """What is measured, and how: by the module that measures it, or else by the result itself."""
    try:
        return about(module(root, name))
    except LookupError:
        if "what" not in held:
            raise
        return str(held["what"]), ""


def figures(result: pathlib.Path) -> str:
    """The tables of a result as it wrote them, or else those that its JSON makes."""
    written = result.with_suffix(".md")
    if written.exists():
        return re.sub(r"\A# .*\n+", "", written.read_text())
    held = json.loads(result.read_text())
    versions = ", ".join(" ".join(each) for each in held["versions"].items())
    rest = {key: value for key, value in held.items() if key not in ABOVE}
    return f"{held['date']}, {held['machine']}; {versions}.\n\n{section('', rest)}"


def section(title: str, held: dict[str, object], level: int = 1) -> str:
    """A heading, and below it a record, a table of rows, or more sections."""
    shown = title[:1].upper() + title[1:].replace("_", " ")
    parts = [f"{'#' * level} {shown}"] if title else []
    inner = {key: value for key, value in held.items() if isinstance(value, dict)}
    if not title or any({"date", "what"} & value.keys() for value in inner.values()):
        plain = {key: value for key, value in held.items() if key not in inner}
        parts += [_record(plain)] if plain else []
        parts += [section(key, value, level + 1) for key, value in inner.items()]
    elif len(inner) == len(held):
        parts.append(table({key: _flat(row) for key, row in inner.items()}))
    else:
        parts.append(_record(held))
    return "\n\n".join(parts)


def _record(held: dict[str, object]) -> str:
    """What was measured, by which command, and the figures, a line each."""
    parts = [str(held["what"])] if "what" in held else []
    parts += [f"```bash\n{held['command']}\n```"] if "command" in held else []
    figures = _flat({key: each for key, each in held.items() if key not in ("what", "command")})
    return "\n\n".join([*parts, table({key: {"": value} for key, value in figures.items()}, "")])


def _flat(held: dict[str, object], before: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in held.items():
        found |= (
            _flat(value, f"{before}{key}, ") if isinstance(value, dict) else {before + key: value}
        )
    return found


def table(rows: dict[str, dict[str, object]], first: str = "candidate") -> str:
    """A Markdown table of rows with the same keys."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    lines = [[first, *columns], ["---", *("---:" for _ in columns)]]
    lines += [[name, *(_cell(row.get(key, "")) for key in columns)] for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |".replace("_", " ") for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ("; " if any(isinstance(each, dict) for each in value) else ", ").join(
            map(_cell, value)
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return str(value).replace("|", "\\|")


def pages(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    """What the folder `benchmarks/results` holds: address and text of each page, their list."""
    results = sorted((root / "benchmarks" / "results").glob("*.json"))
    listed = ["* [All results](index.md)"]
    index = ["| result | what is measured | when |", "| --- | --- | --- |"]
    for result in results:
        name, title = result.stem, result.stem.replace("_", " ").capitalize()
        held = json.loads(result.read_text())
        first, rest = _told(root, name, held)
        pictures = [
            f"![{picture.stem.replace('_', ' ')}]({picture.name})"
            for picture in sorted(result.parent.glob(f"{name}*.png"))
        ]
        where = f"All figures: `{result.relative_to(root)}`."
        text = [FAR_DOWN, f"# {title}", first, rest, where, figures(result), *pictures]
        yield f"benchmarks/results/{name}.md", "\n\n".join(text) + "\n"
        listed.append(f"* [{title}]({name}.md)")
        index.append(f"| [{title}]({name}.md) | {first} | {held['date']} |")
    about = "What was measured, on what, when, and by which command."
    start = f"{FAR_DOWN}\n\n# All results\n\n{about}\n\n"
    yield "benchmarks/results/index.md", start + "\n".join(index) + "\n"
    yield "benchmarks/results/SUMMARY.md", "\n".join(listed) + "\n"


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    for address, text in pages(root):
        is_list = address.endswith("SUMMARY.md")  # for the navigation; it is no page
        inclusion = InclusionLevel.EXCLUDED if is_list else InclusionLevel.UNDEFINED
        files.append(File.generated(config, address, content=text, inclusion=inclusion))
    return files
