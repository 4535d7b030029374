"""Training histories."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath, Values
from keras_transformers.visualization.panels import legend_above, make_panels, one_panel, save
from keras_transformers.visualization.style import FAINT, MARKERS, SERIES, SMALL, styled

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
