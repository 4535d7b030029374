"""The published tensors of a model, gathered from its weights."""

import collections
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array
from keras_transformers.layers.adapted import is_altered
from keras_transformers.layers.adapting import kernel_of
from keras_transformers.pretrained.tensor_layouts import Layout
from keras_transformers.pretrained.weight_mapping import Mappings, paired


def gather(model: keras.Model, mappings: Mappings, bare_prefix: str = "") -> dict[str, Array]:
    """The published tensors of a model: dict of name to NumPy array.

    `bare_prefix` is left out in front of names, and a tensor that is tied to an equal one there. An
    active adapter is merged into them.
    """
    parts: dict[str, list[tuple[Layout, Array]]] = collections.defaultdict(list)
    changed = {id(kernel_of(each)): each for each in model._flatten_layers() if is_altered(each)}
    for weight, mapping, name, _ in paired(model, mappings):
        value, layer = ops.convert_to_numpy(weight), changed.get(id(weight))
        if layer is not None:
            whole = layer.adapter.alter_whole(layer.float_kernel())
            value = ops.convert_to_numpy(whole).reshape(weight.shape)
        name, part = name.removeprefix(bare_prefix), (mapping.layout, np.asarray(value))
        tied = [joined(parts[other]) for other in mapping.instead if other in parts]
        if not any(np.array_equal(joined([part]), each) for each in tied):
            parts[name].append(part)
    # One by one out of `parts`, so that what is joined is not held twice.
    return {name: joined(parts.pop(name)) for name in list(parts)}


def joined(parts: Sequence[tuple[Layout, Array]]) -> Array:
    """The published tensor of a weight, or of several that are one there, as float32."""
    numbered = {
        getattr(layout, "number", 0): layout.theirs(np.asarray(value, "float32"))
        for layout, value in parts
    }
    axis = getattr(parts[-1][0], "axis", -1)
    if len(numbered) == 1:
        return numbered.popitem()[1]
    return np.concatenate([numbered[i] for i in range(len(numbered))], axis=axis)
