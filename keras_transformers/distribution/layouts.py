"""Which axis of which matrix is split over the devices of a group."""

import re
from typing import Any

import keras

from keras_transformers.models import LanguageModel, TextEncoder, Transformer, ViT

SPLIT_MODELS = (Transformer, LanguageModel, TextEncoder, ViT)
# The matrix into a branch by columns, the one out of it by rows, so that a branch ends in one sum
# over the devices (Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053, section 3).
RULES = {
    r".*/(query|key|value)/kernel": (None, "model", None),  # (width, heads, key_dim)
    r".*/(query|key|value)/bias": ("model", None),
    r".*/attention_output/kernel": ("model", None, None),
    r".*/feed_forward/(hidden|gate)/kernel": (None, "model"),
    r".*/feed_forward/(hidden|gate)/bias": ("model",),
    r".*/feed_forward/output/kernel": ("model", None),
    r".*/(source_|target_|)(embedding|token_embedding)/token_embedding": ("model", None),
    r".*/logits_bias": ("model",),
}
# What becomes of a variable whose axis does not divide, where anything may: a few key and value
# heads are copied, a vocabulary is split by its width.
OTHERWISE = {
    r".*/(key|value)/(kernel|bias)": None,
    r".*/token_embedding": (None, "model"),
    r".*/logits_bias": None,
}


def layout_map(
    mesh: keras.distribution.DeviceMesh, model: keras.Model | type[keras.Model] | None = None
) -> keras.distribution.LayoutMap:
    """Where each variable of a Transformer, LanguageModel, TextEncoder or ViT lies on a mesh.

    Query, key and value are split over the heads and the first matrices of the feed-forward
    networks over their columns; the matrices out of both over their rows; embeddings over the
    vocabulary. Norms, the other biases and all the rest are copied to every device. Splitting
    changes no result but by the order of sums (Shoeybi et al. 2019,
    https://arxiv.org/abs/1909.08053).

    Args:
        mesh: `keras.distribution.DeviceMesh` with an axis "model".
        model: Optional model or class, to be refused if its blocks are none of these.

    Returns:
        `keras.distribution.LayoutMap`.

    Raises:
        ValueError: If the mesh has no axis "model", or the model is of another class.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import layout_map
    >>> mesh = keras.distribution.DeviceMesh((1, 1), ("data", "model"), ["cpu:0"])
    >>> layout_map(mesh)["vit/encoder_0/feed_forward/hidden/kernel"].axes
    (None, 'model')
    """
    if "model" not in mesh.axis_names:
        raise ValueError(
            f'layout_map: `mesh` must have an axis "model". Received: axes {mesh.axis_names}'
        )
    if model is not None:
        check_can_be_split(model)
    layouts = keras.distribution.LayoutMap(mesh)
    for pattern, axes in RULES.items():
        layouts[pattern] = axes
    return layouts


def check_can_be_split(model: keras.Model | type[keras.Model]) -> None:
    """Raises ValueError unless a model, or a class of models, is one that `layout_map` knows."""
    kind = model if isinstance(model, type) else type(model)
    if not issubclass(kind, SPLIT_MODELS):
        names = ", ".join(sorted(each.__name__ for each in SPLIT_MODELS))
        raise ValueError(
            f"layout_map: matrices are split over devices in {names}, not in {kind.__name__}. "
            'Give all devices to the batch instead: "data=8" in place of "data=4,model=2".'
        )


def layout_of(variable: Any, layouts: keras.distribution.LayoutMap) -> tuple[str | None, ...]:
    """The axes of a mesh along which a variable is split, one or None for each of its own.

    Args:
        variable: With a `path` and a `shape`.
        layouts: From `layout_map`.

    Raises:
        ValueError: If what must be split does not divide.
    """
    copied = (None,) * len(variable.shape)
    layout = layouts[variable.path]
    if layout is None or len(layout.axes) != len(copied):
        return copied
    if _divides(variable, layout.axes, layouts.device_mesh):
        return layout.axes
    for pattern, axes in OTHERWISE.items():
        if re.fullmatch(pattern, variable.path):
            other = axes or copied
            return other if _divides(variable, other, layouts.device_mesh) else copied
    number = _size(layouts.device_mesh, "model")
    position = layout.axes.index("model")
    raise ValueError(
        f"distribute: {variable.path} of shape {tuple(variable.shape)} cannot be split over "
        f"{number} devices along axis {position}: with model={number}, `num_heads` and `mlp_dim` "
        f"must be multiples of {number}."
    )


def _divides(
    variable: Any, axes: tuple[str | None, ...], mesh: keras.distribution.DeviceMesh
) -> bool:
    return all(
        axis is None or size % _size(mesh, axis) == 0
        for size, axis in zip(variable.shape, axes, strict=True)
    )


def _size(mesh: keras.distribution.DeviceMesh, axis: str) -> int:
    return mesh.shape[mesh.axis_names.index(axis)]
