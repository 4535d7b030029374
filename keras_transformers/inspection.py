"""What a model attends to: the weights of every attention layer, and their roll-out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Tensor


def attention_maps(model: keras.layers.Layer, inputs: Any, match: str = "") -> dict[str, Array]:
    """Attention weights of all attention layers of a model for some inputs.

    Runs the model once, eagerly and for inference, and looks on: any model or layer that contains
    `MultiHeadAttention` (or a wrapper of it) will do, without a second definition, and nothing is
    added to what training runs.

    Args:
        model: A Keras model or layer; one that is not built yet runs once more, to be built.
        inputs: What it is called with.
        match: Only layers whose path contains this, for instance "decoder_2/cross_attention".

    Returns:
        Dict of layer path -> float32 weights `(batch, heads, queries, keys)`, in the order in
        which the layers run. A layer that runs several times keeps its last weights.

    Raises:
        ValueError: If no attention layer ran.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.inspection import attention_maps
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/14", num_classes=3, image_size=28, num_layers=2)
    >>> model.build((None, 28, 28, 1))
    >>> maps = attention_maps(model, np.zeros((1, 28, 28, 1), "float32"))
    >>> [(path.split("/")[1], weights.shape) for path, weights in maps.items()]
    [('encoder_0', (1, 3, 5, 5)), ('encoder_1', (1, 3, 5, 5))]
    """
    maps: dict[str, Array] = {}
    if not model.built:
        model(inputs, training=False)

    def observer(path: str) -> Callable[[Tensor], None]:
        def observe(weights: Tensor) -> None:
            maps.pop(path, None)  # so that the order is that of the last run
            maps[path] = ops.convert_to_numpy(ops.cast(weights, "float32"))

        return observe

    watched = [
        layer
        for layer in model._flatten_layers()
        if hasattr(layer, "attention_observer") and match in layer.path
    ]
    try:
        for layer in watched:
            layer.attention_observer = observer(layer.path)
        model(inputs, training=False)
    finally:
        for layer in watched:
            layer.attention_observer = None
    if not maps:
        raise ValueError(
            f"attention_maps: no attention layer of '{model.name}' ran whose path contains "
            f"{match!r}."
        )
    return maps


def attention_rollout(
    maps: Mapping[str, Tensor] | Sequence[Tensor], residual: float = 0.5
) -> Array:
    """How much each token draws on each input token, through all layers.

    `R = prod over layers of (residual I + (1 - residual) A)`, `A` the mean of the heads, rows
    renormalised (Abnar & Zuidema 2020, https://arxiv.org/abs/2005.00928, section 3): half of what a
    block puts out came along the residual connection.

    Args:
        maps: Weights `(batch, heads, tokens, tokens)` of each layer, first layer first: a list, or
            what `attention_maps` returns.
        residual: Share of the residual connection.

    Returns:
        float64 `(batch, tokens, tokens)`; each row sums to 1.

    Raises:
        ValueError: If there are none, or they are not self-attention over the same tokens.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.inspection import attention_rollout
    >>> attention_rollout([np.full((1, 2, 2, 2), 0.5)])[0].tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    given = maps.values() if isinstance(maps, Mapping) else maps
    arrays = [np.asarray(each, "float64") for each in given]
    shapes = [each.shape for each in arrays]
    if not arrays or len({(s[0], *s[2:]) for s in shapes}) != 1 or shapes[0][2] != shapes[0][3]:
        raise ValueError(
            "attention_rollout: `maps` must hold weights (batch, heads, tokens, tokens) over the "
            f"same tokens, one or more. Received: shapes {shapes}"
        )
    identity = np.eye(shapes[0][2])
    rollout = identity
    for weights in arrays:
        mixed = residual * identity + (1 - residual) * weights.mean(axis=1)
        rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
    return rollout
