"""Adapters added to the kernels that they change, and taken out again."""

import gc
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.layers.adapting import in_float64
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.training.adapter_targets import adapted_layers


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
