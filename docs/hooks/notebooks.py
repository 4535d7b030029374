"""Each notebook as a page with its outputs, and the notebooks themselves to download.

`python -m benchmarks.notebooks` runs the notebooks and stores their outputs.
"""

import base64
import json
import pathlib
import re

from mkdocs.structure.files import File

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
LINKS = "../../notebooks/"  # as the index has them, which is read without the site, too
BADGE = re.compile(r"^\[!\[Open in Colab.*\n?", re.MULTILINE)  # a picture from outside


def on_files(files, config):
    for path in sorted(FOLDER.glob("*.ipynb")):
        page, pictures = converted(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri == "notebooks/index.md":
        return markdown.replace(LINKS, "").replace(".ipynb)", ".md)")
    return None


def converted(path):
    """The notebook as Markdown, and its pictures by the names that the page gives them."""
    first, *others = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [BADGE.sub("", "".join(first["source"])), f"[Download the notebook]({path.name})"]
    pictures = {}
    for cell in others:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            kind = next((kind for kind in data if kind.startswith("image/")), None)
            if kind:
                name = f"{path.stem}_{len(pictures) + 1}.{kind.removeprefix('image/')}"
                pictures[name] = base64.b64decode(data[kind])
                parts.append(f"![What the cell above draws]({name})")
            else:
                printed = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"````text\n{printed.rstrip()}\n````")
    return "\n\n".join(parts) + "\n", pictures
