"""Pictures outside of `docs`, which pages link to as in a clone, are inside on the site."""

import pathlib
import posixpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FOLDERS = {"recipes/figures": "images/recipes", "benchmarks/results": "benchmarks/results"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds those that are not there yet."""
    root = pathlib.Path(config.config_file_path).parent
    for folder, address in FOLDERS.items():
        for picture in sorted((root / folder).glob("*.png")):
            name = f"{address}/{picture.name}"
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Points links out of `docs` at these pictures."""
    start = posixpath.dirname(page.file.src_uri)
    out = posixpath.relpath("..", start or ".")
    for folder, address in FOLDERS.items():
        inside = posixpath.relpath(address, start or ".")
        markdown = markdown.replace(f"]({out}/{folder}/", f"]({inside}/")
    return markdown
