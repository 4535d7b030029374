"""Whether a configuration fits the tensors, looked at before a model is made.

A model as large as a false `config.json` says could fill the memory. `check_sizes` names the
setting for the extents that most others follow from; `saving.limits.within` stops at the first
weight far beyond the file, whatever it came of. Every tensor is checked once more when it is read.
"""

from collections.abc import Iterable
from typing import Any

from keras_transformers.pretrained.family import Family
from keras_transformers.pretrained.files import Tensors


def check_sizes(family: Family, config: dict[str, Any], tensors: Tensors, where: Any) -> None:
    """ValueError unless key tensors have the extents, and layers the numbers, of the configuration.

    Args:
        family: A `Family`.
        config: The published configuration.
        tensors: `Tensors`.
        where: Its file, for messages.
    """
    weights, extent = family.weights, family.configuration.extent
    bare = weights.prefix and not any(name.startswith(weights.prefix) for name in tensors.shapes)

    def named(names: Iterable[str]) -> list[str]:
        names = (names,) if isinstance(names, str) else names
        return [name.removeprefix(weights.prefix) if bare else name for name in names]

    for names, settings in weights.sizes.items():
        names = named(names)
        there = [name for name in names if name in tensors.shapes]
        if not there:
            raise ValueError(f"{tensors.folder}: the tensor {names[0]} is missing.")
        expected = tuple(extent(config, setting) for setting in settings)
        if tensors.shapes[there[0]] != expected:
            listed = ", ".join(
                f"{setting}={extent}"
                for setting, extent in zip(settings, expected, strict=True)
                if isinstance(setting, str)
            )
            raise ValueError(
                f"{where}: with {listed}, the tensor {there[0]} must have shape {expected}. "
                f"Received: {tensors.shapes[there[0]]}"
            )
    layers = weights.layers(config) if callable(weights.layers) else weights.layers
    for setting, starts in layers.items():
        starts, expected = named(starts), extent(config, setting)
        found = _numbers(tensors.shapes, starts)
        if len(found) != expected or found != set(range(len(found))):
            raise ValueError(
                f"{where}: {setting}={expected} must be the number of layers {starts[0]}0, "
                f"{starts[0]}1, ... Received: {len(found)}"
            )


def _numbers(names: Iterable[str], starts: Iterable[str]) -> set[int]:
    """The numbers that follow one of the starts."""
    after = [
        name.removeprefix(start).split(".")[0]
        for start in starts
        for name in names
        if name.startswith(start)
    ]
    return {int(number) for number in after if number.isdigit() and len(number) < 9}
