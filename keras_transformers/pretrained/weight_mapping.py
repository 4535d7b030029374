"""Which published tensor becomes which weight of ours.

A family has a list of `WeightMapping`s. `{i}` in the name of a weight of ours stands for any
number, and in the published name for the same one; `{i:+1}` for one more. Every weight of a model
has exactly one mapping.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.pretrained.files import MOST_VALUES, Tensors
from keras_transformers.pretrained.tensor_layouts import AS_IS, FLAT, LINEAR, OUTPUT, Layout


@dataclasses.dataclass(frozen=True)
class WeightMapping:
    """A weight of ours and its published names.

    Args:
        ours: Path inside the model.
        theirs: Published name.
        layout: How it lies there.
        also: Further names under which the same tensor may be there, tied or in other versions.
        instead: Names of tensors that it is tied to where there is none of those.
    """

    ours: str
    theirs: str
    layout: Layout = AS_IS
    also: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Computed:
    """A published tensor that we compute: `expected(shape)` is what it must be."""

    theirs: str
    expected: Callable[[tuple[int, ...]], Array]


Mappings: TypeAlias = list[WeightMapping | Computed]
BATCH_NORM = {"gamma": "weight", "beta": "bias"}
BATCH_NORM |= {"moving_mean": "running_mean", "moving_variance": "running_var"}


def linear(ours: str, theirs: str, bias: bool = True) -> Mappings:
    """The mappings of a dense layer."""
    mappings: Mappings = [WeightMapping(f"{ours}/kernel", f"{theirs}.weight", LINEAR)]
    if bias:
        mappings.append(WeightMapping(f"{ours}/bias", f"{theirs}.bias", FLAT))
    return mappings


def norm(ours: str, theirs: str) -> Mappings:
    """The mappings of a layer norm; BERT's oldest files call its weights otherwise."""
    return [
        WeightMapping(f"{ours}/gamma", f"{theirs}.weight", also=(f"{theirs}.gamma",)),
        WeightMapping(f"{ours}/beta", f"{theirs}.bias", also=(f"{theirs}.beta",)),
    ]


def batch_norm(ours: str, theirs: str) -> Mappings:
    """The mappings of a batch norm."""
    return [
        WeightMapping(f"{ours}/{one}", f"{theirs}.{other}") for one, other in BATCH_NORM.items()
    ]


def attention(ours: str, query: str, key: str, value: str, output: str) -> Mappings:
    """The mappings of the four projections of an attention."""
    mappings = []
    for name, theirs in (("query", query), ("key", key), ("value", value)):
        mappings += linear(f"{ours}/{name}", theirs)
    mappings += [
        WeightMapping(f"{ours}/attention_output/kernel", f"{output}.weight", OUTPUT),
        WeightMapping(f"{ours}/attention_output/bias", f"{output}.bias"),
    ]
    return mappings


def bart_layers() -> Mappings:
    """The mappings of the layers of encoder and decoder, where they are called as in BART."""
    of_encoder = {"self_attn": "mixer"}
    of_decoder = {**of_encoder, "encoder_attn": "cross_attention"}
    mappings = []
    for side, parts in (("encoder", of_encoder), ("decoder", of_decoder)):
        start = f"model.{side}.layers.{{i}}"
        mappings += linear(f"{side}_{{i}}/feed_forward/hidden", f"{start}.fc1")
        mappings += linear(f"{side}_{{i}}/feed_forward/output", f"{start}.fc2")
        mappings += norm(f"{side}_{{i}}/feed_forward_norm", f"{start}.final_layer_norm")
        for theirs, ours in parts.items():
            names = (f"{start}.{theirs}.{name}_proj" for name in ("q", "k", "v", "out"))
            mappings += attention(f"{side}_{{i}}/{ours}", *names)
            mappings += norm(f"{side}_{{i}}/{ours}_norm", f"{start}.{theirs}_layer_norm")
    return mappings


def also_called(mappings: Iterable[Any], name: str, other: str) -> Mappings:
    """The mappings, with `other` in place of `name` as a further published name of each."""
    return [
        dataclasses.replace(mapping, also=(*mapping.also, mapping.theirs.replace(name, other)))
        for mapping in mappings
    ]


def inside(mappings: Iterable[Any], name: str, part: keras.layers.Layer) -> Mappings:
    """The mappings, with the part's own name, which its user chose, in place of `name`."""
    return [
        dataclasses.replace(mapping, ours=re.sub(f"^{name}", f"{part.name}/", mapping.ours))
        for mapping in mappings
    ]


class _Number(int):
    """A number that a published name counts from elsewhere: `{i:+1}`."""

    def __format__(self, more: str) -> str:
        return str(int(self) + int(more or 0))


class Names:
    """What published files call the weights of a model, by the mappings of its family."""

    def __init__(self, mappings: Mappings) -> None:
        self._patterns = [
            (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>\\d+)", re.escape(mapping.ours))), mapping)
            for mapping in mappings
            if isinstance(mapping, WeightMapping)
        ]

    def of(self, path: str) -> tuple[WeightMapping, str, list[str]]:
        """`(mapping, published name, other names)` of the weight at a path inside the model."""
        patterns = self._patterns
        matches = [(m, mapping) for pattern, mapping in patterns if (m := pattern.fullmatch(path))]
        if len(matches) != 1:
            raise LookupError(f"{len(matches)} weight mappings are for {path}")
        match, mapping = matches[0]
        numbers = {key: _Number(value) for key, value in match.groupdict().items()}
        names = [name.format(**numbers) for name in (mapping.theirs, *mapping.also)]
        return mapping, names[0], names[1:]


def paired(
    model: keras.Model, mappings: Mappings
) -> list[tuple[keras.Variable, WeightMapping, str, list[str]]]:
    """`(weight, mapping, published name, other names)` of the weights of a built model.

    Adapters' are left out, and what layers in few bits have in the place of a kernel.
    """
    names, apart = Names(mappings), set()
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, LowRank):
            apart |= {id(weight) for weight in layer.weights}
        elif layer.quantization_mode is not None:
            apart |= {
                id(weight) for weight in layer.weights if weight is not getattr(layer, "bias", None)
            }
    weights = [weight for weight in model.weights if id(weight) not in apart]
    return [(w, *names.of(w.path.removeprefix(f"{model.name}/"))) for w in weights]


def assign(
    model: keras.Model,
    mappings: Mappings,
    tensors: Tensors,
    prefix: str,
    filled: Collection[str] = (),
) -> list[str]:
    """Gives every weight of a built model its published value.

    Args:
        model: The model.
        mappings: The family's.
        tensors: `Tensors`.
        prefix: What the names of the base model begin with where there is a head; files of a base
            model alone lack it.
        filled: Published names that are in it already.

    Returns:
        Sorted names of the tensors that no weight needs.

    Raises:
        ValueError: If a tensor is missing or of another shape, or one that is computed here has
            other values.
    """
    bare = prefix and not any(name.startswith(prefix) for name in tensors.shapes)

    def named(names: Iterable[str]) -> tuple[list[str], str]:
        names = [name.removeprefix(prefix) if bare else name for name in names]
        return [name for name in names if name in tensors.shapes], next(iter(names), "")

    used = set(filled)
    for weight, mapping, name, others in paired(model, mappings):
        there, first = named([name, *others])
        there = there or named([*mapping.instead])[0]
        if not there:
            raise ValueError(f"{tensors.folder}: the tensor {first} is missing.")
        expected = mapping.layout.their_shape(tuple(weight.shape))
        for one in there:
            if tensors.shapes[one] != expected:
                raise ValueError(
                    f"{tensors.folder}: the tensor {one} must have shape {expected}, as config.json"
                    f" has it. Received: {tensors.shapes[one]}"
                )
        for one in there[1:]:
            if not all(map(np.array_equal, tensors.parts(one), tensors.parts(there[0]))):
                raise ValueError(
                    f"{tensors.folder}: {there[0]} and {one} must be the same tensor, for one "
                    "weight serves both."
                )
        _fill(weight, mapping.layout, tensors, there[0])
        used |= set(there)
    for mapping in mappings:
        if isinstance(mapping, Computed):
            there, _ = named([mapping.theirs])
            if there:
                _check_computed(tensors, there[0], mapping)
                used |= set(there)
    return sorted(set(tensors.shapes) - used)


def _fill(weight: keras.Variable, layout: Layout, tensors: Tensors, name: str) -> None:
    """Gives a weight its value, in its own type from the file on.

    A large table is written part by part, so that no second one is in memory.
    """
    shape, dtype = tuple(weight.shape), weight.dtype
    if layout is not AS_IS or math.prod(shape) <= MOST_VALUES or not _writes_in_parts():
        weight.assign(layout.ours(tensors.read(name).astype(dtype, copy=False), shape))
        return
    import tensorflow as tf

    start = 0
    for part in tensors.parts(name):
        end = start + len(part)
        tf.raw_ops.ResourceStridedSliceAssign(  # `value[start:end].assign` copies the whole first
            ref=weight.value.handle,
            begin=[start],
            end=[end],
            strides=[1],
            value=part.astype(dtype, copy=False),
        )
        start = end


def _writes_in_parts() -> bool:
    """Whether a variable can be written in parts where it is."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.distribute.has_strategy()


def _check_computed(tensors: Tensors, name: str, mapping: Computed) -> None:
    tensor = tensors.read(name).astype("float32", copy=False)
    if np.max(np.abs(tensor - mapping.expected(tensor.shape)), initial=0) > 1e-4:
        raise ValueError(
            f"{tensors.folder}: the tensor {name} must have the values of the formula it is "
            "computed by, and has others."
        )
