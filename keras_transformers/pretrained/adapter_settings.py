"""`adapter_config.json`, which says what the tensors of a published adapter mean."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from keras_transformers.core.types import StrPath
from keras_transformers.layers.low_rank import LowRankSettings
from keras_transformers.pretrained.files import read_json, write_json

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
