"""What a model attends to: weights of every attention layer, their roll-out, their relevance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import gradient
from keras_transformers.core.types import Array, Tensor


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
    arrays = _self_attention("attention_rollout", "maps", maps)
    identity = np.eye(arrays[0].shape[2])
    rollout = identity
    for weights in arrays:
        mixed = residual * identity + (1 - residual) * weights.mean(axis=1)
        rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
    return rollout


def attention_gradients(
    model: keras.layers.Layer,
    inputs: Any,
    score: Callable[[Any], Tensor] | None = None,
    match: str = "",
) -> dict[str, Array]:
    """Gradients of what a model says with respect to its attention weights.

    How much more of it there would be if a query looked a little more at a key. Runs the model
    twice, eagerly and for inference.

    Args:
        model, inputs, match: As `attention_maps` takes them.
        score: Function of the model's output to what is asked about, a number for each row,
            `(batch,)`: for a classifier the logit of a class, `lambda logits: logits[:, 3]`. By
            default the largest number of each row: the class that the model says.

    Returns:
        Dict of layer path -> float32 gradients, for the layers and in the shapes of
        `attention_maps`.

    Raises:
        ValueError: If no attention layer ran, if one ran several times or makes its output
            without `attend`, or on a backend that is neither TensorFlow nor JAX.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.inspection import attention_gradients
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/14", num_classes=3, image_size=28, num_layers=2)
    >>> model.build((None, 28, 28, 1))
    >>> images = np.zeros((1, 28, 28, 1), "float32")
    >>> found = attention_gradients(model, images, lambda logits: logits[:, 2])
    >>> [gradient.shape for gradient in found.values()]
    [(1, 3, 5, 5), (1, 3, 5, 5)]
    """
    maps = attention_maps(model, inputs, match)
    layers = {layer.path: layer for layer in model._flatten_layers() if layer.path in maps}
    runs = dict.fromkeys(maps, 0)
    score = score or _largest

    def added(path: str, offset: Tensor) -> Callable[[Tensor], Tensor]:
        def add(weights: Tensor) -> Tensor:
            runs[path] += 1
            return weights + offset

        return add

    def total(offsets: dict[str, Tensor]) -> Tensor:
        try:
            for path, layer in layers.items():
                layer.attention_change = added(path, offsets[path])
            return ops.sum(score(model(inputs, training=False)))
        finally:
            for layer in layers.values():
                layer.attention_change = None

    # The gradient of what is added to the weights, at 0, is that of the weights.
    zeros = {path: ops.zeros(maps[path].shape, layers[path].compute_dtype) for path in maps}
    found = gradient(total, zeros)
    odd = [path for path, number in runs.items() if number != 1]
    if odd:
        raise ValueError(
            "attention_gradients: every attention must make its output from its weights, once in "
            f"a run. Received: {', '.join(odd)} (`match` chooses the layers)"
        )
    return {path: ops.convert_to_numpy(ops.cast(found[path], "float32")) for path in maps}


def _largest(outputs: Tensor) -> Tensor:
    return ops.max(ops.reshape(outputs, (ops.shape(outputs)[0], -1)), axis=1)


def attention_relevance(
    maps: Mapping[str, Tensor] | Sequence[Tensor],
    gradients: Mapping[str, Tensor] | Sequence[Tensor],
) -> Array:
    """How relevant each input token is for each token, for the score that gradients are of.

    `R = I` at first; then layer by layer `R = R + A' R`, where `A'` is the mean of the heads of
    `max(gradient * A, 0)` (Chefer et al. 2021, https://arxiv.org/abs/2103.15679, eq. 5 and 6).
    Unlike roll-out it tells of one answer: the weights that speak for it count, others do not.

    Args:
        maps: Weights `(batch, heads, tokens, tokens)` of each layer, first layer first: a list, or
            what `attention_maps` returns.
        gradients: Of the score, in the same shapes; see `attention_gradients`.

    Returns:
        float64 `(batch, tokens, tokens)`: the row of a class token, without its own column, is the
        relevance of the patches. What exceeds the identity is what attention has brought.

    Raises:
        ValueError: If there are none, or they are not self-attention over the same tokens, or the
            gradients are of other layers or shapes.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.inspection import attention_relevance
    >>> weights, gradient = np.full((1, 1, 2, 2), 0.5), np.array([[[[1.0, -1.0], [0.0, 2.0]]]])
    >>> attention_relevance([weights], [gradient])[0].tolist()
    [[1.5, 0.0], [0.0, 2.0]]
    """
    weights = _self_attention("attention_relevance", "maps", maps)
    if isinstance(maps, Mapping) and isinstance(gradients, Mapping):
        if maps.keys() != gradients.keys():
            raise ValueError(
                "attention_relevance: `gradients` must be of the layers of `maps`, "
                f"{list(maps)}. Received: {list(gradients)}"
            )
        gradients = {path: gradients[path] for path in maps}
    slopes = _self_attention("attention_relevance", "gradients", gradients)
    if [each.shape for each in weights] != [each.shape for each in slopes]:
        raise ValueError(
            "attention_relevance: `gradients` must have the shapes of `maps`, "
            f"{[each.shape for each in weights]}. Received: {[each.shape for each in slopes]}"
        )
    relevance = np.broadcast_to(np.eye(weights[0].shape[2]), weights[0][:, 0].shape)
    for weight, slope in zip(weights, slopes, strict=True):
        relevance = relevance + np.maximum(slope * weight, 0).mean(axis=1) @ relevance
    return relevance


def _self_attention(
    function: str, argument: str, given: Mapping[str, Tensor] | Sequence[Tensor]
) -> list[Array]:
    """Arrays (batch, heads, tokens, tokens) in float64, one a layer; ValueError for others."""
    values = given.values() if isinstance(given, Mapping) else given
    arrays = [np.asarray(each, "float64") for each in values]
    shapes = [each.shape for each in arrays]
    square = all(len(s) == 4 and s[2] == s[3] for s in shapes)
    if not arrays or not square or len({(s[0], *s[2:]) for s in shapes}) != 1:
        raise ValueError(
            f"{function}: `{argument}` must hold weights (batch, heads, tokens, tokens) over the "
            f"same tokens, one or more. Received: shapes {shapes}"
        )
    return arrays
