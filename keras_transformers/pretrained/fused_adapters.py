"""Adapters of modules that are several layers of ours: a fused query, key and value, for instance.

A fused module's adapter of rank r is one of rank r for each of its parts: they share `A`, and each
has some columns of `B`. The other way round, parts with an `A` of their own each are one adapter
whose `A` are side by side, and whose `B` stand along the diagonal.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from keras import ops

from keras_transformers.annotations import Array
from keras_transformers.layers.low_rank_settings import LowRankSettings
from keras_transformers.pretrained.adapter_modules import Part, as_adapted


@dataclasses.dataclass(frozen=True)
class ModuleAdapter:
    """The adapter of a module of `transformers`, in arrays that lie as ours do."""

    settings: LowRankSettings
    arrays: Mapping[str, Array]


def split(parts: Sequence[Part], adapter: ModuleAdapter) -> list[ModuleAdapter]:
    """The adapter of each part of a module."""
    if len(parts) == 1:
        return [adapter]
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    each = {"lora_a": [adapter.arrays["lora_a"]] * len(parts)}
    for key in adapter.arrays.keys() - each.keys():
        each[key] = np.split(adapter.arrays[key], ends, axis=-1)
    return [
        ModuleAdapter(adapter.settings, {key: values[i] for key, values in each.items()})
        for i in range(len(parts))
    ]


def join(parts: Sequence[Part], name: str) -> ModuleAdapter:
    """The adapter of a module, some of whose parts have the adapter `name`.

    Its rank is theirs if they all share `A`, else the sum of theirs.
    """
    found = [_of_part(part, name) for part in parts]
    adapted = [each for each in found if each is not None]
    first = adapted[0]
    if len(parts) == 1:
        return first
    if len({(each.settings.dora, each.settings.rslora) for each in adapted}) > 1:
        raise ValueError(
            f"save_adapter: {parts[0].names[0]} is one module, so what it consists of must all "
            f"have DoRA or rsLoRA, or none. Received: {', '.join(p.layer.path for p in parts)}"
        )
    shared = len(adapted) == len(parts) and all(
        each.settings == first.settings
        and np.array_equal(each.arrays["lora_a"], first.arrays["lora_a"])
        for each in adapted
    )
    settings = first.settings if shared else _of_all(adapted)
    arrays = {} if shared else _side_by_side(parts, found, settings)
    if shared:
        arrays["lora_a"] = first.arrays["lora_a"]
        arrays["lora_b"] = np.concatenate([each.arrays["lora_b"] for each in adapted], axis=1)
    if settings.dora:
        arrays["magnitude"] = np.concatenate(
            [
                _norms(part) if each is None else each.arrays["magnitude"]
                for part, each in zip(parts, found, strict=True)
            ]
        )
    return ModuleAdapter(settings, arrays)


def _of_part(part: Part, name: str) -> ModuleAdapter | None:
    adapter = getattr(part.layer, "adapter", None)
    if adapter is None or name not in adapter.settings:
        return None
    return ModuleAdapter(adapter.settings[name], adapter.arrays(name))


def _of_all(adapted: Sequence[ModuleAdapter]) -> LowRankSettings:
    """Settings of the sum of the ranks, with the first's scale."""
    first = adapted[0].settings
    rank = sum(each.settings.rank for each in adapted)
    share = rank / first.rank
    return dataclasses.replace(
        first, rank=rank, alpha=first.alpha * (share**0.5 if first.rslora else share)
    )


def _side_by_side(
    parts: Sequence[Part], found: Sequence[ModuleAdapter | None], settings: LowRankSettings
) -> dict[str, Array]:
    """`A` side by side, and `B` along the diagonal of a matrix of zeros."""
    widths = [part.shape[1] for part in parts]
    b = np.zeros((settings.rank, sum(widths)), "float32")
    row = 0
    for i, each in enumerate(found):
        if each is not None:
            rows, start = each.settings.rank, sum(widths[:i])
            scale = each.settings.scale / settings.scale
            b[row : row + rows, start : start + widths[i]] = each.arrays["lora_b"] * scale
            row += rows
    beside = [each.arrays["lora_a"] for each in found if each is not None]
    return {"lora_a": np.concatenate(beside, axis=1), "lora_b": b}


def _norms(part: Part) -> Array:
    """Of a part without an adapter: the magnitudes that change nothing."""
    with as_adapted(part.layer) as layer:
        kernel = ops.convert_to_numpy(layer.float_kernel())
    return np.linalg.norm(kernel.astype("float64"), axis=0).astype("float32")
