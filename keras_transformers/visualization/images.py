"""Images beside one another, and boxes on them."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.core.types import Array, StrPath, Values
from keras_transformers.visualization.style import (
    FOUND,
    INK,
    SMALL,
    TRUE,
    headline,
    legend_above,
    make_panels,
    outline,
    save,
    styled,
)


@styled
def images_side_by_side(
    columns: Mapping[str, Values], path: StrPath, across: int = 2, title: str | None = None
) -> pathlib.Path:
    """Draws images in columns: what was there, what was left of it, what was made of that.

    Args:
        columns: Dict of heading -> `(n, height, width, 1 or 3)`, in [0, 1].
        path: PNG file to write.
        across: Number of such groups of columns beside one another.
        title: Of the picture, optional.

    Returns:
        The path.

    Raises:
        ValueError: If the columns have no image, or not as many.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import images_side_by_side
    >>> zeros = np.zeros((4, 8, 8, 1))
    >>> images_side_by_side({"original": zeros, "drawn": zeros},
    ...                     tempfile.mkdtemp() + "/drawn.png").name
    'drawn.png'
    """
    arrays = {heading: np.asarray(images) for heading, images in columns.items()}
    numbers = {len(images) for images in arrays.values()}
    if len(numbers) != 1 or 0 in numbers:
        raise ValueError(
            "images_side_by_side: `columns` must have as many images each, and one at least. "
            f"Received: {[len(images) for images in arrays.values()]}"
        )
    (number,) = numbers
    across = min(across, number)
    rows = -(-number // across)
    width = across * len(arrays)
    figure, panels = make_panels(rows * width, width, 1.0, 1.0, 0.5)
    for axes in panels:
        axes.set_axis_off()
    for column, (heading, images) in enumerate(arrays.items()):
        for i, image in enumerate(np.clip(images, 0, 1)):
            axes = panels[i // across * width + i % across * len(arrays) + column]
            axes.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
            if i < across:
                axes.set_title(heading, fontsize=SMALL, fontweight="normal")
    headline(figure, title)
    return save(figure, path)


@styled
def images_with_boxes(
    images: Sequence[Values],
    found: Sequence[tuple[Values, Values]],
    true: Sequence[Values],
    path: StrPath,
    columns: int = 4,
    title: str | None = None,
) -> pathlib.Path:
    """Draws images with the boxes that were found, and the true ones.

    Args:
        images: List of `(height, width, 3)`, in [0, 1] or uint8, of any sizes.
        found: For each image `(boxes, scores)`: corner boxes `(k, 4)` in pixels, drawn in orange,
            and scores `(k,)` in [0, 1], written on them in percent.
        true: For each image corner boxes `(k, 4)`, drawn in blue.
        path: PNG file to write.
        columns: Number of images in a row.
        title: Of the picture, optional.

    Returns:
        The path.

    Raises:
        ValueError: If there are not as many of each, or none.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import images_with_boxes
    >>> box = np.array([[1, 1, 5, 6]])
    >>> images_with_boxes([np.zeros((8, 8, 3))], [(box, [0.9])], [box],
    ...                   tempfile.mkdtemp() + "/boxes.png").name
    'boxes.png'
    """
    if not len(images) == len(found) == len(true) or not len(images):
        raise ValueError(
            "images_with_boxes: there must be found and true boxes for each image. Received: "
            f"{len(images)} images, {len(found)} found, {len(true)} true"
        )
    side = 3.2  # inches of a panel
    figure, panels = make_panels(len(images), columns, side, side, extra_height=0.3)
    legend = {}
    for axes, image, (boxes, scores), truth in zip(panels, images, found, true, strict=True):
        axes.set_axis_off()
        axes.imshow(image, interpolation="nearest")  # the very pixels
        for box in np.asarray(truth):
            legend["true"] = outline(axes, box, TRUE, 1.2)
        ordered = sorted(zip(np.asarray(boxes), np.asarray(scores), strict=True), key=_score)
        for box, _ in ordered:
            legend["found, with its score"] = outline(axes, box, FOUND, 2.2)
        points = max(np.shape(image)[:2]) / (72 * side)  # pixels a point
        _write_scores(axes, ordered[::-1], np.shape(image)[:2], points)
    legend_above(figure, legend)
    headline(figure, title)
    return save(figure, path)


def _score(scored: tuple[Array, float]) -> float:
    return float(scored[1])


def _write_scores(
    axes: Any, scored: list[tuple[Array, float]], extent: tuple[int, ...], points: float
) -> None:
    """Writes each score at the corner of its box where it lies over the fewest others."""
    height, width = extent
    taken: list[Array] = []
    for (left, top, right, bottom), score in scored:  # the surest first
        text = f"{score:.0%}"
        w, h = points * SMALL * (0.72 * len(text) + 0.5), points * SMALL * 1.5
        corners = ((left, top - h), (right - w, top - h), (left, bottom), (right - w, bottom))
        corners += ((left, top), (right - w, top), (left, bottom - h), (right - w, bottom - h))
        spots = [(min(max(x, 0), width - w), min(max(y, 0), height - h)) for x, y in corners]
        rectangles = np.array([(x, y, x + w, y + h) for x, y in spots])
        lost = [_shared(each, taken) for each in rectangles]
        spot = rectangles[int(np.argmin(lost))]
        taken.append(spot)
        centre = (spot[:2] + spot[2:]) / 2
        back = {"facecolor": FOUND, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
        axes.text(
            *centre, text, ha="center", va="center", color=INK, fontsize=SMALL, weight="bold",
            bbox=back,
        )  # fmt: skip


def _shared(rectangle: Array, others: Sequence[Array]) -> float:
    """The area that a rectangle has in common with others."""
    overlaps = [
        np.clip(
            np.minimum(rectangle[2:], other[2:]) - np.maximum(rectangle[:2], other[:2]), 0, None
        )
        for other in others
    ]
    return float(sum(overlap.prod() for overlap in overlaps))
