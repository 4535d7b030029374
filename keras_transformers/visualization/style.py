"""The style of all figures, and the parts that they share: panels, labels, legends, files.

The paper is white and opaque, on purpose: ink that is legible on white as well as on black would be
grey, and faint on both. On a dark page a figure is a sheet with a margin of its own.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, StrPath, Values

INK = "#1f2933"  # what is read
FAINT = "#5f6b7a"  # axes, and what is beside the point
GRID = "#dde2e8"
PAPER = "white"

# Okabe and Ito's colours, as far as they have contrast with white, and a rose. Normal eyes and
# those that lack red, green or blue tell each from the others.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc6699", "#333333")
MARKERS = ("o", "s", "^", "D", "v")  # a second sign of what a colour says
FOUND, TRUE = "#ff9f1c", "#19b5fe"  # boxes over photographs, which are dark and green

SHARES = "Blues"  # from nothing to all
SIGNED = "RdBu"  # white is 0
LIKENESS = "viridis"
WARMTH = "inferno"  # over images

TITLE, TEXT, SMALL = 10.5, 9.5, 8.5  # points
DPI = 144  # sharp at half of its size on a screen of twice the usual pixels

SETTINGS: dict[str, Any] = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "savefig.dpi": DPI,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": TEXT,
    "text.color": INK,
    "axes.titlesize": TITLE,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.labelsize": TEXT,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "figure.titlesize": TITLE,
    "figure.titleweight": "bold",
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """A function that draws, drawing in the one style and leaving matplotlib's settings alone.

    Example:
    >>> from keras_transformers.visualization.style import styled
    >>> @styled
    ... def size():
    ...     import matplotlib
    ...     return matplotlib.rcParams["axes.titlesize"]
    >>> size()
    10.5
    """

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with needed_by(f"visualization.{draw.__name__}"):
            import matplotlib
            from cycler import cycler  # comes with matplotlib

        cycle = cycler(color=SERIES) + cycler(marker=MARKERS)
        settings: Any = {**SETTINGS, "axes.prop_cycle": cycle}  # keys are literals to matplotlib
        with matplotlib.rc_context(settings):
            return draw(*args, **kwargs)

    return drawn


MOST_CHARACTERS = 40  # of a label
LARGE = 150_000  # bytes


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


def legend_above(figure: Any, handles: Mapping[str, Any]) -> None:
    """One legend for all panels, above them, where it covers nothing: label -> what was drawn."""
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper left", ncols=len(handles)
        )


def headline(figure: Any, title: str | None) -> None:
    """What stands above all panels, on the left as their own titles do."""
    if title:
        figure.suptitle(title, x=0.01, ha="left")


def label_ends(axes: Any) -> None:
    """Writes the label of each line at its end, in its colour, where none lies over another."""
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    axes.figure.draw_without_rendering()  # so that sizes are known
    to_axes = axes.transData + axes.transAxes.inverted()
    points = [line.get_xydata() for line in lines]
    ends = np.array([each[np.isfinite(each).all(axis=1)][-1] for each in points])
    height = axes.get_window_extent().height * 72 / axes.figure.dpi  # points
    heights = spread(to_axes.transform(ends)[:, 1], 1.3 * SMALL / height)
    for line, end, y in zip(lines, ends, heights, strict=True):
        color = line.get_color()
        axes.annotate(
            line.get_label(),
            end,
            (1.04, y),
            textcoords="axes fraction",
            va="center",
            color=color,
            fontsize=SMALL,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.6,
                "relpos": (0, 0.5),  # from the middle of the label's left side
            },
        )


def outline(axes: Any, box: Array, color: str, width: float) -> Any:
    """Draws a corner box `(left, top, right, bottom)` with a dark rim, seen on light and dark."""
    with needed_by("drawing"):
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

    left, top, right, bottom = box
    style: dict[str, Any] = {"fill": False, "edgecolor": color, "linewidth": width}
    rim = [withStroke(linewidth=width + 1.2, foreground=INK, alpha=0.6)]
    return axes.add_patch(
        Rectangle((left, top), right - left, bottom - top, path_effects=rim, **style)
    )


def spread(values: Values, gap: float) -> Array:
    """The numbers nearest to `values`, in their order, of which no two are nearer than `gap`.

    Nearest by the sum of squares: isotonic regression by pooling adjacent violators.

    Example:
    >>> from keras_transformers.visualization.style import spread
    >>> spread([0.5, 0.5, 1.0], 0.25).tolist()
    [0.375, 0.625, 1.0]
    """
    values = np.asarray(values, "float64")
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    pools: list[list[float]] = []  # sum and number, of values that must stand side by side
    for value in values[order] - steps:
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    found = np.empty(len(values))
    found[order] = [total / number for total, number in pools for _ in range(int(number))] + steps
    return found


def short(label: str) -> str:
    """A label that leaves room for what it labels, and in which a dollar is one."""
    label = str(label)
    label = label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"
    return label.replace("$", r"\$")


def save(figure: Any, path: StrPath) -> pathlib.Path:
    """Writes a figure to a file, whose folder is made, and gives its path.

    A large PNG file, as photographs make it, is written anew with a palette of 256 colours: two or
    three times as small, and hard to tell from the first.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    if path.suffix == ".png" and path.stat().st_size > LARGE:
        from PIL import Image  # comes with matplotlib

        method = Image.Quantize.MAXCOVERAGE  # keeps rare colours
        with Image.open(path) as image:
            few = image.convert("RGB").quantize(256, method, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    return path
