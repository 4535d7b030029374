"""Weight mappings: names and layouts of published tensors, and of our weights."""

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array
from keras_transformers.layers.adapters import is_altered, kernel_of
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.pretrained.files import MOST_VALUES, Tensors


class Layout(Protocol):
    """How a published tensor holds a weight of ours."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array: ...
    def theirs(self, weight: Array) -> Array: ...


class AsIs:
    """A tensor as it is, or with an axis of 1 in front (`lead`)."""

    def __init__(self, lead: int = 0) -> None:
        self.lead = lead

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) * self.lead + tuple(shape)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.reshape(shape)

    def theirs(self, weight: Array) -> Array:
        return weight.reshape(self.their_shape(weight.shape))


class Matrix:
    """A kernel of ours, whose first `inputs` axes are what goes in, as a matrix.

    PyTorch's linear layers have what comes out first; with `straight` (GPT-2) what goes in.
    """

    def __init__(self, inputs: int = 1, straight: bool = False) -> None:
        self.inputs, self.straight = inputs, straight

    def _flat(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return int(np.prod(shape[: self.inputs])), int(np.prod(shape[self.inputs :]))

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._flat(shape)[:: 1 if self.straight else -1]

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return (tensor if self.straight else tensor.T).reshape(shape)

    def theirs(self, weight: Array) -> Array:
        flat = weight.reshape(self._flat(weight.shape))
        return flat if self.straight else flat.T


class Flat:
    """A bias of heads as one vector."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (int(np.prod(shape)),)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.reshape(shape)

    def theirs(self, weight: Array) -> Array:
        return weight.reshape(-1)


class Convolution:
    """`(height, width, in, out)` as PyTorch's `(out, in, height, width)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[3], shape[2], shape[0], shape[1])

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 1, 0)

    def theirs(self, weight: Array) -> Array:
        return weight.transpose(3, 2, 0, 1)


class Depthwise:
    """`(height, width, features, 1)` as PyTorch's `(features, 1, height, width)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[2:], *shape[:2])

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 0, 1)

    def theirs(self, weight: Array) -> Array:
        return weight.transpose(2, 3, 0, 1)


class PatchConvolution:
    """The kernel of a patch embedding, `(side * side * channels, width)`, as a convolution."""

    def __init__(self, side: int) -> None:
        self.side = side

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[1], shape[0] // self.side**2, self.side, self.side)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return tensor.transpose(2, 3, 1, 0).reshape(shape)

    def theirs(self, weight: Array) -> Array:
        weight = weight.reshape(self.side, self.side, -1, weight.shape[1])
        return weight.transpose(3, 2, 0, 1)


class FusedPart:
    """One of several equal parts of a published tensor: the query's, key's or value's of a QKV.

    Args:
        number: Which it is, from 0.
        layout: How it lies there by itself.
        parts: How many there are.
        axis: The axis along which they are put together.
    """

    def __init__(self, number: int, layout: Layout, parts: int = 3, axis: int = -1) -> None:
        self.number, self.layout, self.parts, self.axis = number, layout, parts, axis

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        whole = list(self.layout.their_shape(shape))
        whole[self.axis] *= self.parts
        return tuple(whole)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        part = np.split(tensor, self.parts, axis=self.axis)[self.number]
        return self.layout.ours(part, shape)

    def theirs(self, weight: Array) -> Array:
        return self.layout.theirs(weight)


class Stacked:
    """One of several tensors of these numbers of rows that lie as one, along the first axis.

    Args:
        number: Which of them it is.
        rows: Of each, their numbers of rows.
        layout: How it lies by itself.
    """

    axis = 0

    def __init__(self, number: int, rows: tuple[int, ...], layout: Layout) -> None:
        self.number, self.rows, self.layout = number, rows, layout

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        _, *rest = self.layout.their_shape(shape)
        return (sum(self.rows), *rest)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        start = sum(self.rows[: self.number])
        return self.layout.ours(tensor[start : start + self.rows[self.number]], shape)

    def theirs(self, weight: Array) -> Array:
        return self.layout.theirs(weight)


class Pointwise:
    """A dense layer's kernel as a convolution of single positions, `(out, in, 1, 1)`."""

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[1], shape[0], 1, 1)

    def ours(self, tensor: Array, shape: tuple[int, ...]) -> Array:
        return LINEAR.ours(tensor[:, :, 0, 0], shape)

    def theirs(self, weight: Array) -> Array:
        return LINEAR.theirs(weight)[:, :, None, None]


AS_IS, FLAT, LINEAR, OUTPUT, CONVOLUTION = AsIs(), Flat(), Matrix(), Matrix(2), Convolution()
DEPTHWISE = Depthwise()


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


Renamed: TypeAlias = Mapping[str, str | tuple[str, ...]]

HEADS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
DENSES = {
    r"attention\.output\.dense": "attention.o_proj",
    r"intermediate\.dense": "mlp.fc1",
    r"output\.dense": "mlp.fc2",
}
_OF_SELF = {rf"attention\.self\.{old}": f"attention.{new}" for old, new in HEADS.items()}
_OF_ATTENTION = {rf"attention\.attention\.{old}": f"attention.{new}" for old, new in HEADS.items()}

MODULES_OF_VIT: Renamed = {
    r"attention\.attention\.relative": "relative",
    r"encoder\.layer\.": "layers.",
    **_OF_ATTENTION,
    **DENSES,
}
MODULES_OF_DINOV2: Renamed = {
    **_OF_ATTENTION,
    r"attention\.output\.dense": "attention.o_proj",
    r"mlp\.weights_in": ("mlp.gate_proj", "mlp.up_proj"),
    r"mlp\.weights_out": "mlp.down_proj",
}
MODULES_OF_SWIN: Renamed = {
    **_OF_SELF,
    r"attention\.self\.relative_position_bias_table": (
        "attention.relative_position_bias.relative_position_bias_table"
    ),
    **DENSES,
}
MODULES_OF_SEGFORMER: Renamed = {
    r"encoder\.patch_embeddings\.(\d+)": r"stages.\1.patch_embeddings",
    r"encoder\.block\.(\d+)": r"stages.\1.blocks",
    r"encoder\.layer_norm\.(\d+)": r"stages.\1.layer_norm",
    r"attention\.self\.sr": "attention.sequence_reduction.sequence_reduction",
    r"attention\.self\.layer_norm": "attention.sequence_reduction.layer_norm",
    **_OF_SELF,
    r"attention\.output\.dense": "attention.o_proj",
    r"mlp\.dense(\d)": r"mlp.fc\1",
    "layer_norm_1": "layernorm_before",
    "layer_norm_2": "layernorm_after",
    "linear_c": "linear_projections",
}
MODULES_OF_DETR: Renamed = {
    r"backbone\.conv_encoder": "backbone",
    r"attn\.out_proj": "attn.o_proj",
    r"layers\.(\d+)\.fc(\d)": r"layers.\1.mlp.fc\2",
}
_CONDITIONAL = {"qcontent": "q_content", "qpos": "q_pos", "kcontent": "k_content", "kpos": "k_pos"}
_CONDITIONAL |= {"v": "v", "qpos_sine": "q_pos_sine"}
MODULES_OF_CONDITIONAL_DETR: Renamed = {
    **MODULES_OF_DETR,
    **{rf"\.sa_{old}_proj": f".self_attn.{new}_proj" for old, new in _CONDITIONAL.items()},
    **{rf"\.ca_{old}_proj": f".encoder_attn.{new}_proj" for old, new in _CONDITIONAL.items()},
}


def module_name(name: str, part: int | None, renamed: Renamed) -> tuple[str, int | None]:
    """What a tensor of a file is called inside a model of today's `transformers`.

    Args:
        name: In the file.
        part: Which part of a fused tensor is meant, None for all of a tensor.
        renamed: The family's, see `Weights.modules`.

    Returns:
        The name, and the part, None where that is a tensor of its own.
    """
    for pattern, new in renamed.items():
        if isinstance(new, str):
            name = re.sub(pattern, new, name)
        elif part is not None and re.search(pattern, name):
            name, part = re.sub(pattern, new[part], name), None
    return name, part
