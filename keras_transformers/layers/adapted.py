"""Layers whose kernel or table an adapter changes: Keras's, and what is saved of them."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Mixin, Tensor
from keras_transformers.layers.low_rank import LowRank, LowRankSettings

ADAPTERS = "adapters"  # of a build configuration


class Adapted(Mixin):
    """Mixed into a layer whose kernel a `LowRank` may change, which it then has as `adapter`."""

    adapter: LowRank | None = None

    @property
    def changes(self) -> LowRank | None:
        """The adapter, unless there is none or the kernel holds it already."""
        return None if self.adapter is None or self.adapter.merged else self.adapter

    def kernel_shape(self) -> tuple[int, int]:
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
        return config if self.adapter is None else {**(config or {}), ADAPTERS: saved(self)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        config = dict(config)
        adapter = config.pop(ADAPTERS, None)
        super().build_from_config(config)
        if adapter is not None:
            restore(self, adapter)


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
        width, outputs = self.kernel_shape()
        rows = ops.reshape(x, (-1, width))
        changed = altered(self, rows, ops.reshape(y, (-1, outputs)))
        y = ops.reshape(changed, ops.shape(y))
        y = y if self.bias is None else y + ops.cast(self.bias, y.dtype)
        return y if self.activation is None else self.activation(y)

    def kernel_variable(self) -> Any:
        return None if self.quantization_mode else self._kernel

    def float_kernel(self) -> Tensor:
        inputs, outputs = self.kernel_shape()
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

    def kernel_shape(self) -> tuple[int, int]:
        return self.input_spec.axes[-1], self.units

    def _input_shape(self) -> tuple[int, ...]:
        return (self.kernel_shape()[0],)


@keras.saving.register_keras_serializable("keras_transformers")
class AdaptedEinsumDense(_AdaptedProduct, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` with an adapter; made by `training.add_lora`."""

    def kernel_shape(self) -> tuple[int, int]:
        number = len(_contracted(self.equation) or "")
        shape = self._whole_kernel_shape()
        return math.prod(shape[:number]), math.prod(shape[number:])

    def _whole_kernel_shape(self) -> tuple[int, ...]:
        found = getattr(self, "original_kernel_shape", None) or self._kernel.shape
        return tuple(found)

    def _input_shape(self) -> tuple[int, ...]:
        return self._whole_kernel_shape()[: len(_contracted(self.equation) or "")]


def _contracted(equation: str) -> str | None:
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

    def kernel_shape(self) -> tuple[int, int]:
        return self.input_dim, self.output_dim

    def kernel_variable(self) -> Any:
        return None if self.quantization_mode else self._embeddings

    def float_kernel(self) -> Tensor:
        if not self.quantization_mode:
            return ops.cast(self._embeddings, "float32")
        return ops.cast(super().quantized_call(ops.arange(self.input_dim)), "float32")


KINDS: dict[type, Any] = {
    keras.layers.Dense: AdaptedDense,
    keras.layers.EinsumDense: AdaptedEinsumDense,
    keras.layers.Embedding: AdaptedEmbedding,
}


def altered(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    """`y = x W` of rows as the adapter of a layer changes it; `y` if it has none."""
    adapter = getattr(layer, "changes", None)
    return y if adapter is None else adapter.alter(x, y, layer.float_kernel)


def is_altered(layer: Any) -> bool:
    """Whether a layer has an adapter that is not merged."""
    return getattr(layer, "changes", None) is not None


def adaptable(layer: Any) -> bool:
    """Whether a layer has weights that an adapter can change."""
    if not layer.built:
        return False
    if type(layer) in (keras.layers.EinsumDense, AdaptedEinsumDense):
        return _contracted(layer.equation) is not None
    return isinstance(layer, Adapted) or type(layer) in KINDS


def kernel_of(layer: Any) -> Any:
    """The variable that an adapter of a layer changes, has it one or not; None of a quantised."""
    return KINDS.get(type(layer), type(layer)).kernel_variable(layer)


def add_adapter(
    layer: Any, name: str, settings: LowRankSettings, seed: int | None = None
) -> LowRank:
    """Gives a built layer one more adapter, which is not active yet."""
    if not isinstance(layer, Adapted):
        layer.__class__ = KINDS[type(layer)]
    old = layer.adapter
    if old is None or not old.fits(settings):
        known = [settings, *(old.settings.values() if old else ())]
        places = (
            max(e.rank for e in known),
            any(e.dora for e in known),
            any(e.dropout for e in known),
        )
        _attach(layer, *places)
        if old is not None:
            _hand_over(old, layer.adapter)
    adapter: LowRank = layer.adapter
    adapter.stored[name] = adapter.initial(
        settings, lambda: ops.convert_to_numpy(layer.float_kernel()), seed
    )
    adapter.settings[name] = settings
    return adapter


def _attach(layer: Any, rank: int, dora: bool, dropout: bool) -> None:
    """Gives a layer variables for adapters, in the place of those that it has."""
    inputs, outputs = layer.kernel_shape()
    table = isinstance(layer, keras.layers.Embedding) or not isinstance(layer, _AdaptedProduct)
    _replace(layer, LowRank(inputs, outputs, rank, dora, dropout, table))
    with contextlib.ExitStack() as scopes:
        for part in layer.path.split("/"):
            scopes.enter_context(keras.name_scope(part))
        layer.adapter.build()


def _replace(layer: Any, adapter: LowRank | None) -> None:
    layer._tracker.unlock()
    if layer.adapter is not None:
        layer._tracker.untrack(layer.adapter)
        del layer.adapter
    if adapter is not None:
        layer.adapter = adapter
    layer._tracker.lock()


def _hand_over(old: LowRank, new: LowRank) -> None:
    active = old.active
    old.activate(None)
    new.settings.update(old.settings)
    new.stored.update(old.stored)
    new.others.update(old.others)
    new.activate(active)


def remove_adapter(layer: Any) -> None:
    """Makes a layer what it was before it had adapters; a merged one stays in the kernel."""
    _replace(layer, None)
    plain = {adapted: kind for kind, adapted in KINDS.items()}
    layer.__class__ = plain.get(type(layer), type(layer))


def saved(layer: Any) -> dict[str, Any]:
    """What a configuration holds of a layer's adapters."""
    adapter = layer.adapter
    shapes = {
        name: {path: (list(array.shape), str(array.dtype)) for path, array in arrays.items()}
        for name, arrays in adapter.others.items()
    }
    return {
        "names": {name: dataclasses.asdict(each) for name, each in adapter.settings.items()},
        "rank": adapter.rank,
        "dora": adapter.dora,
        "dropout": adapter.dropout,
        "active": adapter.active,
        "merged": adapter.merged,
        "gain": adapter.gain is not None,
        "others": shapes,
    }


def restore(layer: Any, config: dict[str, Any]) -> None:
    """Gives a built layer adapters as `saved` has them, with values still to be loaded."""
    if not isinstance(layer, Adapted):
        layer.__class__ = KINDS[type(layer)]
    _attach(layer, config["rank"], config["dora"], config["dropout"])
    adapter = layer.adapter
    for name, given in config["names"].items():
        adapter.settings[name] = settings = LowRankSettings(**given)
        if not adapter.fits(settings):
            raise ValueError(
                f"{type(layer).__name__} '{layer.path}': `{ADAPTERS}` must have room for each. "
                f"Received: {config}"
            )
        shapes = adapter.shapes(settings).items()
        adapter.stored[name] = {key: np.zeros(shape, "float32") for key, shape in shapes}
    for name, shapes in config["others"].items():
        adapter.others[name] = {path: np.zeros(*each) for path, each in shapes.items()}
    adapter.activate(config["active"])
    adapter.merged = config["merged"]
    adapter.gain = np.ones(adapter.outputs) if config["gain"] else None


def in_float64(layer: Any) -> tuple[Array, Callable[[Array], None]]:
    """The kernel of a layer as a matrix, and a function that assigns another."""
    variable = layer.kernel_variable()
    kernel = ops.convert_to_numpy(ops.cast(variable, "float32")).astype("float64")

    def assign(changed: Array) -> None:
        variable.assign(changed.reshape(variable.shape).astype("float32"))

    return kernel.reshape(layer.kernel_shape()), assign
