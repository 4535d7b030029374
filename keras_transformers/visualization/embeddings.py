"""What a model knows of positions, and the filters of patches."""

import pathlib

import numpy as np

from keras_transformers.annotations import Array, StrPath, Values
from keras_transformers.visualization.panels import headline, make_panels, one_panel, save
from keras_transformers.visualization.style import FAINT, LIKENESS, SIGNED, styled


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
