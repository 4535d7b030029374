"""Attention weights over tokens and images, position embeddings, and filters of patches."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.core.types import Array, StrPath, Values
from keras_transformers.visualization.style import (
    FAINT,
    FOUND,
    GRID,
    LIKENESS,
    SHARES,
    SIGNED,
    SMALL,
    WARMTH,
    headline,
    make_panels,
    one_panel,
    outline,
    save,
    short,
    styled,
)

LARGEST = 24.0  # inches of a side, at 144 pixels each


@styled
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
    image = axes.imshow(weights, cmap=SHARES, vmin=0, vmax=max(weights.max(), 1e-6), aspect="auto")
    across, down = (range(0, len(of), n) for of, n in zip((keys, queries), every, strict=True))
    labels = [short(keys[i]) for i in across]
    axes.set_xticks(across, labels, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(down, [short(queries[i]) for i in down])
    axes.xaxis.tick_top()
    axes.set(xlabel="keys: what is looked at", ylabel="queries: what looks")
    axes.xaxis.set_label_position("bottom")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    figure.colorbar(image, label="attention weight", shrink=0.8)
    headline(figure, title)
    return save(figure, path)


@styled
def images_with_attention(
    images: Values,
    maps: Values | Mapping[str, Values],
    titles: Sequence[str],
    path: StrPath,
    columns: int = 4,
    title: str | None = None,
    boxes: Values | None = None,
) -> pathlib.Path:
    """Draws images, each beside itself with attention over it as a heat map.

    Where a map is low the image is seen as it is; the warmer, the more.

    Args:
        images: `(n, height, width, 1 or 3)`, in [0, 1].
        maps: `(n, rows, columns)`, attention to each patch; each map is shaded from its own 0 to
            its own maximum. Or a dict of name -> such maps, which stand beside one another.
        titles: List of str, one an image.
        path: PNG file to write.
        columns: Number of images in a row.
        title: Of the picture, optional.
        boxes: Optional corner boxes `(n, 4)` in pixels, one an image, drawn on it and on its maps.

    Returns:
        The path.

    Raises:
        ValueError: If there are not as many maps, titles and boxes as images.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import images_with_attention
    >>> images_with_attention(np.zeros((1, 8, 8, 1)), np.ones((1, 2, 2)), ["cat"],
    ...                       tempfile.mkdtemp() + "/attention.png").name
    'attention.png'
    """
    images = np.asarray(images)
    named: dict[str, Any] = dict(maps) if isinstance(maps, Mapping) else {"": maps}
    named = {name: np.asarray(each, "float64") for name, each in named.items()}
    corners = None if boxes is None else np.asarray(boxes)
    numbers = [len(each) for each in named.values()]
    others = {*numbers, len(titles), *(() if corners is None else (len(corners),))}
    if not len(images) or others != {len(images)}:
        number = "" if corners is None else f", {len(corners)} boxes"
        raise ValueError(
            "images_with_attention: there must be a map and a title for each image. Received: "
            f"{len(images)} images, {', '.join(map(str, numbers))} maps, {len(titles)} titles"
            f"{number}"
        )
    size = 1.5  # inches of an image
    figure, panels = make_panels(
        len(images), columns, size * 1.04 * (1 + len(named)), size + 0.5, extra_height=0.3
    )
    for i, (axes, caption) in enumerate(zip(panels, titles, strict=True)):
        box = None if corners is None else corners[i]
        _strip(axes, images[i], {name: each[i] for name, each in named.items()}, box)
        pad = 16 if any(named) else 5  # points, for the names of the maps
        caption = str(caption).replace("$", r"\$")
        axes.set_title(caption, fontsize=SMALL, fontweight="normal", pad=pad)
    headline(figure, title)
    return save(figure, path)


def _strip(axes: Any, image: Array, maps: Mapping[str, Array], box: Array | None) -> None:
    """An image, and to its right once more under each map."""
    axes.set_axis_off()
    height, width = image.shape[:2]
    step = 1.04 * width
    for i, (name, warmth) in enumerate([("", None), *maps.items()]):
        extent = (i * step, i * step + width, height, 0)
        axes.imshow(np.squeeze(image), extent=extent, cmap="gray", vmin=0, vmax=1)
        if warmth is not None:
            # Interpolated, as a patch's attention is no sharp square.
            share = warmth / max(warmth.max(), 1e-9)
            style = {"cmap": WARMTH, "vmin": 0, "vmax": 1, "interpolation": "bilinear"}
            axes.imshow(share, extent=extent, alpha=np.clip(0.25 + 0.6 * share, 0, 1), **style)
            axes.text(
                extent[0], -0.03 * height, name, fontsize=SMALL - 1, va="bottom", style="italic"
            )
        if box is not None:
            outline(axes, box + [i * step, 0, i * step, 0], FOUND, 1.8)
    axes.set(xlim=(0, len(maps) * step + width), ylim=(height, 0))


def _cosine_similarity(encodings: Values) -> Array:
    encodings = np.asarray(encodings, "float64")
    encodings = encodings / np.linalg.norm(encodings, axis=1, keepdims=True)
    return encodings @ encodings.T


@styled
def position_similarity(
    encodings: Values, path: StrPath, title: str = "Similarity of positions"
) -> pathlib.Path:
    """Draws the cosine similarity of every two position encodings.

    Args:
        encodings: `(positions, hidden_dim)`.
        path: PNG file to write.
        title: Of the picture.

    Returns:
        The path.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import position_similarity
    >>> position_similarity(np.eye(4), tempfile.mkdtemp() + "/positions.png").name
    'positions.png'
    """
    figure, axes = one_panel(5, 4.2)
    image = axes.imshow(_cosine_similarity(encodings), cmap=LIKENESS)
    axes.set(xlabel="position", ylabel="position", title=title)
    figure.colorbar(image, label="cosine similarity")
    return save(figure, path)


@styled
def position_bias(
    biases: Values,
    distances: Values,
    path: StrPath,
    title: str = "What a distance adds to the score, by head",
) -> pathlib.Path:
    """Draws the biases that attention gives to distances, a row for each head.

    Args:
        biases: `(heads, distances)`, as `RelativePositionBias.bias` gives them for one query.
        distances: Of keys from the query, whole numbers; negative for keys before it.
        path: PNG file to write.
        title: Of the picture.

    Returns:
        The path.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import position_bias
    >>> position_bias(np.eye(3), [-1, 0, 1], tempfile.mkdtemp() + "/bias.png").name
    'bias.png'
    """
    biases, distances = np.asarray(biases, "float32"), np.asarray(distances)
    figure, axes = one_panel(2 + 0.22 * len(distances), 1.6 + 0.3 * len(biases))
    most, edge = max(np.abs(biases).max(), 1e-6), 0.5
    extent = (distances[0] - edge, distances[-1] + edge, len(biases) + edge, edge)
    limits = {"vmin": -most, "vmax": most, "extent": extent}  # white is 0, blue draws attention
    image = axes.imshow(biases, cmap=SIGNED, aspect="auto", interpolation="nearest", **limits)
    axes.set(xlabel="position of the key, less the query's", ylabel="head", title=title)
    axes.axvline(0, color=FAINT, linewidth=0.8, linestyle=":")  # the query itself
    axes.set_yticks(range(1, len(biases) + 1))
    figure.colorbar(image, label="added to the score")
    return save(figure, path)


@styled
def grid_position_similarity(
    encodings: Values,
    grid: tuple[int, int],
    path: StrPath,
    title: str = "Similarity of position embeddings",
) -> pathlib.Path:
    """Draws, for each patch, the cosine similarity of its position with all others.

    The tile in row r and column c is the map of the patch there (Dosovitskiy et al. 2021,
    https://arxiv.org/abs/2010.11929, figure 7, middle).

    Args:
        encodings: `(rows * columns, hidden_dim)`.
        grid: `(rows, columns)`.
        path: PNG file to write.
        title: Of the picture.

    Returns:
        The path.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import grid_position_similarity
    >>> grid_position_similarity(np.eye(6), (2, 3), tempfile.mkdtemp() + "/grid.png").name
    'grid.png'
    """
    rows, columns = grid
    similarity = _cosine_similarity(encodings).reshape(rows, columns, rows, columns)
    tiles = np.full((rows, columns, rows + 1, columns + 1), np.nan)  # a line between tiles
    tiles[:, :, :rows, :columns] = similarity
    picture = tiles.transpose(0, 2, 1, 3).reshape(rows * (rows + 1), columns * (columns + 1))
    figure, axes = one_panel(6, 5.2)
    image = axes.imshow(picture[:-1, :-1], cmap=LIKENESS, vmin=-1, vmax=1)
    axes.set_xticks(np.arange(columns) * (columns + 1) + columns / 2 - 0.5, range(1, columns + 1))
    axes.set_yticks(np.arange(rows) * (rows + 1) + rows / 2 - 0.5, range(1, rows + 1))
    axes.set(xlabel="column of the patch", ylabel="row of the patch", title=title)
    axes.tick_params(length=0)
    figure.colorbar(image, label="cosine similarity")
    return save(figure, path)


@styled
def patch_filters(
    filters: Values,
    path: StrPath,
    number: int = 28,
    title: str = "Principal components of the patch filters",
) -> pathlib.Path:
    """Draws the principal components of the filters that patches or pixels are projected by.

    As in Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, figure 7, left.

    Args:
        filters: `(height, width, channels, hidden_dim)`; other than 3 channels are drawn one by
            one in grey.
        path: PNG file to write.
        number: Most components to draw.
        title: Of the picture.

    Returns:
        The path.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.visualization import patch_filters
    >>> filters = np.random.default_rng(0).normal(size=(4, 4, 1, 9))
    >>> patch_filters(filters, tempfile.mkdtemp() + "/filters.png").name
    'filters.png'
    """
    filters = np.asarray(filters, "float64")
    *shape, hidden_dim = filters.shape
    flat = filters.reshape(-1, hidden_dim)
    left, _, _ = np.linalg.svd(flat - flat.mean(axis=1, keepdims=True), full_matrices=False)
    components = np.moveaxis(left.reshape(*shape, -1), -1, 0)
    if shape[-1] != 3:
        components = np.moveaxis(components, -1, 1).reshape(-1, *shape[:2], 1)
    components = components[:number]
    figure, panels = make_panels(len(components), 7, 1.1, 1.1, extra_height=0.4)  # of the title
    for axes, component in zip(panels, components, strict=True):
        axes.set_axis_off()
        span = np.abs(component).max() or 1.0
        axes.imshow(np.squeeze(0.5 + component / (2 * span)), cmap="gray", vmin=0, vmax=1)
    headline(figure, title)
    return save(figure, path)
