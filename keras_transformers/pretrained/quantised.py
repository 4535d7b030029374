"""Published folders with weights in few bits: read, or refused with the reason."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_transformers.core.types import Array, StrPath
from keras_transformers.layers.base import PolicyOfParts
from keras_transformers.pretrained.family import Family
from keras_transformers.pretrained.files import Tensors
from keras_transformers.pretrained.weight_mapping import Mappings, Names, WeightMapping

BITS, PACKED = 4, 8  # of a weight, and how many an int32 has
WHERE = "`quantization_config`"


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How the matrices of a folder are packed.

    Args:
        method: "gptq", "awq" or "compressed-tensors".
        size: Number of inputs of a group; -1 for all.
        zero_less: What is added to a stored zero point: 1 in GPTQ's first format.
        ordered: Whether inputs are in groups by a tensor of their own, `g_idx`.
    """

    method: str
    size: int
    zero_less: int = 0
    ordered: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The tensors of a matrix, the integers first."""
        if self.method == "compressed-tensors":
            return "weight_packed", "weight_scale", "weight_shape"
        return ("qweight", "scales", "qzeros") + ("g_idx",) * (self.method == "gptq")

    def shape(self, packed: tuple[int, ...]) -> tuple[int, int]:
        """Number of outputs and of inputs, by the shape of the integers."""
        rows, columns = packed
        if self.method == "gptq":
            return columns, rows * PACKED
        return (columns * PACKED, rows) if self.method == "awq" else (rows, columns * PACKED)

    def groups(self, inputs: int) -> int:
        """Number of groups of so many inputs."""
        return 1 if self.size == -1 else -(-inputs // self.size)


def read_scheme(config: Mapping[str, Any], where: Any) -> Scheme | None:
    """The scheme of a `config.json`, None where weights are as trained; ValueError for others."""
    given = config.get("quantization_config")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"{where}: {WHERE} must be an object or null. Received: {given!r:.100}")
    method = given.get("quant_method")
    readers = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed}
    if method not in readers:
        raise ValueError(
            f"{where}: {WHERE} must have as `quant_method` one of {', '.join(readers)}, whose "
            f"four bits are read as they are. Received: {method!r:.100}. Have the published code "
            "save the model in floating-point numbers, and load those."
        )
    return readers[method](given, f"{where}: {WHERE} of {method}")


def _must(given: Mapping[str, Any], where: str, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """ValueError unless each setting that is there has one of the values."""
    for name, values in allowed.items():
        if name in given and not any(given[name] is v or given[name] == v for v in values):
            listed = " or ".join(map(repr, values))
            raise ValueError(f"{where} must have `{name}` {listed}. Received: {given[name]!r:.200}")


def _size(given: Mapping[str, Any], where: str) -> int:
    size = given.get("group_size", -1)
    if not isinstance(size, int) or isinstance(size, bool) or size < -1 or size == 0:
        raise ValueError(
            f"{where} must have as `group_size` a positive integer, or -1 for all inputs. "
            f"Received: {size!r:.100}"
        )
    return size


def _gptq(given: Mapping[str, Any], where: str) -> Scheme:
    formats = ("gptq", "gptq_v2")
    name = "format" if "checkpoint_format" not in given else "checkpoint_format"
    allowed = {"bits": (BITS,), name: formats, "pack_dtype": ("int32",)}
    _must({"bits": None, **given}, where, {**allowed, "is_marlin_format": (False,)})
    first = given.get(name, "gptq") == "gptq"
    return Scheme("gptq", _size(given, where), int(first), ordered=True)


def _awq(given: Mapping[str, Any], where: str) -> Scheme:
    given = {"bits": given.get("w_bit"), "group_size": given.get("q_group_size", -1), **given}
    _must(given, where, {"bits": (BITS,), "version": ("gemm", "GEMM"), "zero_point": (True,)})
    return Scheme("awq", _size(given, where))


def _compressed(given: Mapping[str, Any], where: str) -> Scheme:
    _must({"format": None, **given}, where, {"format": ("pack-quantized",)})
    _must(given, where, {"kv_cache_scheme": (None,), "quantization_status": ("compressed",)})
    groups = given.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise ValueError(
            f"{where} must have one group of `config_groups`. Received: {groups!r:.200}"
        )
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"{where} must have `weights` in its group. Received: {group!r:.200}")
    _must(group, where, {"input_activations": (None,), "output_activations": (None,)})
    allowed = {"num_bits": (BITS,), "type": ("int",), "symmetric": (True,), "dynamic": (False,)}
    _must({"num_bits": None, **weights}, where, {**allowed, "actorder": (None,)})
    _must(weights, where, {"strategy": ("group", "channel")})
    sizes = {"group_size": weights.get("group_size") or -1}
    return Scheme("compressed-tensors", _size(sizes, where))


MIDDLE = 8  # what lies between their integers and ours
# Of eight columns, those that AWQ's kernels want beside each other, from the lowest bits up.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
STRAIGHT = tuple(range(PACKED))


@dataclasses.dataclass(frozen=True)
class Groups:
    """A matrix `(inputs, outputs)` of 4-bit numbers.

    Args:
        values: Integers of -8 to 7.
        scale, zero: `(groups, outputs)`.
        group: Of each input, the number of its group.
    """

    values: Array
    scale: Array
    zero: Array
    group: Array


class PackedTensors(Tensors):
    """`Tensors` in which a matrix of four bits stands as the one that it was, `NAME.weight`.

    Args:
        folder: Path of the folder.
        scheme: How matrices are packed.

    Raises:
        ValueError: If a tensor of a matrix is missing, or of another shape than the integers say.
    """

    def __init__(self, folder: StrPath, scheme: Scheme) -> None:
        super().__init__(folder)
        self.scheme = scheme
        first, *others = scheme.suffixes
        ending = f".{first}"
        self.packed = {n.removesuffix(ending) for n in self.shapes if n.endswith(ending)}
        for name in sorted(self.packed):
            outputs, inputs = self._extents(name, self.shapes.pop(name + ending))
            groups = scheme.groups(inputs)
            expected = {
                "scales": (groups, outputs),
                "qzeros": (groups, outputs // PACKED),
                "g_idx": (inputs,),
                "weight_scale": (outputs, groups),
                "weight_shape": (2,),
            }
            for suffix in others:
                found = self.shapes.pop(f"{name}.{suffix}", None)
                if found != expected[suffix]:
                    raise ValueError(
                        f"{self.folder}: the tensor {name}.{suffix} must be there with shape "
                        f"{expected[suffix]}, as {first} and config.json have it. Received: {found}"
                    )
            self.shapes[f"{name}.weight"] = outputs, inputs

    def _extents(self, name: str, shape: tuple[int, ...]) -> tuple[int, int]:
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"{self.folder}: the tensor {name}.{self.scheme.suffixes[0]} must be a matrix. "
                f"Received: shape {shape}"
            )
        return self.scheme.shape(shape)

    def groups(self, name: str) -> Groups:
        """The matrix `NAME.weight`, turned so that what goes in comes first."""
        inputs = self.shapes[f"{name}.weight"][1]
        readers = {"gptq": self._gptq, "awq": self._awq, "compressed": self._compressed}
        values, scale, zero = readers[self.scheme.method.split("-")[0]](name)
        number = self.scheme.groups(inputs)
        group = np.arange(inputs) // (inputs if self.scheme.size == -1 else self.scheme.size)
        if self.scheme.ordered:
            group = self.read(f"{name}.g_idx")
            if group.dtype.kind not in "iu" or group.min() < 0 or group.max() >= number:
                raise ValueError(
                    f"{self.folder}: the tensor {name}.g_idx must have numbers of {number} groups."
                )
        middle = np.int8(MIDDLE)
        return Groups(values - middle, scale.astype("float32"), zero - middle, group)

    def _integers(self, name: str, axis: int, order: tuple[int, ...] = STRAIGHT) -> Array:
        """The 4-bit integers of a tensor, int8, of which each int32 has eight along an axis."""
        packed = self.read(name)
        if packed.dtype != "int32":
            raise ValueError(f"{self.folder}: {name} must be of int32. Received: {packed.dtype}")
        shifts = [BITS * order.index(i) for i in range(PACKED)]
        parts = [((packed >> shift) & 15).astype("int8") for shift in shifts]
        shape = [size * (PACKED if i == axis else 1) for i, size in enumerate(packed.shape)]
        return np.stack(parts, axis + 1).reshape(shape)

    def _gptq(self, name: str) -> tuple[Array, Array, Array]:
        zero = self._integers(f"{name}.qzeros", 1) + np.int8(self.scheme.zero_less)
        if zero.max() > 15:  # the first format has no 0, and some code reads this as such
            raise ValueError(
                f"{self.folder}: the tensor {name}.qzeros must have zero points of 1 to 15 in "
                "GPTQ's first format. Received: 16; have it saved as gptq_v2"
            )
        return self._integers(f"{name}.qweight", 0), self.read(f"{name}.scales"), zero

    def _awq(self, name: str) -> tuple[Array, Array, Array]:
        values, zero = (self._integers(f"{name}.{n}", 1, AWQ_ORDER) for n in ("qweight", "qzeros"))
        return values, self.read(f"{name}.scales"), zero

    def _compressed(self, name: str) -> tuple[Array, Array, Array]:
        scale = self.read(f"{name}.weight_scale").T
        shape, stored = self.shapes[f"{name}.weight"], self.read(f"{name}.weight_shape")
        if tuple(stored) != shape:
            raise ValueError(
                f"{self.folder}: the tensor {name}.weight_shape must be {shape}. Received: {stored}"
            )
        zero = np.full(scale.shape, MIDDLE, "int8")
        return self._integers(f"{name}.weight_packed", 1).T, scale, zero


def tensors_of(folder: StrPath, scheme: Scheme | None) -> Tensors:
    """The tensors of a folder, a matrix of four bits as the one that it was."""
    return Tensors(folder) if scheme is None else PackedTensors(folder, scheme)


def policy(tensors: Tensors, family: Family) -> dict[str, Any]:
    """`dtype` of a model some of whose projections are in four bits; else nothing.

    Raises:
        ValueError: If other matrices of the folder are.
    """
    if not isinstance(tensors, PackedTensors):
        return {}
    default = keras.config.dtype_policy()
    found, left = {}, set(tensors.packed)
    mappings = [each for each in family.weights.projections() if isinstance(each, WeightMapping)]
    kernels = [each for each in mappings if each.theirs.endswith(".weight")]
    for mapping in kernels:
        pattern = re.escape(mapping.theirs.removesuffix(".weight")).replace(r"\{i\}", r"(\d+)")
        for name in sorted(left):
            if match := re.fullmatch(pattern, name):
                inputs = tensors.shapes[f"{name}.weight"][1]
                size = inputs if tensors.scheme.size == -1 else tensors.scheme.size
                path = mapping.ours.removesuffix("/kernel").format(i=match[1])
                found[path] = keras.dtype_policies.Int4DTypePolicy(f"int4/{size}", default.name)
                left.remove(name)
    if left:
        raise ValueError(
            f"{tensors.folder}: of models of type {family.name}, "
            f"{'projections of the blocks' if kernels else 'no matrix'} can be in four bits. "
            f"Received: {min(left)}; {len(left)} such in all"
        )
    return {"dtype": PolicyOfParts(default, found)}


def fill(model: keras.Model, mappings: Mappings, tensors: Tensors) -> set[str]:
    """Gives the 4-bit layers of a model their values; returns the published names."""
    used: set[str] = set()
    if not isinstance(tensors, PackedTensors):
        return used
    names = Names(mappings)
    for layer in model._flatten_layers():
        if layer.quantization_mode != "int4":
            continue
        path = layer.path.removeprefix(f"{model.name}/")
        mapping, name, _ = names.of(f"{path}/kernel")
        _fill_layer(layer, mapping, tensors, name)
        used.add(name)
        bias = f"{name.removesuffix('weight')}bias"
        if layer.bias is None and bias in tensors.shapes:  # GPTQ's oldest files have zeros
            if np.any(tensors.read(bias)):
                raise ValueError(
                    f"{tensors.folder}: the tensor {bias} must be zeros, or not there."
                )
            used.add(bias)
    return used


def _fill_layer(layer: Any, mapping: WeightMapping, tensors: PackedTensors, name: str) -> None:
    given = tensors.groups(name.removesuffix(".weight"))
    kernel, _, _ = keras.quantizers.pack_int4(given.values, axis=-1)
    if tuple(kernel.shape) != tuple(layer._kernel.shape):
        raise ValueError(
            f"{tensors.folder}: the tensor {name} must have shape "
            f"{mapping.layout.their_shape(tuple(layer.kernel.shape))}, as config.json has it. "
            f"Received: {tensors.shapes[name]}"
        )
    for ours, theirs in (
        (layer._kernel, kernel),
        (layer.kernel_scale, given.scale),
        (layer.kernel_zero, given.zero),
        (layer.g_idx, given.group.astype("float32")),
    ):
        ours.assign(theirs)
