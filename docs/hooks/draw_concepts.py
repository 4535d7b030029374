"""Draws the pictures of the pages on concepts: `python docs/hooks/draw_concepts.py`.

What is drawn is computed by the library.
"""

import pathlib
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_transformers.layers import causal_mask, sinusoidal_encoding, window_mask
from keras_transformers.training import InverseSquareRoot, WarmupLinear
from keras_transformers.visualization.style import FAINT, INK, SERIES, SIGNED, styled

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def save(figure: Any, name: str) -> None:
    figure.savefig(IMAGES / f"concepts_{name}.png")
    plt.close(figure)


@styled
def positions(length: int = 64, width: int = 64) -> None:
    """The sinusoidal table, and the products of its rows."""
    table = ops.convert_to_numpy(sinusoidal_encoding(np.arange(length), width))
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    shown = left.imshow(table, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
    left.set(title="PE(pos, feature)", xlabel="feature", ylabel="position")
    figure.colorbar(shown, ax=left)
    for row, color in zip((8, 24, 40), SERIES, strict=False):
        right.plot(table[row] @ table.T, color=color, marker="", label=f"a = {row}")
    right.set(title="PE(a) . PE(b)", xlabel="b")
    right.legend()
    save(figure, "positions")


@styled
def schedules(steps: int = 20_000, warmup: int = 4000) -> None:
    """The two learning rates."""
    inverse = InverseSquareRoot(hidden_dim=512, warmup_steps=warmup)
    peak = float(inverse(warmup - 1))
    step = np.arange(0, steps, 20)
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    given = {"InverseSquareRoot(512, 4000)": inverse}
    given["WarmupLinear, same peak"] = WarmupLinear(peak, warmup, steps)
    for (label, schedule), line in zip(given.items(), ("-", "--"), strict=True):
        rate = ops.convert_to_numpy(schedule(step))
        axes.plot(step + 1, 1000 * rate, line, marker="", label=label)
    axes.set(title="Learning rate, thousandths", xlabel="step", ylim=(0, None))
    axes.legend()
    save(figure, "schedules")


@styled
def masks(length: int = 10) -> None:
    """What a query (row) may attend to (column)."""
    causal = ops.convert_to_numpy(causal_mask(length))
    given = {
        "causal": causal,
        "window of 4": ops.convert_to_numpy(window_mask(length, 4)),
        "causal, window of 3": ops.convert_to_numpy(window_mask(length, 3, causal=True)),
        "causal, two packed": causal & np.equal.outer(np.arange(10) < 4, np.arange(10) < 4),
    }
    figure, row = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained", sharey=True)
    for axes, (title, mask) in zip(row, given.items(), strict=True):
        axes.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axes.set(title=title, xlabel="key", xticks=[0, 9], yticks=[0, 9])
    row[0].set_ylabel("query")
    save(figure, "masks")


@styled
def shifts(side: int = 8, window: int = 4) -> None:
    """Windows of a grid, shifted ones, and their pieces after the grid was moved."""
    shift = window // 2
    rows, columns = np.divmod(np.arange(side * side), side)
    whole = rows // window * 2 + columns // window
    piece = (rows + shift) // window * 3 + (columns + shift) // window
    titles = ("windows", "shifted: 9 pieces", "moved: 4 windows of pieces")
    moved = np.roll(piece.reshape(side, side), (-shift, -shift), (0, 1))
    figure, row = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
    for axes, title, grid in zip(row, titles, (whole, piece, moved), strict=True):
        axes.imshow(grid.reshape(side, side), cmap="tab10", alpha=0.55, vmin=0, vmax=9)
        for (i, j), number in np.ndenumerate(grid.reshape(side, side)):
            axes.text(j, i, str(number), ha="center", va="center", color=INK, size=8)
        for edge in np.arange(-0.5, side, window):
            if grid is not piece:
                axes.axhline(edge, color=INK, linewidth=2)
                axes.axvline(edge, color=INK, linewidth=2)
        for edge in np.arange(-0.5, side):
            axes.axhline(edge, color=FAINT, linewidth=0.3)
            axes.axvline(edge, color=FAINT, linewidth=0.3)
        axes.set(title=title, xticks=[], yticks=[], xlim=(-0.6, side - 0.4))
        axes.set_ylim(side - 0.4, -0.6)
    save(figure, "shifts")


if __name__ == "__main__":
    for draw in (positions, schedules, masks, shifts):
        draw()
