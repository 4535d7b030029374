"""Minutes of each notebook from top to bottom; the outputs are stored in the notebooks.

    python -m benchmarks.notebooks                  # all of them
    python -m benchmarks.notebooks 7_find_boxes     # one

Each notebook runs in an empty folder and in a kernel of its own. Its pictures are made smaller, so
that the notebooks stay small files. Warnings and progress are left out.
"""

import base64
import io
import itertools
import json
import os
import pathlib
import re
import resource
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient
from PIL import Image

from benchmarks import report

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
NAME = "notebooks"
WHAT = (
    "Minutes of each notebook from top to bottom, in a kernel of its own, and the CPU time of both "
    "cores together. Other programs ran beside them, which the minutes include."
)
WIDTH = 760  # pixels: the column of text on the site
WIDTH_OF_PHOTOGRAPHS = 600
COLORS = 160
LARGE = 40_000  # bytes
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")  # of an object in memory, which says nothing to readers
MEASURED = re.compile(r"Measured: .*?\)\.")  # the sentence in the first cell of a notebook


def smaller_picture(encoded):
    """The kind and the base64 of a picture that is no wider than the column of text.

    It becomes a PNG with a palette, or, if that is large as of a photograph, a JPEG.
    """
    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    picture.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
    stream, kind = io.BytesIO(), "image/png"
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(stream, "png", optimize=True)
    if stream.tell() > LARGE:
        stream, kind = io.BytesIO(), "image/jpeg"
        picture.thumbnail((WIDTH_OF_PHOTOGRAPHS, WIDTH_OF_PHOTOGRAPHS), Image.Resampling.LANCZOS)
        picture.save(stream, "jpeg", quality=40, optimize=True)
    return kind, base64.b64encode(stream.getvalue()).decode()


def final_text(text):
    """The text as a terminal shows it in the end, without log lines and folders of the machine."""
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    lines = (re.split(r"\r|\x08+", line.rstrip("\r\x08"))[-1].rstrip() for line in text.split("\n"))
    text = "\n".join(line for line in lines if not line.startswith("INFO:"))
    return text.replace(f"{ROOT}/", "")


def stored_outputs(outputs):
    """The outputs of a cell as they are stored: what it printed, and small pictures."""
    stored = []
    for kind, group in itertools.groupby(outputs, lambda output: output.output_type):
        if kind == "stream":
            text = final_text("".join(part.text for part in group if part.name == "stdout"))
            lines = text.strip("\n").splitlines(keepends=True)
            stored += [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            continue
        for output in group:
            if "image/png" in output.data:
                kind, picture = smaller_picture(output.data["image/png"])
                data = {kind: picture}
            elif ADDRESS.search(output.data["text/plain"]):
                continue
            else:
                data = {"text/plain": output.data["text/plain"].splitlines(keepends=True)}
            stored.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return stored


def run(path):
    """Runs a notebook; returns it as nbformat has it, its seconds, and those of CPU time."""
    notebook = nbformat.read(path, as_version=4)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=where).execute()
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return notebook, seconds, cpu_seconds


def store(path, executed, minutes, machine):
    """Writes the outputs of a run, and its minutes, into the file of the notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell, run_cell in zip(notebook["cells"], executed.cells, strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = stored_outputs(run_cell.outputs)
    sentence = (
        f"Measured: {minutes['minutes']} minutes, {minutes['CPU minutes']} minutes of CPU time "
        f"({machine})."
    )
    first = "".join(notebook["cells"][0]["source"])
    notebook["cells"][0]["source"] = MEASURED.sub(sentence, first).splitlines(keepends=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def main(names):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    written = report.FOLDER / f"{NAME}.json"
    before = json.loads(written.read_text())["notebooks"] if written.exists() else {}
    result = {"what": WHAT, **report.heading("keras", "tensorflow"), "notebooks": before}
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        executed, seconds, cpu_seconds = run(path)
        minutes = {"minutes": round(seconds / 60, 1), "CPU minutes": round(cpu_seconds / 60, 1)}
        before[path.stem] = minutes
        store(path, executed, minutes, result["machine"])
        report.write(NAME, result)


if __name__ == "__main__":
    main(sys.argv[1:])
