"""How all figures look: one paper, one type, few colours that everybody can tell apart.

The paper is white and opaque, on purpose: ink that is legible on white as well as on black would be
grey, and faint on both. On a dark page a figure is a sheet with a margin of its own.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from keras_transformers.extras import needed_by

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
