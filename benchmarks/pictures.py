"""Draws the pictures of the results, from nothing but `benchmarks/results/NAME.json`.

    python -m benchmarks.pictures                # all
    python -m benchmarks.pictures costs mixers   # some

Every benchmark that has a picture draws it at its end; this draws it again without measuring.
"""

import json
import pathlib
import sys

import numpy as np

from benchmarks.report import FOLDER
from keras_transformers.visualization import comparison
from keras_transformers.visualization.style import (
    SERIES,
    label_ends,
    legend_above,
    make_panels,
    save,
    styled,
)

MIXERS = pathlib.Path(__file__).parent.parent / "recipes" / "figures" / "mixers.png"
TOKENS = 8192  # of a batch of `benchmarks.attention`
OF_PASSES = ("keras_transformers", "Keras", "PyTorch")
OF_DECODERS = ("keras_transformers", "CTranslate2")


def draw(*names):
    """Draws what there is of these results."""
    for name in names:
        result = json.loads((FOLDER / f"{name}.json").read_text())
        DRAWN[name](result)


@styled
def over(path, x, series, xlabel, ylabel):
    """One line a series over `x`, which doubles from tick to tick, each labelled at its end."""
    figure, (axes,) = make_panels(1, 1, 6.2, 3.6)
    for label, y in series.items():
        axes.plot(x, y, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(x), [f"{each:,}" for each in x])
    axes.minorticks_off()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.grid(True)
    label_ends(axes)
    return save(figure, path)


def attention(result):
    """Microseconds a token against the length, in batches of as many tokens."""
    rows = {int(key.removeprefix("length ")): row for key, row in result["rows"].items()}
    series = {
        name: [1e3 * row.get(f"{name} milliseconds", np.nan) / TOKENS for row in rows.values()]
        for name in OF_PASSES
    }
    ylabel = "microseconds a token, forward and backward"
    over(FOLDER / "attention.png", list(rows), series, "length, tokens", ylabel)


def decoding(result):
    """Milliseconds a token against the batch, and against what is to be written."""
    for along, unit in (("batch", "rows"), ("new tokens", "a row")):
        rows = result.get(f"milliseconds a token against {along}", {})
        rows = {int(key): row for key, row in rows.items() if key.isdigit()}
        if rows:
            series = {each: [row[each] for row in rows.values()] for each in OF_DECODERS}
            path = FOLDER / f"decoding_{along.replace(' ', '_')}.png"
            over(path, list(rows), series, f"{along}, {unit}", "milliseconds a token")


def image_costs(result):
    """Milliseconds a block against the side of the image."""
    points = result["area"]
    sides = [point["pixels"] for point in next(iter(points.values()))]
    series = {name: [point["milliseconds"] for point in row] for name, row in points.items()}
    path = FOLDER / "image_costs.png"
    over(path, sides, series, "side of the image, pixels", "milliseconds a block")


@styled
def costs(result):
    """Operations against length and width; a colour says how they grow by the formula."""
    figure, panels = make_panels(2, 2, 5.6, 4.4, extra_height=0.3)  # of the legend
    legend = {}
    sizes = {"length": ("tokens", "width"), "width": ("numbers a token", "length")}
    for axes, (along, (unit, other)) in zip(panels, sizes.items(), strict=True):
        for kind, both in result["points"].items():
            points = both[along]
            if points[-1][along] < max(p[along] for p in result["points"]["Fourier"][along]):
                continue  # measured at smaller sizes
            grows = result["rows"][kind][f"table: {along}"]
            color = SERIES[round(grows) - 1]
            x, y = zip(*((point[along], point["operations"]) for point in points), strict=True)
            (line,) = axes.loglog(x, y, color=color, marker="o", label=kind)
            legend[("linear", "quadratic")[round(grows) - 1] + " by the formula"] = line
        at = points[0][other]
        axes.set_xticks(x, [f"{each:,}" for each in x])
        axes.minorticks_off()
        axes.set(xlabel=f"{along}, {unit} ({other} {at:,})", ylabel="operations")
        axes.grid(True)
        label_ends(axes)
    legend_above(figure, dict(sorted(legend.items())))
    save(figure, FOLDER / "costs.png")


@styled
def language_modeling(result):
    """Training loss over time; ours is the mean of each epoch so far, PyTorch's of 100 steps."""
    figure, (axes,) = make_panels(1, 1, 6.2, 3.6)
    for name, color in (("ours", SERIES[0]), ("PyTorch", SERIES[1])):
        seconds, losses, *valid = zip(*result["curves"][name], strict=True)
        axes.plot(seconds, losses, color=color, marker="o", label=f"{name}, training")
        for values in valid:
            style = {"color": color, "marker": "s", "linestyle": "--"}
            axes.plot(seconds, values, label=f"{name}, validation", **style)
    axes.set(xlabel="seconds", ylabel="loss, nats a token")
    axes.grid(True)
    label_ends(axes)
    save(figure, FOLDER / "language_modeling.png")


def mixers(result):
    """Accuracy of each mixer beside what it costs."""
    names = {"images": "images, % right", "passages": "passages, % right"}
    costs = {
        "parameters": "parameters",
        "megaflop_an_image": "MFLOP an image",
        "seconds_an_epoch_of_images": "seconds an epoch",
    }
    rows = {
        mixer: {name: row[task]["mean"] for task, name in names.items()}
        | {task: row[task]["deviation"] for task in names}
        | {name: row[cost] for cost, name in costs.items()}
        for mixer, row in result["rows"].items()
    }
    columns = [*names.values(), *costs.values()]
    comparison(rows, MIXERS, columns, {name: task for task, name in names.items()})


DRAWN = {
    each.__name__: each for each in (attention, costs, decoding, image_costs, language_modeling)
}
DRAWN["mixers"] = mixers


if __name__ == "__main__":
    draw(*(sys.argv[1:] or DRAWN))
