"""Adapters as files: read from and written for PEFT, by the modules of a published model."""

import collections
import pathlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, StrPath
from keras_transformers.pretrained.adapter_weights import (
    FILE,
    PREFIX,
    ModuleAdapter,
    Part,
    PublishedAdapter,
    by_name,
    is_among,
    join,
    named_tensors,
    our_tables,
    parts_of,
    read_adapter,
    split,
    table_tensors,
    write_settings,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.files import write_tensors
from keras_transformers.pretrained.folder import descriptions
from keras_transformers.pretrained.weight_mapping import Names, joined, module_name
from keras_transformers.training.adapters import (
    active_adapters,
    adapted_layers,
    adapters_of,
    attach,
    path_in,
    set_adapter,
    trained_weights,
)


def load_adapter(model: keras.Model, folder: StrPath, name: str = "default") -> list[str]:
    """Gives a model an adapter of a folder that `peft` could load, and activates it.

    The model then is as after `training.add_lora`: it trains what the folder has, and nothing else.
    LoRA, rsLoRA and DoRA are read, ranks and alphas by pattern, adapters of embeddings, and modules
    saved whole (`modules_to_save`). Names of modules are those of the model's family in
    `transformers`, today's and older ones. An adapter of a fused projection, GPT-2's `c_attn` for
    instance, becomes one for each of the query, key and value, with the same `A`.

    Args:
        model: A built model, most often of `pretrained.load`, with the head that the adapter is
            for.
        folder: Path of the folder, with `adapter_config.json` and `adapter_model.safetensors`.
        name: What the adapter is called from now on.

    Returns:
        Paths of the layers that are changed.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the adapter is of another kind (IA3, AdaLoRA, prefix tuning ...) or has a
            setting without a counterpart here, if it changes what this model does not have, a
            tensor is missing or of another shape, or the model has an adapter of that name.

    Example:
    >>> import tempfile
    >>> from keras_transformers import pretrained, training
    >>> from keras_transformers.models import LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, padding_id=-1)
    >>> model.build((None, None))
    >>> changed = training.add_lora(model, rank=2, targets="attention")
    >>> folder = pretrained.save_adapter(model, tempfile.mkdtemp())
    >>> pretrained.load_adapter(model, folder, name="again") == changed
    True
    """
    if name in adapters_of(model):
        raise ValueError(f"load_adapter: `name` must be a new one. Received: {name!r}")
    published = read_adapter(folder)
    family, architecture, parts = _family_of(model, published)
    changes = _changes(published, family, architecture, parts)
    weights = read_weights(model, published, family.weights)
    settings = [(layer, adapter.settings) for layer, adapter in changes]
    attach(model, name, settings, {path: each for path, (each, _) in weights.items()})
    for layer, adapter in changes:
        layer.adapter.assign_arrays(name, adapter.arrays)
    for variable, value in weights.values():
        variable.assign(value)
    return [path_in(model, layer) for layer, _ in changes]


def save_adapter(
    model: keras.Model,
    folder: StrPath,
    name: str = "default",
    family: str | None = None,
    base: str | None = None,
) -> pathlib.Path:
    """Writes an adapter as a folder that `peft` can load.

    The base model's weights are not in it: `peft` needs them as they were, from where they came or
    by `pretrained.save` of a model without adapters. Query, key and value that are one module there
    become one adapter, of their rank if they still share `A`, else of the sum of their ranks.

    Args:
        model: A model with adapters.
        folder: Path of the folder; made where it is not there.
        name: Name of the adapter.
        family: `model_type` of the base, where several would do; by default that of the folder that
            the model was loaded from, else the first that does.
        base: Path or name on the hub of the base, which `peft.AutoPeftModel` and servers look up.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If there is no such adapter, or it changes what is no module of `transformers`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import pretrained, training
    >>> from keras_transformers.models import LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, padding_id=-1)
    >>> model.build((None, None))
    >>> changed = training.add_lora(model, rank=2)
    >>> sorted(path.name for path in pretrained.save_adapter(model, tempfile.mkdtemp()).iterdir())
    ['adapter_config.json', 'adapter_model.safetensors']
    """
    known = adapters_of(model)
    if name not in known:
        raise ValueError(f"save_adapter: `name` must be one of {sorted(known)}. Received: {name!r}")
    kind, architecture, parts = next(_candidates(model, family, caller="save_adapter"))
    modules = _modules(model, parts, name)
    saved, whole = _whole(model, kind, architecture, name)
    inside = [m for m in modules if any(f"{m}.".startswith(f"{each}.") for each in saved)]
    if inside:
        raise ValueError(
            f"save_adapter: a module is changed or saved whole, not both. Received: {inside[0]}, "
            f"and {', '.join(saved)} whole, for the weights that `train` names"
        )
    tensors, settings = dict(whole), {}
    for module, (first, adapter) in modules.items():
        targets = {module: named_tensors(module, first, adapter)}
        if first.is_table:
            targets = table_tensors(first, adapter, kind, architecture)
        for target, found in targets.items():
            tensors |= found
            settings[target] = adapter.settings
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder, tensors, FILE)
    straight = any(getattr(p.layout, "straight", False) for p, _ in modules.values())
    write_settings(folder, settings, saved, architecture, base, straight)
    return folder


def _candidates(
    model: Any, name: str | None, caller: str
) -> Iterator[tuple[Family, str, list[Part]]]:
    """Families and classes that the model could be of, and its layers by their names."""
    refusals: list[str] = []
    has_candidates = False
    name = name or getattr(model, "published_as", None)
    for family, architecture, _, _ in descriptions(model, name, refusals):
        has_candidates = True
        yield (
            family,
            architecture,
            parts_of(model, family.weights, architecture in family.weights.bare),
        )
    if not has_candidates:
        reasons = " ".join(dict.fromkeys(refusals))
        raise ValueError(
            f"{caller}: `model` must be one that `save` can write, or its modules have no names. "
            f"Received: a {type(model).__name__}. {reasons}"
        )


def _family_of(model: Any, published: PublishedAdapter) -> tuple[Family, str, list[Part]]:
    """The family whose names the adapter has, and the layers of the model by those."""
    unknown: dict[str, str] = {}
    for family, architecture, parts in _candidates(model, None, "load_adapter"):
        names = by_name(parts)
        unused = [
            module
            for module in published.changed
            if module not in names and _is_unused(model, module, family.weights.prefix)
        ]
        missing = [module for module in published.changed if module not in (*names, *unused)]
        if not missing:
            if unused:
                warnings.warn(
                    f"{published.tensors.folder} also changes {', '.join(unused)}, which the model "
                    "has no use for, as load says in `unused_tensors`.",
                    stacklevel=3,
                )
            return family, architecture, parts
        unknown.setdefault(family.name, missing[0])
    raise ValueError(
        f"load_adapter: {published.tensors.folder} must change layers that the model has, and that "
        f"can be changed. Received: {', '.join(f'{v} ({k})' for k, v in unknown.items())}"
    )


def _is_unused(model: Any, module: str, prefix: str) -> bool:
    """Whether a module's weights are in the model's folder, and of no use to it."""
    names = (f"{module}.weight", f"{prefix}{module}.weight")
    return any(name in getattr(model, "unused_tensors", ()) for name in names)


def _changes(
    published: PublishedAdapter, family: Family, architecture: str, parts: list[Part]
) -> list[tuple[Any, ModuleAdapter]]:
    """Layers and their adapters, in the order of the model."""
    names, found = by_name(parts), {}
    for module in published.changed.keys() & names:
        if not names[module][0].is_table:
            adapter = published.of(module, names[module])
            for part, each in zip(names[module], split(names[module], adapter), strict=True):
                found[id(part.layer)] = (part.layer, each)
    for layer, adapter in our_tables(published, parts, family, architecture):
        found[id(layer)] = (layer, adapter)
    return [found[id(part.layer)] for part in parts if id(part.layer) in found]


def _modules(model: Any, parts: list[Part], name: str) -> dict[str, tuple[Part, ModuleAdapter]]:
    """Module -> its first layer, and its adapter."""
    grouped: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.number or 0):
        grouped.setdefault(part.names[0], []).append(part)
    adapted = {
        id(layer): path
        for path, layer in adapted_layers(model).items()
        if name in layer.adapter.settings
    }
    lacking = set(adapted) - {id(part.layer) for part in parts}
    if lacking:
        raise ValueError(
            "save_adapter: what is changed must be a module of `transformers`. "
            f"Received: the layer {adapted[lacking.pop()]}"
        )
    found = {}
    for module, group in grouped.items():
        if any(id(part.layer) in adapted for part in group):
            found[module] = group[0], join(group, name)
    return found


def _whole(
    model: Any, family: Family, architecture: str, name: str
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The modules that are saved whole, and their tensors."""
    paths = trained_weights(model, name)
    if not paths:
        return (), {}
    active = active_adapters(model)
    if active != {name: 1.0}:  # its values are in the variables while it is the active one
        set_adapter(model, name)
    bare = architecture in family.weights.bare
    try:
        return written_weights(model, paths, family.weights, bare)
    finally:
        if active != {name: 1.0}:
            set_adapter(model, active or None)


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
            elif not _nearly_equal(ops.convert_to_numpy(weight), value):
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


def _nearly_equal(ours: Any, theirs: Array) -> bool:
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
