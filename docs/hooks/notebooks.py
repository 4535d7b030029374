"""Each notebook as a page, and the notebooks themselves to download, both beside the index."""

import json
import pathlib
import re

from mkdocs.structure.files import File

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
LINKS = "../../notebooks/"  # as the index has them, which is read without the site, too


def on_files(files, config):
    for path in sorted(FOLDER.glob("*.ipynb")):
        page = File.generated(config, f"notebooks/{path.stem}.md", content=_markdown(path))
        files.append(page)
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri == "notebooks/index.md":
        return markdown.replace(LINKS, "").replace(".ipynb)", ".md)")
    return None


def _markdown(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first, *others = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    badge = re.compile(r"^\[!\[Open in Colab.*\n?", re.MULTILINE)  # a picture from outside
    parts = [badge.sub("", first[1]), f"[Download the notebook]({path.name})"]
    for kind, text in others:
        parts.append(text if kind == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
