"""What every drawing is made with: panels, short labels, a file."""

import pathlib
from typing import Any

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.extras import needed_by

MOST_CHARACTERS = 40  # of a label


def make_panels(
    number: int, columns: int, width: float, height: float, extra_height: float = 0.0
) -> tuple[Any, Any]:
    """A figure and `number` axes in rows of at most `columns`, each of that size in inches."""
    with needed_by("drawing"):
        from matplotlib.figure import Figure  # no pyplot: works without a screen, leaks no figures

    columns = min(columns, number)
    rows = -(-number // columns)
    size = (width * columns, height * rows + extra_height)
    figure = Figure(figsize=size, layout="constrained")
    panels = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axes in panels[number:]:
        axes.set_axis_off()
    return figure, panels[:number]


def one_panel(width: float, height: float) -> tuple[Any, Any]:
    """A figure of one panel, and its axes."""
    figure, (axes,) = make_panels(1, 1, width, height)
    return figure, axes


def short(label: str) -> str:
    """A label that leaves room for what it labels, and in which a dollar is one."""
    label = str(label)
    label = label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"
    return label.replace("$", r"\$")


def save(figure: Any, path: StrPath) -> pathlib.Path:
    """Writes a figure to a file, whose folder is made, and gives its path."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
