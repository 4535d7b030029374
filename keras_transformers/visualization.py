"""Pictures of training and of attention, drawn from plain arrays with matplotlib."""

import math
import pathlib

import numpy as np

MOST_CLASSES = 40  # of a confusion matrix: 2,700 pixels a side
LARGEST = 30.0  # inches of a side, at 120 pixels each
MOST_CHARACTERS = 40  # of a label


def _panels(number, columns, width, height, extra_height=0.0):
    """A figure and `number` axes in rows of at most `columns`, each of that size in inches."""
    from matplotlib.figure import Figure  # no pyplot: works without a screen, leaks no figures

    columns = min(columns, number)
    rows = -(-number // columns)
    size = (width * columns, height * rows + extra_height)
    figure = Figure(figsize=size, layout="constrained")
    panels = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axes in panels[number:]:
        axes.set_axis_off()
    return figure, panels[:number]


def _axes(width, height):
    figure, (axes,) = _panels(1, 1, width, height)
    return figure, axes


def _short(label):
    """A label that leaves room for what it labels, and in which a dollar is one."""
    label = str(label)
    label = label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"
    return label.replace("$", r"\$")


def _cosine_similarity(encodings):
    encodings = np.asarray(encodings, "float64")
    encodings = encodings / np.linalg.norm(encodings, axis=1, keepdims=True)
    return encodings @ encodings.T


def _save(figure, path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def training_curves(history, path, groups=None):
    """Draws a training history: a panel for each name, with its training and validation values.

    Args:
        history: Dict of name -> list of numbers, one an epoch, as `History.history` is; those that
            are not finite are left out.
        path: PNG file to write.
        groups: Names to draw, without "val_"; by default all.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import training_curves
    >>> history = {"loss": [3.0, 2.0], "val_loss": [3.1, 2.5]}
    >>> training_curves(history, tempfile.mkdtemp() + "/curves.png").name
    'curves.png'
    """
    names = list(dict.fromkeys(name.removeprefix("val_") for name in history))
    groups = [name for name in names if groups is None or name in groups]
    epochs = max(map(len, history.values()))
    figure, panels = _panels(len(groups), 3, 4.2, 3.2)
    for axes, name in zip(panels, groups, strict=True):
        for column, label, color in ((name, "training", "C0"), (f"val_{name}", "validation", "C1")):
            if column in history:
                values = np.asarray(history[column], "float64")
                known = np.flatnonzero(np.isfinite(values))
                axes.plot(known + 1, values[known], "o-", color=color, label=label, markersize=3)
        axes.set(title=name.replace("_", " "), xlabel="epoch", xlim=(0.5, epochs + 0.5))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    return _save(figure, path)


def attention_heat_map(weights, queries, keys, path, title=None):
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
    figure, axes = _axes(*(min(side, LARGEST) for side in size))
    every = [max(1, math.ceil(side / LARGEST)) for side in size]  # label that has room
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-6), aspect="auto")
    across, down = (range(0, len(of), n) for of, n in zip((keys, queries), every, strict=True))
    labels = [_short(keys[i]) for i in across]
    axes.set_xticks(across, labels, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(down, [_short(queries[i]) for i in down])
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
    return _save(figure, path)


def position_similarity(encodings, path, title="Similarity of positions"):
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
    figure, axes = _axes(5, 4.2)
    image = axes.imshow(_cosine_similarity(encodings), cmap="viridis")
    axes.set(xlabel="position", ylabel="position", title=title)
    figure.colorbar(image, label="cosine similarity")
    return _save(figure, path)


def grid_position_similarity(encodings, grid, path, title="Similarity of position embeddings"):
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
    figure, axes = _axes(6, 5.2)
    image = axes.imshow(picture[:-1, :-1], cmap="viridis", vmin=-1, vmax=1)
    axes.set_xticks(np.arange(columns) * (columns + 1) + columns / 2 - 0.5, range(1, columns + 1))
    axes.set_yticks(np.arange(rows) * (rows + 1) + rows / 2 - 0.5, range(1, rows + 1))
    axes.set(xlabel="column of the patch", ylabel="row of the patch", title=title)
    axes.tick_params(length=0)
    figure.colorbar(image, label="cosine similarity")
    return _save(figure, path)


def confusion_matrix(counts, classes, path, most=MOST_CLASSES):
    """Draws a confusion matrix, shaded by the share of each true class.

    Args:
        counts: `(classes, classes)` integers: true class, then predicted class.
        classes: Their names.
        path: PNG file to write.
        most: How many classes are drawn at most; of more, those that are most confused.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import confusion_matrix
    >>> confusion_matrix([[3, 1], [0, 4]], ["a", "b"], tempfile.mkdtemp() + "/counts.png").name
    'counts.png'
    """
    counts, of = np.asarray(counts), len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # also of what is not drawn
    shown = most_confused(counts, most)
    counts, shares = (each[np.ix_(shown, shown)] for each in (counts, shares))
    names = [_short(classes[i]) for i in shown]
    side = 2.5 + 0.5 * len(names)
    figure, axes = _axes(side + 1, side)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(names) < of:
        axes.set_title(f"The {len(names)} of {of:,} classes that are most confused")
    if len(names) <= 30:
        for (row, column), number in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.6 else "black"
            axes.text(column, row, number or "", ha="center", va="center", color=color, size=8)
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    return _save(figure, path)


def most_confused(counts, most):
    """Numbers of at most `most` classes, in order: the pairs that are confused most often first.

    Example:
    >>> from keras_transformers.visualization import most_confused
    >>> most_confused([[9, 0, 5], [1, 9, 0], [0, 0, 9]], 2)
    [0, 2]
    """
    counts = np.array(counts, "int64")
    if len(counts) <= most:
        return list(range(len(counts)))
    np.fill_diagonal(counts, -1)
    chosen = {}  # keeps the order
    order = np.argsort(-counts, axis=None, kind="stable")
    for pair in zip(*np.unravel_index(order, counts.shape), strict=True):
        chosen.update(dict.fromkeys(map(int, pair)))
        if len(chosen) >= most:
            break
    return sorted(list(chosen)[:most])


def images_with_attention(images, maps, titles, path, columns=4, title=None):
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
    figure, panels = _panels(len(images), columns, 3.2, 2.0)
    for axes, image, heat, caption in zip(panels, images, maps, titles, strict=True):
        axes.set_axis_off()
        height, width = image.shape[:2]
        gray = {"cmap": "gray", "vmin": 0, "vmax": 1}
        for left in (0, 1.06 * width):
            axes.imshow(np.squeeze(image), extent=(left, left + width, height, 0), **gray)
        heat_place = (1.06 * width, 2.06 * width, height, 0)
        # Interpolated, as a patch's attention is no sharp square.
        axes.imshow(
            heat, extent=heat_place, cmap="inferno", alpha=0.6, vmin=0, interpolation="bilinear"
        )
        axes.set(xlim=(0, 2.06 * width), ylim=(height, 0))
        axes.set_title(str(caption).replace("$", r"\$"), fontsize=8)
    if title:
        figure.suptitle(title, fontsize=10)
    return _save(figure, path)


def images_side_by_side(columns, path, across=2, title=None):
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
    numbers = {len(images) for images in columns.values()}
    if len(numbers) != 1 or 0 in numbers:
        raise ValueError(
            "images_side_by_side: `columns` must have as many images each, and one at least. "
            f"Received: {[len(images) for images in columns.values()]}"
        )
    (number,) = numbers
    across = min(across, number)
    rows = -(-number // across)
    width = across * len(columns)
    figure, panels = _panels(rows * width, width, 1.0, 1.0, 0.5)
    for axes in panels:
        axes.set_axis_off()
    for column, (heading, images) in enumerate(columns.items()):
        for i, image in enumerate(np.clip(np.asarray(images), 0, 1)):
            axes = panels[i // across * width + i % across * len(columns) + column]
            axes.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
            if i < across:
                axes.set_title(heading, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=10)
    return _save(figure, path)


def images_with_boxes(images, found, true, path, columns=4, title=None):
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
    from matplotlib.patches import Rectangle

    figure, panels = _panels(len(images), columns, 3.2, 3.2)
    for axes, image, (boxes, scores), truth in zip(panels, images, found, true, strict=True):
        axes.set_axis_off()
        axes.imshow(image)

        def draw(box, axes=axes, **style):
            left, top, right, bottom = box
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, **style))

        for box in truth:
            draw(box, edgecolor="deepskyblue", linewidth=1.0)
        for box, score in zip(boxes, scores, strict=True):
            draw(box, edgecolor="darkorange", linewidth=1.6)
            axes.text(
                box[0], box[1] - 1, f"{100 * score:.0f}", color="white", fontsize=6,
                bbox={"facecolor": "darkorange", "edgecolor": "none", "pad": 0.6},
            )
    if title:
        figure.suptitle(title, fontsize=10)
    return _save(figure, path)


def patch_filters(filters, path, number=28, title="Principal components of the patch filters"):
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
    figure, panels = _panels(len(components), 7, 1.1, 1.1, extra_height=0.4)  # of the title
    for axes, component in zip(panels, components, strict=True):
        axes.set_axis_off()
        span = np.abs(component).max() or 1.0
        axes.imshow(np.squeeze(0.5 + component / (2 * span)), cmap="gray", vmin=0, vmax=1)
    figure.suptitle(title, fontsize=10)
    return _save(figure, path)


def comparison(panels, path, y, x, spread=None):
    """Draws one figure against several others: what is gained beside what it costs.

    Args:
        panels: Dict of title -> dict of label -> dict of numbers; a row of panels for each title.
        path: PNG file to write.
        y: Name of the number on the vertical axis.
        x: Names of those on the horizontal axes, one panel each, logarithmic.
        spread: Optional name of a number, the half-length of an error bar of `y`.

    Returns:
        The path.

    Example:
    >>> import tempfile
    >>> from keras_transformers.visualization import comparison
    >>> rows = {"a": {"score": 0.7, "cost": 3.0}, "b": {"score": 0.8, "cost": 30.0}}
    >>> comparison({"task": rows}, tempfile.mkdtemp() + "/c.png", y="score", x=("cost",)).name
    'c.png'
    """
    figure, axes = _panels(len(panels) * len(x), len(x), 5.5, 4.5)
    places = [(title, column) for title in panels for column in x]
    for panel, (title, column) in zip(axes, places, strict=True):
        for label, row in panels[title].items():
            error = None if spread is None else row[spread]
            panel.errorbar(row[column], row[y], yerr=error, fmt="o", capsize=2)
            panel.annotate(
                label, (row[column], row[y]), xytext=(4, 3), textcoords="offset points", fontsize=7
            )
        panel.set_xscale("log")
        for formatter in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
            formatter(lambda value, place: f"{value:,g}")  # 40,000, and no 4 times 10^4
        panel.tick_params(which="both", labelsize=8)
        panel.xaxis.set_tick_params(which="both", rotation=45)
        panel.set_xlabel(column.replace("_", " "))
        panel.set_ylabel(y.replace("_", " "))
        panel.set_title(title, fontsize=9)
        panel.grid(alpha=0.3)
    return _save(figure, path)
