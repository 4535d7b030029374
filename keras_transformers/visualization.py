"""Pictures of training and of attention, drawn from plain arrays with matplotlib."""

import pathlib

import numpy as np


def _axes(width, height):
    from matplotlib.figure import Figure  # no pyplot: works without a screen, leaks no figures

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


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
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name.removeprefix("val_") for name in history))
    groups = [name for name in names if groups is None or name in groups]
    epochs = max(map(len, history.values()))
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    panels = np.ravel(figure.subplots(rows, columns))
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    for axes, name in zip(panels, groups, strict=False):
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
    figure, axes = _axes(2.2 + 0.36 * len(keys), 1.8 + 0.32 * len(queries))
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-6), aspect="auto")
    axes.set_xticks(range(len(keys)), keys, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(queries)), queries)
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
    encodings = np.asarray(encodings, "float64")
    encodings = encodings / np.linalg.norm(encodings, axis=1, keepdims=True)
    figure, axes = _axes(5, 4.2)
    image = axes.imshow(encodings @ encodings.T, cmap="viridis")
    axes.set(xlabel="position", ylabel="position", title=title)
    figure.colorbar(image, label="cosine similarity")
    return _save(figure, path)
