"""How layers get adapters, and lose them."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Array, Tensor
from keras_transformers.layers.adapted import (
    Adapted,
    AdaptedDense,
    AdaptedEinsumDense,
    AdaptedEmbedding,
    adapter_of,
    contracted,
)
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.layers.low_rank_settings import LowRankSettings

KINDS: dict[type, Any] = {
    keras.layers.Dense: AdaptedDense,
    keras.layers.EinsumDense: AdaptedEinsumDense,
    keras.layers.Embedding: AdaptedEmbedding,
}


def adaptable(layer: Any) -> bool:
    """Whether a layer has weights that an adapter can change."""
    if not layer.built:
        return False
    if type(layer) in (keras.layers.EinsumDense, AdaptedEinsumDense):
        return contracted(layer.equation) is not None
    return isinstance(layer, Adapted) or type(layer) in KINDS


def kernel_of(layer: Any) -> Any:
    """The variable that an adapter of a layer changes, has it one or not; None of a quantised."""
    return KINDS.get(type(layer), type(layer)).kernel_variable(layer)


def float_kernel_of(layer: Any) -> Tensor:
    """The kernel of a quantised layer as the numbers it stands for, in the shape that it had."""
    kind = type(layer)
    adapted = _as_adapted(layer)
    try:
        return ops.reshape(adapted.float_kernel(), adapted.unquantised_shape())
    finally:
        layer.__class__ = kind


def add_adapter(
    layer: Any, name: str, settings: LowRankSettings, seed: int | None = None
) -> LowRank:
    """Gives a built layer one more adapter, which is not active yet."""
    layer = _as_adapted(layer)
    old = adapter_of(layer)
    if old is None or not old.fits(settings):
        known = [settings, *(old.settings.values() if old else ())]
        rank, dora = max(each.rank for each in known), any(each.dora for each in known)
        layer.attach(rank, dora, any(each.dropout for each in known))
        if old is not None:
            _hand_over(old, layer.adapter)
    adapter: LowRank = layer.adapter
    adapter.stored[name] = adapter.initial(
        settings, lambda: ops.convert_to_numpy(layer.float_kernel()), seed
    )
    adapter.settings[name] = settings
    return adapter


def _as_adapted(layer: Any) -> Any:
    if not isinstance(layer, Adapted):
        layer.__class__ = KINDS[type(layer)]
    return layer


def make_room(layer: Any, active: Mapping[str, float]) -> bool:
    """Gives a layer's adapters larger variables, if those are too small for all active ones.

    Args:
        layer: A layer with adapters, none of which is active or merged.
        active: Name -> weight, of what becomes active.

    Returns:
        True if the variables are new.
    """
    old: LowRank = layer.adapter
    rank = sum(old.settings[name].rank for name in active if name in old.settings)
    if rank <= old.rank:
        return False
    layer.attach(rank, old.dora, old.dropout)
    _hand_over(old, layer.adapter)
    return True


def _hand_over(old: LowRank, new: LowRank) -> None:
    active = old.active
    old.activate({})
    new.settings.update(old.settings)
    new.stored.update(old.stored)
    new.others.update(old.others)
    new.activate(active)


def remove_adapter(layer: Any) -> None:
    """Makes a layer what it was before it had adapters; a merged one stays in the kernel."""
    layer.replace(None)
    plain = {adapted: kind for kind, adapted in KINDS.items()}
    layer.__class__ = plain.get(type(layer), type(layer))


def restore_adapters(layer: Any, config: dict[str, Any]) -> None:
    """`Adapted.restore`, of a layer that has none as yet."""
    _as_adapted(layer).restore(config)


def in_float64(layer: Any) -> tuple[Array, Callable[[Array], None]]:
    """The kernel of a layer as a matrix, and a function that assigns another."""
    variable = layer.kernel_variable()
    kernel = ops.convert_to_numpy(variable)

    def assign(changed: Array) -> None:
        variable.assign(changed.reshape(kernel.shape).astype(kernel.dtype))

    return kernel.astype("float64").reshape(layer.matrix_shape()), assign
