"""Comparisons and confusion matrices."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import StrPath, Values
from keras_transformers.extras import needed_by
from keras_transformers.visualization.panels import headline, make_panels, one_panel, save, short
from keras_transformers.visualization.style import SERIES, SHARES, SMALL, styled

MOST_ROWS = 60  # of a comparison
MOST_CLASSES = 40  # of a confusion matrix: some 2,900 pixels a side


@styled
def comparison(
    rows: Mapping[str, Mapping[str, float]],
    path: StrPath,
    columns: Sequence[str],
    spreads: Mapping[str, str] | None = None,
    logarithmic: Sequence[str] = (),
    title: str | None = None,
) -> pathlib.Path:
    """Draws what is gained beside what it costs: a row of dots for each name, one a panel.

    Rows are in the order of the first column, its largest number on top.

    Args:
        rows: Dict of label -> dict of column -> number. A column that a row does not have, or
            that is not finite, gets no dot.
        path: PNG file to write.
        columns: Those to draw, a panel each.
        spreads: Optional dict of column -> column that has the half-length of its error bars.
        logarithmic: Columns on a logarithmic axis.
        title: Of the picture, optional.

    Returns:
        The path.

    Raises:
        ValueError: If there are no rows or no columns.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import comparison
    >>> rows = {"a": {"score": 0.7, "cost": 3.0}, "b": {"score": 0.8, "cost": 30.0}}
    >>> comparison(rows, tempfile.mkdtemp() + "/c.png", ["score", "cost"],
    ...            logarithmic=["cost"]).name
    'c.png'
    """
    if not rows or not columns:
        received = f"{len(rows)} rows, columns {list(columns)}"
        raise ValueError(f"comparison: there must be rows and columns. Received: {received}")
    first = {label: row.get(columns[0], math.nan) for label, row in rows.items()}
    labels = sorted(rows, key=lambda label: (math.isnan(first[label]), -first[label]))
    shown, y = _ends(labels, MOST_ROWS), {}
    y = {label: i for i, label in enumerate(shown) if label is not None}
    figure, panels = make_panels(len(columns), len(columns), 2.3, 1.1 + 0.2 * len(shown))
    for i, (axes, column) in enumerate(zip(panels, columns, strict=True)):
        spread = (spreads or {}).get(column)
        style = {"fmt": "o", "color": SERIES[i % len(SERIES)], "capsize": 2.5, "elinewidth": 1.2}
        dots = {label: rows[label][column] for label in y if column in rows[label]}
        error = None if spread is None else [rows[label].get(spread, 0) for label in dots]
        axes.errorbar(list(dots.values()), [y[label] for label in dots], xerr=error, **style)
        axes.set_xscale("log" if column in logarithmic else "linear")
        _few_ticks(axes.xaxis, column in logarithmic)
        axes.set_xlabel(column.replace("_", " "))
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_yticks(range(len(shown)), [""] * len(shown) if i else [_label(x) for x in shown])
        axes.tick_params(axis="y", length=0)
        axes.grid(True, axis="both")
    headline(figure, title)
    return save(figure, path)


def _ends(labels: list[str], most: int) -> list[str | None]:
    """All labels, or of too many the first and the last, with None for those between."""
    half = most // 2
    return [*labels] if len(labels) <= most else [*labels[:half], None, *labels[-half:]]


def _label(name: str | None) -> str:
    return "…" if name is None else short(name).replace("_", " ")


def _few_ticks(axis: Any, logarithmic: bool) -> None:
    """Two to four numbers along a narrow axis, written in full."""
    with needed_by("drawing"):
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    long = max(len(f"{number:,.5g}") for number in (low, high)) > 5
    decades = logarithmic and high > 20 * low
    axis.set_major_locator(LogLocator(numticks=3) if decades else MaxNLocator(2 if long else 3))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))


@styled
def confusion_matrix(
    counts: Values, classes: Sequence[str], path: StrPath, most: int = MOST_CLASSES
) -> pathlib.Path:
    """Draws a confusion matrix, shaded by the share of each true class.

    Args:
        counts: `(classes, classes)` integers: true class, then predicted class.
        classes: Their names.
        path: PNG file to write.
        most: How many classes are drawn at most; of more, those that are most confused.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import confusion_matrix
    >>> confusion_matrix([[3, 1], [0, 4]], ["a", "b"], tempfile.mkdtemp() + "/counts.png").name
    'counts.png'
    """
    counts, of = np.asarray(counts), len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # also of what is not drawn
    shown = most_confused(counts, most)
    counts, shares = (each[np.ix_(shown, shown)] for each in (counts, shares))
    names = [short(classes[i]) for i in shown]
    side = 2.5 + 0.42 * len(names)
    figure, axes = one_panel(side + 1, side)
    image = axes.imshow(shares, cmap=SHARES, vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if len(names) < of:
        axes.set_title(f"The {len(names)} of {of:,} classes that are most confused")
    if len(names) <= 30:
        for (row, column), number in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.6 else "black"
            axes.text(column, row, number or "", ha="center", va="center", color=color, size=SMALL)
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    return save(figure, path)


def most_confused(counts: Values, most: int) -> list[int]:
    """Numbers of at most `most` classes, in order: the pairs that are confused most often first.

    Example:
    >>> from keras_transformers.visualization import most_confused
    >>> most_confused([[9, 0, 5], [1, 9, 0], [0, 0, 9]], 2)
    [0, 2]
    """
    counts = np.array(counts, "int64")
    if len(counts) <= most:
        return list(range(len(counts)))
    np.fill_diagonal(counts, -1)
    chosen: dict[int, None] = {}  # keeps the order
    order = np.argsort(-counts, axis=None, kind="stable")
    for pair in zip(*np.unravel_index(order, counts.shape), strict=True):
        chosen.update(dict.fromkeys(map(int, pair)))
        if len(chosen) >= most:
            break
    return sorted(list(chosen)[:most])
