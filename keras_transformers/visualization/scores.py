"""Training histories, comparisons and confusion matrices."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_transformers.annotations import StrPath, Values
from keras_transformers.visualization.panels import make_panels, one_panel, save, short

MOST_CLASSES = 40  # of a confusion matrix: 2,700 pixels a side


def training_curves(
    history: Mapping[str, Sequence[float]], path: StrPath, groups: Iterable[str] | None = None
) -> pathlib.Path:
    """Draws a training history: a panel for each name, with its training and validation values.

    Args:
        history: Dict of name -> list of numbers, one an epoch, as `History.history` is; those that
            are not finite are left out.
        path: PNG file to write.
        groups: Names to draw, without "val_"; by default all.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import training_curves
    >>> history = {"loss": [3.0, 2.0], "val_loss": [3.1, 2.5]}
    >>> training_curves(history, tempfile.mkdtemp() + "/curves.png").name
    'curves.png'
    """
    names = list(dict.fromkeys(name.removeprefix("val_") for name in history))
    groups = [name for name in names if groups is None or name in groups]
    epochs = max(map(len, history.values()))
    figure, panels = make_panels(len(groups), 3, 4.2, 3.2)
    for axes, name in zip(panels, groups, strict=True):
        for column, label, color in ((name, "training", "C0"), (f"val_{name}", "validation", "C1")):
            if column in history:
                values = np.asarray(history[column], "float64")
                known = np.flatnonzero(np.isfinite(values))
                axes.plot(known + 1, values[known], "o-", color=color, label=label, markersize=3)
        axes.set(title=name.replace("_", " "), xlabel="epoch", xlim=(0.5, epochs + 0.5))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    return save(figure, path)


def comparison(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]],
    path: StrPath,
    y: str,
    x: Sequence[str],
    spread: str | None = None,
) -> pathlib.Path:
    """Draws one figure against several others: what is gained beside what it costs.

    Args:
        panels: Dict of title -> dict of label -> dict of numbers; a row of panels for each title.
        path: PNG file to write.
        y: Name of the number on the vertical axis.
        x: Names of those on the horizontal axes, one panel each, logarithmic.
        spread: Optional name of a number, the half-length of an error bar of `y`.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import comparison
    >>> rows = {"a": {"score": 0.7, "cost": 3.0}, "b": {"score": 0.8, "cost": 30.0}}
    >>> comparison({"task": rows}, tempfile.mkdtemp() + "/c.png", y="score", x=("cost",)).name
    'c.png'
    """
    figure, axes = make_panels(len(panels) * len(x), len(x), 5.5, 4.5)
    cells = [(title, column) for title in panels for column in x]
    for panel, (title, column) in zip(axes, cells, strict=True):
        for label, row in panels[title].items():
            error = None if spread is None else row[spread]
            panel.errorbar(row[column], row[y], yerr=error, fmt="o", capsize=2)
            panel.annotate(
                label, (row[column], row[y]), xytext=(4, 3), textcoords="offset points", fontsize=7
            )
        panel.set_xscale("log")
        for formatter in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
            formatter(lambda value, _: f"{value:,g}")  # 40,000, and no 4 times 10^4
        panel.tick_params(which="both", labelsize=8)
        panel.xaxis.set_tick_params(which="both", rotation=45)
        panel.set_xlabel(column.replace("_", " "))
        panel.set_ylabel(y.replace("_", " "))
        panel.set_title(title, fontsize=9)
        panel.grid(alpha=0.3)
    return save(figure, path)


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
    side = 2.5 + 0.5 * len(names)
    figure, axes = one_panel(side + 1, side)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(names) < of:
        axes.set_title(f"The {len(names)} of {of:,} classes that are most confused")
    if len(names) <= 30:
        for (row, column), number in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.6 else "black"
            axes.text(column, row, number or "", ha="center", va="center", color=color, size=8)
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
