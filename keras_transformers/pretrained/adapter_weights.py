"""Settings and tensors of a published adapter, and the layers of ours that they belong to."""

import contextlib
import dataclasses
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, StrPath
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.adapters import KINDS, Adapted, adaptable
from keras_transformers.layers.low_rank import LowRankSettings
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.files import Tensors, read_json, write_json
from keras_transformers.pretrained.weight_mapping import (
    AsIs,
    FusedPart,
    Layout,
    Matrix,
    Names,
    PatchConvolution,
    Pointwise,
    Stacked,
    module_name,
)

ADAPTER = "adapter_config.json"
ALL_LINEAR = "all-linear"
# Whatever their values, the tensors say the rest.
WITHOUT_EFFECT = frozenset(
    "auto_mapping base_model_name_or_path ensure_weight_tying eva_config exclude_modules "
    "fan_in_fan_out inference_mode "
    "layers_pattern layers_to_transform megatron_config megatron_core peft_type peft_version "
    "qalora_group_size revision runtime_config task_type".split()
)
# How `lora_A` and `lora_B` began, with base weights as published. Others change those too.
BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva")
READ = frozenset(
    "alpha_pattern lora_alpha lora_dropout modules_to_save r rank_pattern target_modules use_dora "
    "use_rslora".split()
)
# Ends of the names of published classes -> what peft calls their task, where that adds nothing.
TASKS = {"ForCausalLM": "CAUSAL_LM", "LMHeadModel": "CAUSAL_LM"}
TASKS |= {"ForConditionalGeneration": "SEQ_2_SEQ_LM", "MTModel": "SEQ_2_SEQ_LM"}
LONGEST_PATTERN, MOST_REPEATS = 500, 3


@dataclasses.dataclass(frozen=True)
class AdapterSettings:
    """What `adapter_config.json` says of a LoRA adapter.

    Args:
        rank: `r`, of modules that no pattern is for.
        alpha: Numerator of what the product of the two matrices is multiplied with, alike.
        dropout: Share of inputs dropped in training.
        dora: Whether there are magnitudes (Liu et al. 2024).
        rank_stabilized: Whether the denominator is the root of the rank (Kalajdzievski 2023), not
            the rank.
        ranks: Patterns of names of modules, as `rank_pattern` has them -> their ranks.
        alphas: The same for alphas.
        targets: Names of modules, or ends of names, that are adapted; or one pattern.
        saved: Names of modules, or ends of names, that are saved whole.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    dora: bool = False
    rank_stabilized: bool = False
    ranks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    alphas: Mapping[str, float] = dataclasses.field(default_factory=dict)
    targets: tuple[str, ...] | str = ()
    saved: tuple[str, ...] = ()

    def of(self, module: str) -> tuple[int, float]:
        """Rank and alpha of a module."""
        return _found(self.ranks, module, self.rank), _found(self.alphas, module, self.alpha)

    def is_target(self, module: str) -> bool:
        """Whether a module is to be adapted; of a pattern, the tensors alone say it."""
        return isinstance(self.targets, str) or is_among(module, self.targets)


def is_among(module: str, names: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or ends like one of them."""
    return any(f".{module}".endswith(f".{name}") for name in names)


def _found(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def read_settings(folder: StrPath) -> AdapterSettings:
    """The settings of the adapter in a folder.

    Raises:
        FileNotFoundError: If there is no `adapter_config.json`.
        ValueError: If it is of another kind than LoRA, or says something that has no counterpart
            here; the message names it.
    """
    config, where = read_json(folder, ADAPTER), f"{folder}/{ADAPTER}"
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ValueError(f"{where}: `peft_type` must be 'LORA', also of DoRA. Received: {kind!r}")
    _refuse_what_is_not_read(config, where)
    read = _Reader(config, where)
    targets = config.get("target_modules")
    return AdapterSettings(
        rank=read.number("r", 8, whole=True),
        alpha=read.number("lora_alpha", 8),
        dropout=read.share("lora_dropout"),
        dora=read.flag("use_dora"),
        rank_stabilized=read.flag("use_rslora"),
        ranks=read.patterns("rank_pattern", whole=True),
        alphas=read.patterns("alpha_pattern"),
        targets=targets if isinstance(targets, str) else read.names("target_modules"),
        saved=read.names("modules_to_save"),
    )


def _refuse_what_is_not_read(config: dict[str, Any], where: str) -> None:
    settled = {"bias": ("none",), "init_lora_weights": BEGINNINGS}
    for key, value in config.items():
        if key in READ or key in WITHOUT_EFFECT:
            continue
        if key in settled:
            if value not in settled[key]:
                expected = " or ".join(map(repr, settled[key]))
                raise ValueError(f"{where}: `{key}` must be {expected}. Received: {value!r}")
        elif value not in (None, False, {}, []):
            raise ValueError(
                f"{where}: `{key}` has no counterpart here, and must be left out. "
                f"Received: {value!r}"
            )


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Values of a configuration, checked."""

    config: dict[str, Any]
    where: str

    def _error(self, key: str, expected: str) -> ValueError:
        return ValueError(
            f"{self.where}: `{key}` must be {expected}. Received: {self.config[key]!r}"
        )

    def number(self, key: str, default: int, whole: bool = False) -> Any:
        value = self.config.get(key, default)
        if not _is_positive(value, whole):
            raise self._error(key, "a positive integer" if whole else "a positive number")
        return value

    def share(self, key: str) -> float:
        value = self.config.get(key) or 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self._error(key, "at least 0 and less than 1")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.config.get(key) or False
        if not isinstance(value, bool):
            raise self._error(key, "true or false")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self.config.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self._error(key, "a list of names")
        return tuple(value)

    def patterns(self, key: str, whole: bool = False) -> dict[str, Any]:
        found = self.config.get(key) or {}
        if not isinstance(found, dict) or not all(_is_positive(v, whole) for v in found.values()):
            kind = "integers" if whole else "numbers"
            raise self._error(key, f"an object of patterns with positive {kind}")
        for pattern in found:
            if not _is_quick(pattern):
                raise ValueError(
                    f"{self.where}: a pattern of `{key}` must be a regular expression of at most "
                    f"{LONGEST_PATTERN} characters and {MOST_REPEATS} repetitions, none of a group,"
                    f" so that it is matched in little time. Received: {pattern[:100]!r}"
                )
        return found


def _is_positive(value: Any, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return 0 < value < math.inf


def _is_quick(pattern: str) -> bool:
    """Whether a pattern of a file that nobody vouches for cannot take hours to match a name."""
    if len(pattern) > LONGEST_PATTERN or re.search(r"\)\s*[*+{?]", pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return len(re.findall(r"(?<!\\)[*+{]", pattern)) <= MOST_REPEATS


def write_settings(
    folder: pathlib.Path,
    modules: Mapping[str, LowRankSettings],
    saved: tuple[str, ...],
    architecture: str,
    base: str | None,
    straight: bool,
) -> None:
    """Writes `adapter_config.json`.

    Args:
        folder: Path of the folder.
        modules: Module -> what its adapter is.
        saved: Modules that are saved whole.
        architecture: The published class.
        base: Path or name of the base.
        straight: Whether a kernel lies with its inputs first.
    """
    first = next(iter(modules.values()))
    kinds = {(each.dropout, each.dora, each.rslora) for each in modules.values()}
    if len(kinds) > 1:
        raise ValueError(
            "save_adapter: all modules must have the same dropout, and all DoRA and rsLoRA, or "
            f"none. Received: {sorted(kinds)}"
        )
    config: dict[str, Any] = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": straight,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": _number(first.alpha),
        "lora_dropout": first.dropout,
        "modules_to_save": list(saved) or None,
        "peft_type": "LORA",
        "r": first.rank,
        "target_modules": list(modules),
        "task_type": next((t for end, t in TASKS.items() if architecture.endswith(end)), None),
        "use_dora": first.dora,
        "use_rslora": first.rslora,
    }
    config["rank_pattern"] = {m: e.rank for m, e in modules.items() if e.rank != first.rank}
    config["alpha_pattern"] = {
        module: _number(each.alpha) for module, each in modules.items() if each.alpha != first.alpha
    }
    write_json(folder, ADAPTER, config)


def _number(value: float) -> float:
    """An integer where it is one, as peft has it."""
    return int(value) if float(value).is_integer() else value


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


FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
OF_PRODUCTS = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}
OF_TABLES = {"lora_a": "lora_embedding_A", "lora_b": "lora_embedding_B"}
MAGNITUDE = {"magnitude": "lora_magnitude_vector"}
KEYS_OF_TENSORS = {
    **{name: (key, False) for key, name in OF_PRODUCTS.items()},
    **{name: (key, True) for key, name in OF_TABLES.items()},
    "lora_magnitude_vector": ("magnitude", None),
    "lora_magnitude_vector.weight": ("magnitude", None),
}
KNOWN = re.compile(rf"(.+)\.({'|'.join(map(re.escape, KEYS_OF_TENSORS))})")
OTHER = {"lora_a": "lora_b", "lora_b": "lora_a"}


@dataclasses.dataclass(frozen=True)
class PublishedAdapter:
    """A folder with an adapter.

    Args:
        settings: Its configuration.
        tensors: Its tensors.
        changed: Module -> "lora_a", "lora_b" or "magnitude" -> name of the tensor.
        tables: Modules whose rows are looked up.
        whole: Name inside the model -> name of the tensor, of weights that are not changes.
    """

    settings: AdapterSettings
    tensors: Tensors
    changed: dict[str, dict[str, str]]
    tables: set[str]
    whole: dict[str, str]

    def of(self, module: str, parts: Sequence[Part], reverse: bool = False) -> ModuleAdapter:
        """The adapter of a module.

        Args:
            module: Its name.
            parts: The layers of ours that it is.
            reverse: Whether the module multiplies with a table that is ours, transposed.

        Raises:
            ValueError: If a tensor is missing, or has another shape than the configuration says.
        """
        rank, alpha = self.settings.of(module)
        settings = LowRankSettings(
            rank, alpha, self.settings.dropout, self.settings.dora, self.settings.rank_stabilized
        )
        names = dict(self.changed[module])
        if reverse:
            names = {OTHER.get(key, key): name for key, name in names.items()}
        shapes = expected_shapes(parts, settings)
        if reverse:
            shapes = {key: shape[::-1] for key, shape in shapes.items()}
        if set(names) != set(shapes):
            raise ValueError(
                f"{self.tensors.folder / FILE}: of {module} there must be {', '.join(shapes)}. "
                f"Received: {', '.join(names)}"
            )
        for key, name in names.items():
            if self.tensors.shapes[name] != shapes[key]:
                raise ValueError(
                    f"{self.tensors.folder / FILE}: {name} must have shape {shapes[key]}, as the "
                    f"model and `r` have it. Received: {self.tensors.shapes[name]}"
                )
        found = {
            key: self.tensors.read(name).astype("float32", copy=False)
            for key, name in names.items()
        }
        found = {key: value.T for key, value in found.items()} if reverse else found
        return ModuleAdapter(settings, our_arrays(parts, found))


def read_adapter(folder: StrPath) -> PublishedAdapter:
    """The adapter in a folder.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the adapter is of another kind than LoRA or DoRA, or a tensor is.
    """
    settings = read_settings(folder)
    tensors = Tensors(folder, FILE)
    changed: dict[str, dict[str, str]] = {}
    tables, whole = set(), {}
    for name in tensors.shapes:
        inside = name.removeprefix(PREFIX)
        match = KNOWN.fullmatch(inside)
        if inside == name or (".lora_" in inside and match is None):
            raise ValueError(
                f"{tensors.folder / FILE}: names must begin with {PREFIX!r}, and end with "
                f"{', '.join(KEYS_OF_TENSORS)} where they are of changes. Received: {name:.200}"
            )
        if match is None:
            whole[inside] = name
            continue
        module, (key, table) = match[1], KEYS_OF_TENSORS[match[2]]
        changed.setdefault(module, {})[key] = name
        if table:
            tables.add(module)
    return PublishedAdapter(settings, tensors, changed, tables, whole)


def _all(parts: Sequence[Part]) -> tuple[int, int]:
    """Numbers of inputs and outputs of a module."""
    return parts[0].shape[0], sum(part.shape[1] for part in parts)


def expected_shapes(parts: Sequence[Part], settings: LowRankSettings) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a module's adapter."""
    inputs, outputs = _all(parts)
    arrays = {
        "lora_a": np.broadcast_to(np.float32(0), (inputs, settings.rank)),
        "lora_b": np.broadcast_to(np.float32(0), (settings.rank, outputs)),
    }
    if settings.dora:
        arrays["magnitude"] = np.zeros(outputs, "float32")
    return {key: value.shape for key, value in their_arrays(parts[0], arrays).items()}


def their_arrays(part: Part, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """`lora_a` `(inputs, rank)`, `lora_b` `(rank, outputs)` and magnitudes as they lie there."""
    found = {key: value.T for key, value in arrays.items()}
    if part.is_convolution:
        found["lora_a"] = part.layout.theirs(arrays["lora_a"])
        found["lora_b"] = found["lora_b"][:, :, None, None]
        if "magnitude" in found:
            found["magnitude"] = found["magnitude"].reshape(1, -1, 1, 1)
    return found


def our_arrays(parts: Sequence[Part], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The other way round."""
    (inputs, outputs), rank = _all(parts), len(tensors["lora_a"])
    first = parts[0]
    a = tensors["lora_a"]
    found = {
        "lora_a": first.layout.ours(a, (inputs, rank)) if first.is_convolution else a.T,
        "lora_b": tensors["lora_b"].reshape(outputs, rank).T,
    }
    if "magnitude" in tensors:
        found["magnitude"] = tensors["magnitude"].reshape(-1)
    return found


def named_tensors(module: str, part: Part, adapter: ModuleAdapter) -> dict[str, Any]:
    """The tensors of a module's adapter under their names."""
    kinds = (OF_TABLES if part.is_table else OF_PRODUCTS) | MAGNITUDE
    found = their_arrays(part, adapter.arrays)
    return {f"{PREFIX}{module}.{kinds[key]}": value for key, value in found.items()}


WRITERS = ("translation", "language_model", "masked_language", "summarization", "text_to_text")
INPUT = "embed_tokens"


def _modules_of(part: Part, family: Family, architecture: str) -> tuple[list[str], list[str]]:
    """The modules that look rows of a table up, and those that make logits with it."""
    first, *others = part.names
    inputs = [name for name in part.names if name.endswith(INPUT)] or [first]
    writes = architecture in {family.tasks.get(task) for task in WRITERS}
    tied = writes and getattr(part.layer, "tie_weights", False)
    return inputs, [name for name in others if name not in inputs] if tied else []


def our_tables(
    published: PublishedAdapter, parts: Sequence[Part], family: Family, architecture: str
) -> list[tuple[Any, ModuleAdapter]]:
    """Tables and their adapters.

    Raises:
        ValueError: If modules of a table have different adapters, or some have none.
    """
    found = []
    for part in (part for part in parts if part.is_table):
        present = [name for name in part.names if name in published.changed]
        if not present:
            continue
        inputs, outputs = _modules_of(part, family, architecture)
        if outputs and published.settings.dora:
            raise _refused_dora("load_adapter", part)
        adapters = [
            published.of(name, [part], reverse=name not in published.tables) for name in present
        ]
        lacking = [name for name in (*inputs, *outputs) if name not in present]
        if lacking or not all(_same(each, adapters[0]) for each in adapters):
            raise ValueError(
                f"{published.tensors.folder / FILE}: one table is {', '.join((*inputs, *outputs))} "
                "here, so all must have the same adapter, or none. Received: different ones, or "
                f"only {', '.join(present)}"
            )
        found.append((part.layer, adapters[0]))
    return found


def _same(one: ModuleAdapter, other: ModuleAdapter) -> bool:
    alike = one.settings.scale == other.settings.scale and one.arrays.keys() == other.arrays.keys()
    return alike and all(np.array_equal(one.arrays[key], other.arrays[key]) for key in one.arrays)


def table_tensors(
    part: Part, adapter: ModuleAdapter, family: Family, architecture: str
) -> dict[str, dict[str, Array]]:
    """Module -> its tensors, of every module of a table."""
    inputs, outputs = _modules_of(part, family, architecture)
    if outputs and adapter.settings.dora:
        raise _refused_dora("save_adapter", part)
    found = {module: named_tensors(module, part, adapter) for module in inputs}
    for module in outputs:
        found[module] = {
            f"{PREFIX}{module}.{OF_PRODUCTS['lora_a']}": adapter.arrays["lora_b"],
            f"{PREFIX}{module}.{OF_PRODUCTS['lora_b']}": adapter.arrays["lora_a"],
        }
    return found


def _refused_dora(caller: str, part: Part) -> ValueError:
    return ValueError(
        f"{caller}: a table that makes logits, too, has no DoRA that is the same here and in "
        f"`peft`. Received: an adapter of {part.layer.path}"
    )
