"""Weights that an adapter's folder has whole: `modules_to_save`, and copies of the base's."""

import collections
from collections.abc import Collection
from typing import Any

import numpy as np
from keras import ops

from keras_transformers.annotations import Array
from keras_transformers.pretrained.adapter_settings import is_among
from keras_transformers.pretrained.adapter_tensors import FILE, PREFIX, PublishedAdapter
from keras_transformers.pretrained.family import Weights
from keras_transformers.pretrained.gathering import joined
from keras_transformers.pretrained.module_names import module_name
from keras_transformers.pretrained.weight_mapping import Names
from keras_transformers.training.adapter_targets import path_in

BASE = ".base_layer."


def _names(model: Any, weights: Weights) -> list[tuple[str, Any, Any, str, list[str]]]:
    """`(path, weight, mapping, name in today's transformers, all names)` of each weight.

    What quantisation adds to a model, and adapters, have no names.
    """
    names, found = Names(weights.mappings(model)), []
    for weight in model.weights:
        path = path_in(model, weight)
        try:
            mapping, name, others = names.of(path)
        except LookupError:
            continue
        number = getattr(mapping.layout, "number", None)
        listed = [module_name(each, number, weights.modules)[0] for each in (name, *others)]
        listed += [name, *others]
        listed += [each.removeprefix(weights.prefix) for each in listed]
        found.append((path, weight, mapping, listed[0], listed))
    return found


def read_weights(
    model: Any, published: PublishedAdapter, weights: Weights
) -> dict[str, tuple[Any, Array]]:
    """Path -> weight and value, of modules that the adapter has whole.

    Raises:
        ValueError: If a weight of such a module is missing, or there is a weight that the model
            does not have; or if a copy of the base's is of another base.
    """
    folder, found, used = published.tensors.folder, {}, set()
    for path, weight, mapping, _, names in _names(model, weights):
        there = [name for name in dict.fromkeys(names) if name in published.whole]
        copies = [_as_copy(name) for name in names if _as_copy(name) in published.whole]
        saved = any(_is_saved(name, published.settings.saved) for name in names)
        if saved and not there:
            raise ValueError(f"{folder / FILE}: the tensor {PREFIX}{names[0]} is missing.")
        for name in (*there, *copies):
            tensor = _read(published, name, mapping, tuple(weight.shape))
            value = mapping.layout.ours(tensor.astype("float32"), tuple(weight.shape))
            used.add(name)
            if saved and name in there:
                found[path] = weight, value
            elif not _same(ops.convert_to_numpy(weight), value):
                raise ValueError(
                    f"{folder / FILE}: {PREFIX}{name} must be what the model has there, or be of "
                    "one of `modules_to_save`. The adapter is of another base."
                )
    unknown = sorted(set(published.whole) - used)
    if unknown:
        raise ValueError(
            f"{folder / FILE}: the model must have what is saved whole. "
            f"Received: {PREFIX}{unknown[0]}"
        )
    return found


def _as_copy(name: str) -> str:
    """What peft calls the base's weight of a module that is changed."""
    module, _, weight = name.rpartition(".")
    return f"{module}{BASE}{weight}"


def _is_saved(name: str, saved: tuple[str, ...]) -> bool:
    """Whether a weight is inside one of these modules."""
    parts = name.split(".")[:-1]
    return any(is_among(".".join(parts[: i + 1]), saved) for i in range(len(parts)))


def _read(published: PublishedAdapter, name: str, mapping: Any, shape: tuple[int, ...]) -> Array:
    tensors, full = published.tensors, published.whole[name]
    expected = mapping.layout.their_shape(shape)
    if tensors.shapes[full] != expected:
        raise ValueError(
            f"{tensors.folder / FILE}: {full} must have shape {expected}, as the model has it. "
            f"Received: {tensors.shapes[full]}"
        )
    return tensors.read(full)


def _same(ours: Any, theirs: Array) -> bool:
    """Whether two are the same up to the rounding of bfloat16."""
    return np.allclose(np.asarray(ours, "float32"), theirs, rtol=1e-2, atol=1e-6)


def written_weights(
    model: Any, paths: Collection[str], weights: Weights, bare: bool
) -> tuple[tuple[str, ...], dict[str, Array]]:
    """The modules of `transformers` that some weights are in, and all of their tensors."""
    listed = _names(model, weights)
    modules = tuple(
        sorted({today.rpartition(".")[0] for path, _, _, today, _ in listed if path in paths})
    )
    alone = [today for path, _, _, today, _ in listed if path in paths and "." not in today]
    if alone:
        raise ValueError(
            "save_adapter: what is trained besides must be in a module of `transformers`. "
            f"Received: {alone[0]}"
        )
    parts: dict[str, list[Any]] = collections.defaultdict(list)
    for _, weight, mapping, today, _ in listed:
        if any(today.startswith(f"{module}.") for module in modules):
            parts[today].append((mapping.layout, np.asarray(ops.convert_to_numpy(weight))))
    cut = weights.prefix if bare else ""
    tensors = {f"{PREFIX}{name.removeprefix(cut)}": joined(all_) for name, all_ in parts.items()}
    return tuple(module.removeprefix(cut) for module in modules), tensors
