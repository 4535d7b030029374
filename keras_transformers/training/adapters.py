"""LoRA adapters of a model: add, choose, combine, merge and remove them."""

import gc
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array
from keras_transformers.layers.adapters import (
    adaptable,
    adapter_of,
    add_adapter,
    in_float64,
    kernel_of,
    make_room,
    name_by_path,
    remove_adapter,
)
from keras_transformers.layers.base import disown_adapters, own_adapters
from keras_transformers.layers.low_rank import LowRank, LowRankSettings, is_plain

# What `targets` may say for the layers of every model: ends of paths, as regular expressions.
TARGETS = {
    "attention": r"(query|key|value|attention_output)",
    "feed_forward": r"feed_forward/[^/]+",
    "embeddings": r"[^/]*embeddings?(/projection)?",
}


def adapted_layers(model: keras.Model) -> dict[str, Any]:
    """Path inside the model -> layer, of those that have adapters.

    Of such a layer, `adapter.arrays(name)` are `A`, `B` and the magnitudes, and
    `adapter.assign_arrays(name, arrays)` sets them.
    """
    layers = [layer for layer in model._flatten_layers() if adapter_of(layer) is not None]
    return name_parts(model, layers)


def name_parts(model: keras.Model, parts: Iterable[Any]) -> dict[str, Any]:
    """Returns path inside the model -> layer or weight, see `name_by_path`.

    Two models inside a model can have layers of the same path.
    """
    return name_by_path(parts, lambda part: path_in(model, part))


def plain_path(path: str) -> str:
    """Returns a path of `name_parts` without the number behind it."""
    return re.sub(r"#\d+$", "", path)


def path_in(model: keras.Model, part: Any) -> str:
    """Path of a layer or weight inside a model."""
    path: str = part.path
    return path.removeprefix(f"{model.path}/")


def layers_of(model: keras.Model, targets: str | Sequence[str]) -> dict[str, Any]:
    """Path -> layer, of what is to be changed."""
    layers = name_parts(model, [layer for layer in model._flatten_layers() if adaptable(layer)])
    found: dict[str, Any] = {}
    for target in [targets] if isinstance(targets, str) else targets:
        pattern = re.compile(rf"(.*/)?(?:{TARGETS.get(target, target)})")
        fitting = {
            path: layer for path, layer in layers.items() if pattern.fullmatch(plain_path(path))
        }
        if not fitting:
            raise ValueError(
                f"add_lora: `targets` must be {', '.join(TARGETS)}, or match the ends of paths of "
                f"layers. Received: {target!r}, which matches none of {', '.join(layers)}"
            )
        found |= fitting
    if not found:
        raise ValueError("add_lora: `targets` must name at least one layer. Received: none")
    for path, layer in found.items():
        if getattr(layer, "lora_enabled", False):
            raise ValueError(f"add_lora: the layer {path} has Keras's own LoRA already.")
    return {path: layer for path, layer in layers.items() if path in found}


def weights_of(model: keras.Model) -> dict[str, keras.Variable]:
    """Path inside the model -> weight, of all that it could train but adapters."""
    layers = [layer for layer in model._flatten_layers() if not isinstance(layer, LowRank)]
    return name_parts(model, [weight for layer in layers for weight in layer._trainable_variables])


def weights_named(
    model: keras.Model, train: str | Sequence[str], changed: Sequence[Any]
) -> dict[str, keras.Variable]:
    """Path -> weight, of what is to be trained besides adapters."""
    weights, found = weights_of(model), dict[str, keras.Variable]()
    kernels = {id(kernel_of(layer)) for layer in changed}
    for name in [train] if isinstance(train, str) else train:
        pattern = re.compile(rf"(.*/)?(?:{name})(/.*)?")
        fitting = {
            path: weight for path, weight in weights.items() if pattern.fullmatch(plain_path(path))
        }
        twice = [path for path, each in fitting.items() if id(each) in kernels]
        if not fitting or twice:
            received = f"which has {twice[0]}" if twice else "which is part of no path"
            raise ValueError(
                "add_lora: `train` must match parts of paths of weights that no adapter changes. "
                f"Received: {name!r}, {received}"
            )
        found |= fitting
    return found


def merge(model: keras.Model) -> None:
    """Adds the active adapters to the kernels, each by its weight; the kernels are rounded once.

    The model then computes as it does without adapters, and as quickly. It still has them, and can
    be saved; `unmerge` takes the change off again, up to the rounding of a kernel. Models that
    contain this one are traced anew. It cannot be trained until then: `fit` raises an error.

    Args:
        model: A model with an active adapter, whose kernels are floating-point numbers.

    Raises:
        ValueError: If no adapter is active, it is merged already, or a kernel is quantised.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import add_lora, merge, unmerge
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = add_lora(model, rank=2)
    >>> merge(model)
    >>> unmerge(model)
    """
    refuse_merged(model, "merge")
    layers = _active_layers(model, "merge")
    quantized = [layer.path for layer in layers if layer.kernel_variable() is None]
    if quantized:
        raise ValueError(
            "merge: kernels must be floating-point numbers; what is added to quantised ones would "
            f"be lost in their rounding. Received: {quantized[0]} and {len(quantized) - 1} more"
        )
    for layer in layers:
        adapter, (kernel, assign) = layer.adapter, in_float64(layer)
        changed = kernel + _change(adapter)
        gain = _gain(adapter, changed)
        assign(changed if gain is None else changed * gain)
        adapter.merge(gain)
    for adapter in _adapters(model):
        if not adapter.merged:  # the active one does not change its layer
            adapter.merge(None)
    forget_programs(model)


def unmerge(model: keras.Model) -> None:
    """Takes merged adapters out of the kernels again; see `merge`.

    Args:
        model: A model with a merged adapter.

    Raises:
        ValueError: If none is merged.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import add_lora, merge, unmerge
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = add_lora(model, rank=2)
    >>> merge(model)
    >>> unmerge(model)
    """
    if not is_merged(model):
        raise ValueError(f"unmerge: an adapter must be merged. Received: none of '{model.name}'")
    for layer in _active_layers(model, "unmerge"):
        adapter, (kernel, assign) = layer.adapter, in_float64(layer)
        kernel = kernel if adapter.gain is None else kernel / adapter.gain
        assign(kernel - _change(adapter))
    for adapter in _adapters(model):
        adapter.unmerge()
    forget_programs(model)


def is_merged(model: keras.Model) -> bool:
    """True if the kernels of a model hold its active adapter; see `merge`."""
    return any(adapter.merged for adapter in _adapters(model))


def refuse_merged(model: keras.Model, caller: str) -> None:
    """ValueError if an adapter is merged."""
    if is_merged(model):
        raise ValueError(f"{caller}: an adapter is merged into the kernels; `unmerge` it first.")


def forget_programs(model: keras.Model) -> None:
    """Has everything traced anew that was traced with other layers.

    That is also the programs of every model that contains layers of this one.
    """
    for affected in models_around(model):
        _forget_programs(affected)


def forget_training(models: Sequence[keras.Model]) -> None:
    """Forgets the programs of models and how they were compiled: other weights are trained."""
    for model in models:
        _forget_programs(model)
        model.compiled, model.optimizer = False, None


def _forget_programs(model: keras.Model) -> None:
    model.train_function = model.test_function = model.predict_function = None
    model.__dict__.pop("_generators", None)  # of `generation`


def models_around(model: keras.Model) -> list[keras.Model]:
    """A model, and every model of this process that has one of its adapted layers.

    Keras does not record which models a layer is in, so this asks all objects of the process.
    """
    layers = {id(layer) for layer in adapted_layers(model).values()}
    others = [
        other
        for other in gc.get_objects()
        if issubclass(type(other), keras.Model) and other is not model
    ]
    return [model, *(other for other in others if _has_any(other, layers))]


def _has_any(model: keras.Model, layers: set[int]) -> bool:
    return any(id(layer) in layers for layer in model._flatten_layers())


def _adapters(model: keras.Model) -> list[LowRank]:
    return [layer.adapter for layer in adapted_layers(model).values()]


def _active_layers(model: keras.Model, caller: str) -> list[Any]:
    """The layers that active adapters change."""
    layers = list(adapted_layers(model).values())
    found = [layer for layer in layers if layer.adapter.acting]
    if not found:
        raise ValueError(f"{caller}: an adapter must be active. Received: none of '{model.name}'")
    return found


def _change(adapter: LowRank) -> Array:
    """`sum_i w_i s_i A_i B_i` of the active adapters in float64."""
    total: Any = 0.0
    for name, weight in adapter.acting.items():
        arrays, settings = adapter.arrays(name), adapter.current_settings()[name]
        a, b = (arrays[key].astype("float64") for key in ("lora_a", "lora_b"))
        total = total + weight * settings.scale * (a @ b)
    change: Array = total
    return change


def _gain(adapter: LowRank, changed: Array) -> Array | None:
    """`g` of the active adapter; None without DoRA, of which one is active at a time."""
    magnitude = next(adapter.arrays(name).get("magnitude") for name in adapter.acting)
    if magnitude is None:
        return None
    used, norm = magnitude != 0, np.linalg.norm(changed, axis=0)
    gain: Array = np.where(used, magnitude / np.where(used, norm, 1), 1)
    return gain


def add_lora(
    model: keras.Model,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Sequence[str] = ("attention", "feed_forward"),
    dora: bool = False,
    rslora: bool = False,
    train: str | Sequence[str] = (),
    name: str = "default",
) -> list[str]:
    r"""Gives a built model an adapter, which is all that it trains from now on, and activates it.

    Each target's kernel `W` becomes `W + s A B`, `A` and `B` having `rank` columns and rows, and
    nothing is changed before the first step (Hu et al. 2021, "LoRA",
    https://arxiv.org/abs/2106.09685). Everything else is frozen but what `train` names, so that
    gradients and the optimizer's state are those of the adapter. The base may be quantised
    (Dettmers et al. 2023, "QLoRA", https://arxiv.org/abs/2305.14314). Compile the model afterwards.

    A model can have several adapters, each of a name; see `set_adapter`. They are saved with it.

    Args:
        model: A built model of our layers or Keras's: kernels of `Dense` and `EinsumDense`, tables
            of `Embedding` and `TokenEmbedding` can be changed. A tied table is changed where it
            makes logits, too.
        rank: Columns of `A`.
        alpha: `s = alpha / rank`; by default `rank`.
        dropout: Rate on the input of `A`, in training; not of tables.
        targets: "attention", "feed_forward", "embeddings", or regular expressions, each of which
            must match the end of a layer's path, from a slash on: `"query"`,
            `"decoder_\\d+/mixer/(query|value)"`, `".*"`.
        dora: Whether to learn magnitudes apart from directions (Liu et al. 2024, "DoRA",
            https://arxiv.org/abs/2402.09353).
        rslora: Whether `s = alpha / sqrt(rank)` (Kalajdzievski 2023, "rsLoRA",
            https://arxiv.org/abs/2312.03732).
        train: What stays trainable besides: regular expressions, each of which must match a part
            of a weight's path between slashes: `"head"`, `".*norm"`, `"bias"`. Every adapter has
            values of its own of these.
        name: What the adapter is called.

    Returns:
        Paths of the layers that are changed.

    Raises:
        ValueError: If the model is not built, has an adapter of that name, a merged one or Keras's
            own LoRA; if a number is out of range, or a target or what to train names nothing.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import AdamW, SmoothedCrossEntropy, add_lora
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> len(add_lora(model, rank=2, targets="attention")), len(model.trainable_variables)
    (4, 8)
    >>> model.compile(AdamW(1e-3), SmoothedCrossEntropy())
    >>> ids = np.array([[1, 5, 7, 3], [1, 7, 5, 3]])
    >>> history = model.fit(ids[:, :-1], ids[:, 1:], verbose=0)
    """
    settings = checked_settings(rank, alpha, dropout, dora, rslora)
    known = adapters_of(model)
    if not model.built or not isinstance(name, str) or not name or name in known:
        raise ValueError(
            f"add_lora: `model` must be built, and `name` a new one. Received: model "
            f"'{model.name}', {'built' if model.built else 'not built'}, with the adapters "
            f"{sorted(known)}; name={name!r}"
        )
    chosen = layers_of(model, targets)
    weights = weights_named(model, train, [*chosen.values(), *adapted_layers(model).values()])
    attach(model, name, [(layer, settings) for layer in chosen.values()], weights)
    return list(chosen)


def attach(
    model: keras.Model,
    name: str,
    changes: Sequence[tuple[Any, LowRankSettings]],
    weights: Mapping[str, keras.Variable],
) -> None:
    """`add_lora`, once it is known which layers are changed, each in which way.

    Args:
        model: A built model.
        name: What the adapter is called.
        changes: Layers and the settings of their adapters.
        weights: Path inside the model -> weight, of what is trained besides.
    """
    refuse_merged(model, "add_lora")
    _activate(model, {})
    for layer, settings in changes:
        add_adapter(layer, name, settings, random.randrange(2**31))
    affected = models_around(model)
    for around in affected:
        own_adapters(around)
    others = _others(model)
    values = {path: _value(weight) for path, weight in weights.items()}
    others[""] = {**values, **others.get("", {})}
    others[name] = values
    _activate(model, {name: 1.0})
    _train_only(model, list(weights.values()))
    forget_training(affected)


def set_adapter(model: keras.Model, name: str | Sequence[str] | Mapping[str, float] | None) -> None:
    """Makes another adapter the active one, or several; or none: the model is what it was before.

    Several add up: kernels are changed by `sum_i w_i s_i A_i B_i`, exactly, and what adapters train
    besides (`train` of `add_lora`) becomes `v + sum_i w_i (v_i - v)`, where `v` is the value
    without adapters. `fit` then trains all that are active, each as its own, as `peft` does; but
    not if one of them trains other weights besides, or they have different dropout.
    `combine_adapters` makes one adapter of several.

    Values are assigned to variables, so that nothing is compiled anew; but on JAX where the two
    train different weights besides, and between one that is active by a weight of 1 (or none) and
    others. Where several are active for the first time, larger variables may be made: compile the
    model then. An optimizer keeps the moments of the adapter before: compile the model again to
    train another.

    Args:
        model: A model with adapters.
        name: Name of the adapter; a list of names, each with a weight of 1; a dict of name ->
            weight `w_i`, a finite number; or None.

    Raises:
        ValueError: If there is no such adapter, one is named twice, a weight is not finite, an
            adapter is merged, or one with magnitudes (DoRA) would not be the only one with a
            weight of 1.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import active_adapters, add_lora, set_adapter
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = [add_lora(model, rank, name=name) for name, rank in (("de", 2), ("fr", 4))]
    >>> set_adapter(model, "de")
    >>> set_adapter(model, {"de": 0.5, "fr": 1.0})
    >>> active_adapters(model)
    {'de': 0.5, 'fr': 1.0}
    """
    known = adapters_of(model)
    active = _weights_by_name(name, known)
    refuse_merged(model, "set_adapter")
    before = active_adapters(model)
    _activate(model, {})
    grown = [make_room(layer, active) for layer in adapted_layers(model).values()]
    _activate(model, active)
    weights: dict[str, Any] = {}
    for each in active:
        weights |= trained_weights(model, each)
    trained = {path for path, weight in weights_of(model).items() if weight.trainable}
    if any(grown) or (active and set(weights) != trained):
        _train_only(model, list(weights.values()))
    if any(grown):
        forget_training(models_around(model))
    elif is_plain(before) != is_plain(active):
        forget_programs(model)
    elif not before or not active or _dropout(known, before) != _dropout(known, active):
        for affected in models_around(model):
            affected.train_function = None  # Keras's, in which the rate is a constant


def active_adapters(model: keras.Model) -> dict[str, float]:
    """The adapters of a model that are active, or merged.

    Returns:
        Dict of name -> weight, by which its changes are multiplied; see `set_adapter`. Empty if
        none is active.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import active_adapters, add_lora
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = add_lora(model, rank=2)
    >>> active_adapters(model)
    {'default': 1.0}
    """
    layer = next(iter(adapted_layers(model).values()), None)
    return {} if layer is None else dict(layer.adapter.active)


def combine_adapters(
    model: keras.Model, weights: Mapping[str, float], name: str = "combined"
) -> list[str]:
    """Makes one adapter of several, which all act at once, and activates it.

    It changes a kernel by `sum_i w_i s_i A_i B_i`, exactly: its rank is the sum of their ranks.
    Weights of 1 add the adapters up; others interpolate, or take one off. What adapters train
    besides (`train` of `add_lora`) becomes `v + sum_i w_i (v_i - v)`, where `v` is the value
    without adapters. The old ones stay as they are. The model then trains the new one; compile it
    before `fit`.

    Args:
        model: A model with adapters, none of which is merged.
        weights: Dict of name -> `w_i`, a finite number.
        name: What the new adapter is called.

    Returns:
        Paths of the layers that are changed.

    Raises:
        ValueError: If there is no such adapter, one has magnitudes (DoRA), which do not add up, a
            weight is not finite, `name` is taken, or an adapter is merged.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import add_lora, adapters_of, combine_adapters
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = [add_lora(model, rank, name=name) for name, rank in (("de", 2), ("fr", 4))]
    >>> changed = combine_adapters(model, {"de": 0.7, "fr": 0.3}, name="both")
    >>> adapters_of(model)["both"].rank
    6
    """
    known = adapters_of(model)
    _check_combination(known, weights, name)
    refuse_merged(model, "combine_adapters")
    _activate(model, {})
    layers = {
        path: layer
        for path, layer in adapted_layers(model).items()
        if not layer.adapter.settings.keys().isdisjoint(weights)
    }
    combined = [_combination(layer.adapter, weights) for layer in layers.values()]
    others, variables = _others(model), weights_of(model)
    trained = [path for adapter in weights for path in others.get(adapter, {})]
    base = {path: _value(variables[path]) for path in trained}
    values = {path: _weighted_value(path, base[path], others, weights) for path in base}
    changes = [(layer, new) for layer, (new, _) in zip(layers.values(), combined, strict=True)]
    attach(model, name, changes, {path: variables[path] for path in base})
    for layer, (_, arrays) in zip(layers.values(), combined, strict=True):
        layer.adapter.assign_arrays(name, arrays)
    for path, value in values.items():
        variables[path].assign(value)
    return list(layers)


def adapters_of(model: keras.Model) -> dict[str, LowRankSettings]:
    """The adapters of a model.

    Returns:
        Dict of name -> `LowRankSettings`.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import adapters_of, add_lora
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = add_lora(model, rank=2)
    >>> adapters_of(model)["default"].rank
    2
    """
    found: dict[str, LowRankSettings] = {}
    for layer in adapted_layers(model).values():
        found |= layer.adapter.current_settings()
    return found


def trained_weights(model: keras.Model, name: str) -> dict[str, Any]:
    """Path inside the model -> variable, of what an adapter trains besides its own.

    They hold its values while it is the active one.
    """
    weights = weights_of(model)
    return {path: weights[path] for path in _others(model).get(name, {})}


def remove_lora(model: keras.Model) -> None:
    """Takes all adapters off a model, whose layers are then the plain ones again.

    What is merged stays in the kernels: `merge` and `remove_lora` give a model for those who know
    nothing of adapters. Everything becomes trainable; compile the model afterwards.

    Args:
        model: A model with adapters.

    Example:
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import adapters_of, add_lora, merge, remove_lora
    >>> model = LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> paths = add_lora(model, rank=2)
    >>> merge(model)
    >>> remove_lora(model)
    >>> adapters_of(model)
    {}
    """
    if not is_merged(model) and adapters_of(model):
        _activate(model, {})
    affected = models_around(model)
    forget_training(affected)
    for layer in adapted_layers(model).values():
        remove_adapter(layer)
    for around in affected:
        disown_adapters(around)
    _set_trainable(model, True)


def checked_settings(
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    dora: bool = False,
    rslora: bool = False,
) -> LowRankSettings:
    """Returns the settings of `add_lora`; ValueError if a number is out of range."""
    alpha = rank if alpha is None else alpha
    if not (isinstance(rank, int) and rank >= 1 and alpha > 0 and 0 <= dropout < 1):
        raise ValueError(
            "add_lora: `rank` must be a positive integer, `alpha` positive, and `dropout` in "
            f"[0, 1). Received: rank={rank!r}, alpha={alpha!r}, dropout={dropout!r}"
        )
    return LowRankSettings(rank, float(alpha), float(dropout), bool(dora), bool(rslora))


def _check_combination(
    known: Mapping[str, LowRankSettings], weights: Mapping[str, float], name: str
) -> None:
    unknown = sorted(set(weights) - set(known))
    if unknown or not weights or not np.all(np.isfinite(list(weights.values()))):
        raise ValueError(
            f"combine_adapters: `weights` must have finite numbers for some of {sorted(known)}. "
            f"Received: {dict(weights)}"
        )
    if not isinstance(name, str) or not name or name in known:
        raise ValueError(
            f"combine_adapters: `name` must be a new one. Received: {name!r}, and the model has "
            f"{sorted(known)}"
        )
    with_magnitudes = [adapter for adapter in weights if known[adapter].dora]
    if with_magnitudes:
        raise ValueError(
            "combine_adapters: magnitudes of DoRA do not add up. Expected: adapters without them. "
            f"Received: {with_magnitudes}"
        )


def _combination(
    adapter: LowRank, weights: Mapping[str, float]
) -> tuple[LowRankSettings, dict[str, Array]]:
    """Settings and arrays of the weighted sum of the adapters that change one kernel."""
    names = [name for name in weights if name in adapter.settings]
    arrays = {name: adapter.arrays(name) for name in names}
    factors = {name: weights[name] * adapter.settings[name].scale for name in names}
    a = np.concatenate([arrays[name]["lora_a"] for name in names], axis=1)
    b = np.concatenate([factors[name] * arrays[name]["lora_b"] for name in names], axis=0)
    return LowRankSettings(a.shape[1], float(a.shape[1])), {"lora_a": a, "lora_b": b}


def _weighted_value(
    path: str, base: Array, others: Mapping[str, Mapping[str, Array]], weights: Mapping[str, float]
) -> Array:
    """`v + sum_i w_i (v_i - v)`, over the adapters that train the weight of a path."""
    value = base.astype("float64")
    for name, weight in weights.items():
        if path in others.get(name, {}):
            value = value + weight * (others[name][path].astype("float64") - base)
    return value.astype(base.dtype)


def _others(model: keras.Model) -> dict[str, dict[str, Array]]:
    """Name -> path -> array of the weights that adapters train besides; "" for none's."""
    kept = [layer.adapter.others for layer in adapted_layers(model).values()]
    others: dict[str, dict[str, Array]] = next((each for each in kept if each), kept[0])
    return others


def _value(weight: keras.Variable) -> Array:
    return np.array(ops.convert_to_numpy(weight))


def _activate(model: keras.Model, active: Mapping[str, float]) -> None:
    layers = list(adapted_layers(model).values())
    if not layers:
        return
    weights, others, before = weights_of(model), _others(model), active_adapters(model)
    for path in {**_values_besides(others, active), **_values_besides(others, before)}:
        if path not in weights:
            raise ValueError(
                f"set_adapter: the weight {path}, which an adapter trains besides, has another "
                "path since the model was loaded. Give all layers inside your own layers names"
            )
    if before and is_plain(before):
        (name,) = before
        if name in others:
            others[name] = {path: _value(weights[path]) for path in others[name]}
    for path, value in _values_besides(others, active).items():
        weights[path].assign(value)
    for layer in layers:
        layer.adapter.activate(active)


def _values_besides(
    others: Mapping[str, Mapping[str, Array]], active: Mapping[str, float]
) -> dict[str, Array]:
    """Path -> value, where some adapters are active, of the weights that any trains besides."""
    base = others.get("", {})
    if is_plain(active):
        return {**base, **others.get(next(iter(active), ""), {})}
    return {path: _weighted_value(path, value, others, active) for path, value in base.items()}


def _weights_by_name(
    name: str | Sequence[str] | Mapping[str, float] | None, known: Mapping[str, LowRankSettings]
) -> dict[str, float]:
    """Name -> weight, of what `set_adapter` is given; ValueError if it cannot be active."""
    given = [name] if isinstance(name, str) else [] if name is None else list(name)
    weights = dict(name) if isinstance(name, Mapping) else dict.fromkeys(given, 1.0)
    is_wrong = name is not None and not given
    if not known or is_wrong or len(weights) < len(given) or not set(weights) <= set(known):
        raise ValueError(
            f"set_adapter: `name` must be one of {sorted(known)} or None, or a list or dict of "
            f"some. Received: {name!r}"
        )
    if not all(np.isfinite(weight) for weight in weights.values()):
        raise ValueError(f"set_adapter: weights must be finite numbers. Received: {name!r}")
    # In one order, as lists of weights (`set_weights`) tell variables apart by their positions.
    active = {each: float(weights[each]) for each in sorted(weights)}
    with_magnitudes = [each for each in active if known[each].dora]
    if with_magnitudes and not is_plain(active):
        raise ValueError(
            "set_adapter: magnitudes of DoRA do not add up. Expected: adapters without them, or "
            f"one with a weight of 1. Received: {name!r}, of which {with_magnitudes} have them"
        )
    return active


def _dropout(known: Mapping[str, LowRankSettings], active: Mapping[str, float]) -> set[float]:
    return {known[name].dropout for name in active}


def _set_trainable(layer: Any, value: bool) -> None:
    """Sets `trainable` of a layer and all in it; on TensorFlow Keras passes over what has it."""
    for each in layer._flatten_layers():
        type(each).trainable.fset(each, value)


def _train_only(model: keras.Model, weights: Sequence[keras.Variable]) -> None:
    """Freezes all but adapters and some weights."""
    kept = {id(weight) for weight in weights}
    _set_trainable(model, True)
    for layer in model._flatten_layers():
        inside = [each for each in layer._flatten_layers() if not _is_of_adapter(each)]
        adapted = len(inside) < len(layer._flatten_layers())
        own = [weight for each in inside for weight in each._trainable_variables]
        if not adapted and not any(id(weight) in kept for weight in own):
            _set_trainable(layer, False)
    for weight in weights_of(model).values():
        weight.trainable = id(weight) in kept


def _is_of_adapter(layer: Any) -> bool:
    return isinstance(layer, LowRank)
