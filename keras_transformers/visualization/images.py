"""Images beside one another, and boxes on them."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath, Values
from keras_transformers.extras import needed_by
from keras_transformers.visualization.panels import make_panels, save


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
                axes.set_title(heading, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=10)
    return save(figure, path)


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
            and numbers `(k,)` to write on them.
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
    with needed_by("drawing"):
        from matplotlib.patches import Rectangle

    figure, panels = make_panels(len(images), columns, 3.2, 3.2)
    for axes, image, (boxes, scores), truth in zip(panels, images, found, true, strict=True):
        axes.set_axis_off()
        axes.imshow(image)

        def draw(box: Array, axes: Any = axes, **style: Any) -> None:
            left, top, right, bottom = box
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, **style))

        for box in np.asarray(truth):
            draw(box, edgecolor="deepskyblue", linewidth=1.0)
        for box, score in zip(np.asarray(boxes), np.asarray(scores), strict=True):
            draw(box, edgecolor="darkorange", linewidth=1.6)
            axes.text(
                box[0],
                box[1] - 1,
                f"{100 * score:.0f}",
                color="white",
                fontsize=6,
                bbox={"facecolor": "darkorange", "edgecolor": "none", "pad": 0.6},
            )
    if title:
        figure.suptitle(title, fontsize=10)
    return save(figure, path)
