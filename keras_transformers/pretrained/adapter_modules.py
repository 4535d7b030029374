"""Which layer of ours is which module of `transformers`, and how an adapter lies in its tensors."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.adapted import Adapted
from keras_transformers.layers.adapting import KINDS, adaptable
from keras_transformers.pretrained.family import Weights
from keras_transformers.pretrained.module_names import module_name
from keras_transformers.pretrained.tensor_layouts import (
    AsIs,
    FusedPart,
    Layout,
    Matrix,
    PatchConvolution,
    Pointwise,
    Stacked,
)
from keras_transformers.pretrained.weight_mapping import Names

WEIGHT = ".weight"
Convolutions = (PatchConvolution, Pointwise)


@dataclasses.dataclass(frozen=True)
class Part:
    """A layer of ours that is a module of `transformers`, or a part of one.

    Args:
        layer: The layer.
        layout: How its kernel lies by itself.
        names: What the module is called: by today's `transformers`, in files, and where the same
            weight is too.
        number: Which part of the module's outputs it is, from 0; None for all of them.
        parts: How many parts the module has.
    """

    layer: Any
    layout: Layout
    names: tuple[str, ...]
    number: int | None = None
    parts: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of inputs and outputs of the layer."""
        with as_adapted(self.layer) as layer:
            shape: tuple[int, int] = layer.matrix_shape()
        return shape

    @property
    def is_table(self) -> bool:
        """Whether it looks rows up, and is not multiplied with."""
        return isinstance(self.layer, TokenEmbedding | keras.layers.Embedding)

    @property
    def is_convolution(self) -> bool:
        """Whether the module is a convolution."""
        return isinstance(self.layout, Convolutions)


@contextlib.contextmanager
def as_adapted(layer: Any) -> Iterator[Any]:
    """A layer as one that has an adapter, which it need not have."""
    kind = type(layer)
    layer.__class__ = kind if isinstance(layer, Adapted) else KINDS[kind]
    try:
        yield layer
    finally:
        layer.__class__ = kind


def parts_of(model: keras.Model, weights: Weights, bare: bool = False) -> list[Part]:
    """Every layer of a model that an adapter can change and that a module is for.

    Args:
        model: A built model.
        weights: The family's.
        bare: Whether the published class is the base model alone, whose names lack the prefix.

    Returns:
        The layers; those whose kernel is a parameter of its own in `transformers`, or lies in a
        tensor beside others along its inputs, are none.
    """
    names, found = Names(weights.mappings(model)), []
    for layer in model._flatten_layers(include_self=False):
        if not adaptable(layer):
            continue
        path = f"{layer.path.removeprefix(f'{model.name}/')}/{_kernel_name(layer)}"
        mapping, first, others = names.of(path)
        layout, number, parts = _alone(mapping.layout)
        if layout is None or not first.endswith(WEIGHT):
            continue
        listed = []
        for name in (first, *others):
            today, rest = module_name(name, number, weights.modules)
            listed += [today, name] if rest == number else [today]
        if rest is None:
            number, parts = None, 1
        listed = [name.removesuffix(WEIGHT) for name in listed]
        if bare:
            listed = [name.removeprefix(weights.prefix) for name in listed]
        found.append(Part(layer, layout, tuple(dict.fromkeys(listed)), number, parts))
    return found


def _kernel_name(layer: Any) -> str:
    if isinstance(layer, TokenEmbedding):
        return "token_embedding"
    return "embeddings" if isinstance(layer, keras.layers.Embedding) else "kernel"


def _alone(layout: Layout) -> tuple[Layout | None, int | None, int]:
    """How a kernel lies by itself, which part of a tensor's outputs it is, and of how many."""
    inner: Layout = layout
    number: int | None = None
    parts = 1
    if isinstance(layout, FusedPart):
        inner, number, parts = layout.layout, layout.number, layout.parts
        if layout.axis != (-1 if getattr(inner, "straight", False) else 0):
            return None, None, 1
    elif isinstance(layout, Stacked):
        inner, number, parts = layout.layout, layout.number, len(layout.rows)
    known = isinstance(inner, Matrix | AsIs | PatchConvolution | Pointwise)
    return (inner if known else None), number, parts


def by_name(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """The parts of each module in their order, by each of the module's names."""
    found: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.number or 0):
        for name in part.names:
            found.setdefault(name, []).append(part)
    return found
