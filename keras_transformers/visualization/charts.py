"""Charts of numbers: training curves, grouped bars, comparisons and confusion matrices."""

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, StrPath, Values
from keras_transformers.visualization.style import (
    FAINT,
    MARKERS,
    SERIES,
    SHARES,
    SMALL,
    headline,
    legend_above,
    make_panels,
    one_panel,
    save,
    short,
    styled,
)

FALLING = ("loss", "entropy", "perplexity", "error")  # in the name of what is best when least
UNITS = {
    "cross entropy": "nats",
    "accuracy": "share of all, 0 to 1",
    "bleu": "BLEU, 0 to 100",
    "chrf": "chrF, 0 to 100",
    "seconds": "seconds",
    "tokens per second": "tokens a second",
}


@styled
def training_curves(
    history: Mapping[str, Sequence[float]], path: StrPath, groups: Iterable[str] | None = None
) -> pathlib.Path:
    """Draws a training history: a panel for each name, with its training and validation values.

    A ring marks the best epoch of the validation: the lowest loss, entropy, perplexity or error,
    the highest of all else. Where there is one epoch only, its value is written beside its dot.

    Args:
        history: Dict of name -> list of numbers, one an epoch, as `History.history` is; those that
            are not finite are left out.
        path: PNG file to write.
        groups: Names to draw, without "val_"; by default all.

    Returns:
        The path.

    Raises:
        ValueError: If there is nothing to draw.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import training_curves
    >>> history = {"loss": [3.0, 2.0], "val_loss": [3.1, 2.5]}
    >>> training_curves(history, tempfile.mkdtemp() + "/curves.png").name
    'curves.png'
    """
    names = list(dict.fromkeys(name.removeprefix("val_") for name in history))
    groups = [name for name in names if groups is None or name in groups]
    if not groups:
        raise ValueError(f"training_curves: `history` must have values. Received: {names}")
    epochs = max(map(len, history.values()))
    figure, panels = make_panels(len(groups), 3, 3.9, 2.9, extra_height=0.3)  # of the legend
    legend: dict[str, Any] = {}
    for axes, name in zip(panels, groups, strict=True):
        title = name.replace("_", " ")
        axes.set(title=title, xlabel="epoch", ylabel=UNITS.get(title, title))
        axes.set_xlim(0.5, epochs + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(True)
        axes.margins(y=0.12)
        for i, (column, label) in enumerate(((name, "training"), (f"val_{name}", "validation"))):
            values = np.asarray(history.get(column, []), "float64")
            known = np.flatnonzero(np.isfinite(values))
            if len(known):
                style = {"color": SERIES[i], "marker": MARKERS[i], "markersize": 4}
                (legend[label],) = axes.plot(known + 1, values[known], **style)
                _mark(axes, known + 1, values[known], f"best {label}" if i else None, legend)
        if not axes.lines:
            axes.text(0.5, 0.5, "no value", transform=axes.transAxes, ha="center", color=FAINT)
    legend_above(figure, legend)
    return save(figure, path)


@styled
def learning_rate_range(
    rates: Values,
    losses: Values,
    path: StrPath,
    smoothed: Values | None = None,
    suggestion: float | None = None,
) -> pathlib.Path:
    """Draws the losses of a learning-rate range test over the rates, which have a logarithmic axis.

    Losses far above the first one, where training diverges, lie outside of the picture.

    Args:
        rates: Positive learning rates `(steps,)`, see `training.learning_rate_range_test`.
        losses: Losses `(steps,)`; those that are not finite are left out.
        path: PNG file to write.
        smoothed: Optional smoothed losses `(steps,)`.
        suggestion: Optional rate to mark.

    Returns:
        The path.

    Raises:
        ValueError: If there are no rates, one is not positive, or there are not as many losses.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import learning_rate_range
    >>> path = tempfile.mkdtemp() + "/rates.png"
    >>> learning_rate_range([1e-3, 1e-2, 1e-1], [2.0, 1.5, 9.0], path, suggestion=1e-2).name
    'rates.png'
    """
    rates, losses = np.asarray(rates, "float64"), np.asarray(losses, "float64")
    curves = {"loss of a step": losses}
    if smoothed is not None:
        curves["smoothed"] = np.asarray(smoothed, "float64")
    shapes = [rates.shape, *(curve.shape for curve in curves.values())]
    if rates.ndim != 1 or not len(rates) or not (rates > 0).all() or len(set(shapes)) > 1:
        raise ValueError(
            "learning_rate_range: `rates` must be positive, and `losses` and `smoothed` as many. "
            f"Received: shapes {', '.join(map(str, shapes))}"
        )
    figure, axes = one_panel(5.2, 3.4)
    axes.set(xlabel="learning rate", ylabel="loss", xscale="log")
    axes.grid(True)
    legend: dict[str, Any] = {}
    shades = ({"color": FAINT, "linewidth": 0.8}, {"color": SERIES[0]})
    for (label, curve), shade in zip(curves.items(), shades[2 - len(curves) :], strict=True):
        (legend[label],) = axes.plot(rates, curve, marker="", **shade)
    finite = losses[np.isfinite(losses)]
    if len(finite):  # from a little below the lowest to above the first
        height = max(finite[0] - finite.min(), 0.1 * abs(finite[0]), 1e-9)
        top = min(finite.max(), finite[0] + height) + 0.1 * height
        axes.set_ylim(finite.min() - 0.1 * height, top)
    if suggestion is not None:
        label = f"steepest descent: {suggestion:.2g}"
        legend[label] = axes.axvline(suggestion, color=SERIES[1], linestyle="--", linewidth=1.2)
    legend_above(figure, legend)
    return save(figure, path)


def _mark(
    axes: Any, epochs: Array, values: Array, best: str | None, legend: dict[str, Any]
) -> None:
    """Writes the one value there is, or puts a ring around the best of several."""
    if len(values) == 1:
        offset = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{values[0]:.3g}", (epochs[0], values[0]), fontsize=SMALL, **offset)
    elif best is not None:
        falls = any(word in axes.get_title(loc="left") for word in FALLING)
        at = values.argmin() if falls else values.argmax()
        ring = {"markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.6}
        color = axes.lines[-1].get_color()
        (legend[best],) = axes.plot(
            epochs[at], values[at], "o", linestyle="none", color=color, **ring
        )


WIDTH = 0.8  # of all bars of a group together
FEWEST = 4  # groups that a panel has room for


@styled
def grouped_bars(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]], path: StrPath
) -> pathlib.Path:
    """Draws a panel of bars for each title: groups side by side, in each a bar for each system.

    Args:
        panels: Dict of title -> dict of system -> dict of group -> number. A group that a system
            does not have gets no bar. Titles without any group are left out.
        path: PNG file to write.

    Returns:
        The path.

    Raises:
        ValueError: If there is nothing to draw.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import grouped_bars
    >>> panels = {"chrF by words": {"old": {"1-2": 60.1, "3-5": 51.0}, "new": {"1-2": 63.0}}}
    >>> grouped_bars(panels, tempfile.mkdtemp() + "/bars.png").name
    'bars.png'
    """
    groups = {
        title: list(dict.fromkeys(group for row in systems.values() for group in row))
        for title, systems in panels.items()
    }
    titles = [title for title in panels if groups[title]]
    if not titles:
        raise ValueError(f"grouped_bars: `panels` must have groups. Received: {dict(panels)}")
    names = list(dict.fromkeys(name for title in titles for name in panels[title]))
    colors = [SERIES[i % len(SERIES)] for i in range(len(names))]
    figure, axes = make_panels(len(titles), 2, 5.2, 2.9, extra_height=0.3)  # of the legend
    legend = {}
    for panel, title in zip(axes, titles, strict=True):
        x = np.arange(len(groups[title]))
        for i, name in enumerate(names):
            row = panels[title].get(name, {})
            heights = [row.get(group, np.nan) for group in groups[title]]
            offset = (i - (len(names) - 1) / 2) * WIDTH / len(names)
            bars = panel.bar(x + offset, heights, 0.94 * WIDTH / len(names), color=colors[i])
            legend[name] = bars
            if len(names) * len(x) <= 12:
                panel.bar_label(bars, fmt="{:.3g}", fontsize=SMALL, padding=1)
        panel.set_xticks(x, [short(group) for group in groups[title]])
        room = max(FEWEST - len(x), 0) / 2  # so that one bar does not fill its panel
        panel.set_xlim(-0.6 - room, len(x) - 0.4 + room)
        panel.set_title(title)
        panel.margins(y=0.12)
        panel.grid(True, axis="y")
    if len(names) > 1:
        legend_above(figure, legend)
    return save(figure, path)


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
