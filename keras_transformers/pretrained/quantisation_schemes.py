"""The `quantization_config` of a published folder: which are read, and why others are refused."""

import dataclasses
from collections.abc import Mapping
from typing import Any

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
