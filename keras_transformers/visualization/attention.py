"""Attention weights, as heat maps over tokens and over images."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_transformers.annotations import StrPath, Values
from keras_transformers.visualization.panels import make_panels, one_panel, save, short

LARGEST = 30.0  # inches of a side, at 120 pixels each


def attention_heat_map(
    weights: Values,
    queries: Sequence[str],
    keys: Sequence[str],
    path: StrPath,
    title: str | None = None,
) -> pathlib.Path:
    """Draws attention weights as a heat map with the tokens on its axes.

    Args:
        weights: `(queries, keys)`, in `[0, 1]`; average the heads beforehand, or pick one.
        queries, keys: Lists of str, the tokens of rows and columns.
        path: PNG file to write.
        title: Optional.

    Returns:
        The path.

    Raises:
        ValueError: If the tokens do not fit the weights.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import attention_heat_map
    >>> path = tempfile.mkdtemp() + "/attention.png"
    >>> attention_heat_map(np.eye(2), ["die", "Katze"], ["the", "cat"], path).name
    'attention.png'
    """
    weights = np.asarray(weights, "float32")
    if weights.shape != (len(queries), len(keys)):
        raise ValueError(
            f"attention_heat_map: `weights` must have shape ({len(queries)}, {len(keys)}), as many "
            f"rows as `queries` and columns as `keys`. Received: shape {weights.shape}"
        )
    size = (2.2 + 0.36 * len(keys), 1.8 + 0.32 * len(queries))
    figure, axes = one_panel(*(min(side, LARGEST) for side in size))
    every = [max(1, math.ceil(side / LARGEST)) for side in size]  # label that has room
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-6), aspect="auto")
    across, down = (range(0, len(of), n) for of, n in zip((keys, queries), every, strict=True))
    labels = [short(keys[i]) for i in across]
    axes.set_xticks(across, labels, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(down, [short(queries[i]) for i in down])
    axes.xaxis.tick_top()
    axes.set(xlabel="source pieces (keys)", ylabel="target pieces (queries)")
    axes.xaxis.set_label_position("bottom")
    axes.tick_params(labelsize=10, length=0)
    axes.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    figure.colorbar(image, label="attention weight", shrink=0.8)
    if title:
        figure.suptitle(title, fontsize=11)
    return save(figure, path)


def images_with_attention(
    images: Values,
    maps: Values,
    titles: Sequence[str],
    path: StrPath,
    columns: int = 4,
    title: str | None = None,
) -> pathlib.Path:
    """Draws images, each beside itself with attention over it as a heat map.

    Args:
        images: `(n, height, width, 1 or 3)`, in [0, 1].
        maps: `(n, rows, columns)`, attention to each patch; each map is shaded from its own 0 to
            its own maximum.
        titles: List of str, one an image.
        path: PNG file to write.
        columns: Number of images in a row.
        title: Of the picture, optional.

    Returns:
        The path.

    Raises:
        ValueError: If there are not as many maps and titles as images.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import images_with_attention
    >>> images_with_attention(np.zeros((1, 8, 8, 1)), np.ones((1, 2, 2)), ["cat"],
    ...                       tempfile.mkdtemp() + "/attention.png").name
    'attention.png'
    """
    images, maps = np.asarray(images), np.asarray(maps)
    if not len(images) == len(maps) == len(titles) or not len(images):
        raise ValueError(
            "images_with_attention: there must be a map and a title for each image. Received: "
            f"{len(images)} images, {len(maps)} maps, {len(titles)} titles"
        )
    figure, panels = make_panels(len(images), columns, 3.2, 2.0)
    for axes, image, heat, caption in zip(panels, images, maps, titles, strict=True):
        axes.set_axis_off()
        height, width = image.shape[:2]
        gray = {"cmap": "gray", "vmin": 0, "vmax": 1}
        for left in (0, 1.06 * width):
            axes.imshow(np.squeeze(image), extent=(left, left + width, height, 0), **gray)
        right_half = (1.06 * width, 2.06 * width, height, 0)
        # Interpolated, as a patch's attention is no sharp square.
        axes.imshow(
            heat, extent=right_half, cmap="inferno", alpha=0.6, vmin=0, interpolation="bilinear"
        )
        axes.set(xlim=(0, 2.06 * width), ylim=(height, 0))
        axes.set_title(str(caption).replace("$", r"\$"), fontsize=8)
    if title:
        figure.suptitle(title, fontsize=10)
    return save(figure, path)
