"""Layers with an adapter: how they get it, compute with it, save it, and lose it."""

import collections
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Mixin, Tensor
from keras_transformers.layers.low_rank import LowRank, LowRankSettings

ADAPTERS, FROZEN = "adapters", "frozen_weights"  # of a build configuration
# Entry of a layer in a weights file, if the kernel is stored without the change of the adapter.
# Keras's layers refuse a file with more entries than they have weights, so that no model loads the
# kernel alone and silently loses the fine-tuning.
BESIDE = "kernel_without_its_adapter"


def name_by_path(parts: Iterable[Any], path_of: Callable[[Any], str]) -> dict[str, Any]:
    """Returns path -> part; a second part of the same path gets `#2` behind it."""
    named: dict[str, Any] = {}
    counts: collections.Counter[str] = collections.Counter()
    for part in parts:
        path = path_of(part)
        counts[path] += 1
        named[path if counts[path] == 1 else f"{path}#{counts[path]}"] = part
    return named


class Adapted(Mixin):
    """Mixed into a layer whose kernel a `LowRank` may change, which it then has as `adapter`."""

    adapter: LowRank  # no default: PyTorch's modules are looked for behind those of the class

    @property
    def changes(self) -> LowRank | None:
        """The adapter, unless there is none or the kernel holds it already.

        Raises:
            ValueError: In a training step in which no adapter can learn, see `LowRank.call`.
        """
        adapter = adapter_of(self)
        if adapter is None:
            return None
        adapter.check_learning()
        return None if adapter.merged else adapter

    def matrix_shape(self) -> tuple[int, int]:
        """Numbers of inputs and outputs."""
        raise NotImplementedError

    def float_kernel(self) -> Tensor:
        """The layer's own `W` as a matrix of floating-point numbers, `(inputs, outputs)`."""
        raise NotImplementedError

    def kernel_variable(self) -> Any:
        """The variable that holds `W`; None of a quantised layer."""
        raise NotImplementedError

    def get_build_config(self) -> Any:
        config = super().get_build_config()
        if adapter_of(self) is None:
            return config
        frozen = [weight.name for weight in self._trainable_variables if not weight.trainable]
        return {**(config or {}), ADAPTERS: self.adapter.saved(), FROZEN: frozen}

    def build_from_config(self, config: dict[str, Any]) -> None:
        config = dict(config)
        saved, frozen = config.pop(ADAPTERS, None), config.pop(FROZEN, ())
        super().build_from_config(config)
        if saved is not None:
            self.restore(saved)
        for weight in self._trainable_variables:
            weight.trainable = weight.trainable and weight.name not in frozen

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        adapter = adapter_of(self)
        if adapter is not None and adapter.acting and not adapter.merged:
            store[BESIDE] = np.array(True)

    def load_own_variables(self, store: Any) -> None:
        names = [name for name in store.keys() if name != BESIDE]  # noqa: SIM118
        if not names and adapter_of(self) is not None:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': the file has no weights for a layer with "
                "adapters. Load plain weights before `training.add_lora`, or after "
                "`training.remove_lora`"
            )
        super().load_own_variables({name: store[name] for name in names})

    def attach(self, rank: int, dora: bool, dropout: bool) -> LowRank:
        """Gives the layer variables for adapters, in the place of those that it has."""
        table = isinstance(self, keras.layers.Embedding) or not isinstance(self, _AdaptedProduct)
        adapter = LowRank(*self.matrix_shape(), rank, dora, dropout, table)
        self.replace(adapter)
        with contextlib.ExitStack() as scopes:
            for part in self.path.split("/"):
                scopes.enter_context(keras.name_scope(part))
            adapter.build()
        return adapter

    def replace(self, adapter: LowRank | None) -> None:
        """Sets `adapter` of a layer that is built, or removes it."""
        self._tracker.unlock()
        if adapter_of(self) is not None:
            self._tracker.untrack(self.adapter)
            del self.adapter
        if adapter is not None:
            self.adapter = adapter
            adapter.belong_to(self)
        self._tracker.lock()

    def restore(self, config: dict[str, Any]) -> None:
        """Gives the layer adapters as `LowRank.saved` has them, with values still to be loaded."""
        self.attach(config["rank"], config["dora"], config["dropout"]).restore(config)


class _AdaptedProduct(Adapted):
    """Of a product with a kernel."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if self.changes is None:
            return super().call(inputs, training=training)
        with _bare(self):
            y = super().call(inputs, training=training)
        return self._finished(inputs, y)

    def quantized_call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if self.changes is None:
            return super().quantized_call(inputs, training=training)
        with _bare(self):
            y = super().quantized_call(inputs, training=training)
        return self._finished(inputs, y)

    def _finished(self, x: Tensor, y: Tensor) -> Tensor:
        width, outputs = self.matrix_shape()
        rows = ops.reshape(x, (-1, width))
        changed = altered(self, rows, ops.reshape(y, (-1, outputs)))
        y = ops.reshape(changed, ops.shape(y))
        y = y if self.bias is None else y + ops.cast(self.bias, y.dtype)
        return y if self.activation is None else self.activation(y)

    def kernel_variable(self) -> Any:
        return None if self.quantization_mode else self._kernel

    def float_kernel(self) -> Tensor:
        inputs, outputs = self.matrix_shape()
        if not self.quantization_mode:
            return ops.reshape(ops.cast(self._kernel, "float32"), (inputs, outputs))
        # One-hot rows stay what they are in 8 bits, so this is what the layer multiplies with.
        shape = (1, inputs, *self._input_shape())
        with _bare(self):
            y = super().quantized_call(
                ops.reshape(ops.eye(inputs, dtype=self.compute_dtype), shape)
            )
        return ops.cast(ops.reshape(y, (inputs, outputs)), "float32")

    def _input_shape(self) -> tuple[int, ...]:
        """Sizes of the axes of an input that the kernel is multiplied with."""
        raise NotImplementedError

    def unquantised_shape(self) -> tuple[int, ...]:
        """Shape of `W` as the layer has it where it is not quantised."""
        return self.matrix_shape()


@contextlib.contextmanager
def _bare(layer: Any) -> Iterator[None]:
    """A scope in which a layer has neither bias nor activation."""
    own = vars(layer)
    kept = own["bias"], own["activation"]
    own["bias"] = own["activation"] = None
    try:
        yield
    finally:
        own["bias"], own["activation"] = kept


@keras.saving.register_keras_serializable("keras_transformers")
class AdaptedDense(_AdaptedProduct, keras.layers.Dense):
    """`keras.layers.Dense` with an adapter; made by `training.add_lora`."""

    def matrix_shape(self) -> tuple[int, int]:
        return self.input_spec.axes[-1], self.units

    def _input_shape(self) -> tuple[int, ...]:
        return (self.matrix_shape()[0],)


@keras.saving.register_keras_serializable("keras_transformers")
class AdaptedEinsumDense(_AdaptedProduct, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` with an adapter; made by `training.add_lora`."""

    def matrix_shape(self) -> tuple[int, int]:
        number = len(contracted(self.equation) or "")
        shape = self.unquantised_shape()
        return math.prod(shape[:number]), math.prod(shape[number:])

    def unquantised_shape(self) -> tuple[int, ...]:
        found = getattr(self, "original_kernel_shape", None) or self._kernel.shape
        return tuple(found)

    def _input_shape(self) -> tuple[int, ...]:
        return self.unquantised_shape()[: len(contracted(self.equation) or "")]


def contracted(equation: str) -> str | None:
    """The axes that a kernel is multiplied over, if it is one matrix of inputs and outputs.

    Of `abc,cde->abde` that is `c`. None where the kernel has axes in another order, or one for each
    of several groups.
    """
    sides, _, output = equation.replace(" ", "").partition("->")
    x, _, kernel = sides.partition(",")
    number = sum(axis not in output for axis in kernel)
    inputs, outputs = kernel[:number], kernel[number:]
    lead = x.removesuffix(inputs)
    return inputs if inputs and x == lead + inputs and output == lead + outputs else None


@keras.saving.register_keras_serializable("keras_transformers")
class AdaptedEmbedding(Adapted, keras.layers.Embedding):
    """`keras.layers.Embedding` with an adapter; made by `training.add_lora`."""

    def call(self, inputs: Tensor) -> Tensor:
        return self._finished(inputs, super().call(inputs))

    def quantized_call(self, inputs: Tensor) -> Tensor:
        return self._finished(inputs, super().quantized_call(inputs))

    def _finished(self, ids: Tensor, y: Tensor) -> Tensor:
        changes = self.changes
        if changes is None:
            return y
        return changes.alter_rows(ops.cast(ids, "int32"), y, self.float_kernel)

    def matrix_shape(self) -> tuple[int, int]:
        return self.input_dim, self.output_dim

    def kernel_variable(self) -> Any:
        return None if self.quantization_mode else self._embeddings

    def float_kernel(self) -> Tensor:
        if not self.quantization_mode:
            return ops.cast(self._embeddings, "float32")
        return ops.cast(super().quantized_call(ops.arange(self.input_dim)), "float32")


def adapter_of(layer: Any) -> LowRank | None:
    """What a layer has of adapters, merged or not; None if nothing."""
    return getattr(layer, "adapter", None)


def altered(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    """`y = x W` of rows as the adapter of a layer changes it; `y` if it has none."""
    adapter = getattr(layer, "changes", None)
    return y if adapter is None else adapter.alter(x, y, layer.float_kernel)


def is_altered(layer: Any) -> bool:
    """True if a layer has an adapter that is not merged."""
    return getattr(layer, "changes", None) is not None


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
