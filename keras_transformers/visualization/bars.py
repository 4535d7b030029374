"""Numbers of several systems, group by group."""

import pathlib
from collections.abc import Mapping

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.visualization.panels import legend_above, make_panels, save, short
from keras_transformers.visualization.style import SERIES, SMALL, styled

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
