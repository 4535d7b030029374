"""Blocks that keep their input only, and compute the rest again in the backward pass."""

import re
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.core.types import Mixin


class _BlockNames:
    """What `keras.RematScope` asks `name in names`: what the blocks of our models are called."""

    PATTERN = re.compile(r"(en|de)coder_\d+|stage_\d+_block_\d+|\w+_block(_\d+)?")

    def __contains__(self, name: str) -> bool:
        return self.PATTERN.fullmatch(name) is not None


BLOCK_NAMES = _BlockNames()


def rematerialized_blocks() -> keras.RematScope:
    """A scope in which models are made that keep of each block its input only.

    The backward pass computes the rest again: activations for a little more than one block instead
    of all, for about a third more computation (Chen et al. 2016,
    https://arxiv.org/abs/1604.06174). Weights and gradients are the same but for the order of sums,
    dropout included. It is `keras.RematScope(mode="list_of_layers", layer_names=...)`, which can as
    well be given the names of some blocks. A file of the model does not remember it.

    Returns:
        `keras.RematScope`, a context manager.

    Example:
    >>> from keras_transformers import layers, models
    >>> with layers.rematerialized_blocks():
    ...     model = models.ViT.from_variant("Ti/8", num_classes=2, image_size=32, num_layers=12)
    """
    return keras.RematScope(mode="list_of_layers", layer_names=BLOCK_NAMES)


class Rematerialized(Mixin):
    """Makes `keras.RematScope` right for a layer with masks, options and dropout.

    Keras's own wrapper takes no keyword arguments on TensorFlow, draws another dropout mask the
    second time there, and cannot carry the state of a seed out on JAX. Here the layer becomes a
    function of its floating inputs, its weights and its seeds, so that the second pass is the
    first one again (Chen et al. 2016, https://arxiv.org/abs/1604.06174).
    """

    def rematerialized_call(
        self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        """Called by Keras for a layer made inside `keras.RematScope`."""
        wrapped = super().rematerialized_call(layer_call, *args, **kwargs)
        # The scope may be for other layers. Without training nothing is kept anyway, and a
        # SavedModel would not know the seeds.
        if wrapped is layer_call or not kwargs.get("training"):
            return layer_call
        return lambda *args, **kwargs: _rematerialized(self, layer_call, args, kwargs)


def _rematerialized(
    layer: keras.layers.Layer,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`call(*args, **kwargs)`, of which the backward pass finds the inputs only."""
    flat = keras.tree.flatten((args, kwargs))
    if any(isinstance(each, keras.KerasTensor) for each in flat):
        return call(*args, **kwargs)
    positions = [i for i, each in enumerate(flat) if _is_floating(each)]
    weights, (fixed, others) = layer.trainable_variables, _frozen_and_others(layer)
    # Times one, for on TensorFlow a variable would be read when the backward pass comes to it.
    states = [variable * 1 for variable in others]
    kept = [(variable, variable.value) for variable in fixed]  # not copied: they may be gigabytes

    def pure(inputs: Any, values: Any) -> Any:
        known = list(flat)
        for position, tensor in zip(positions, inputs, strict=True):
            known[position] = tensor
        args_again, kwargs_again = keras.tree.pack_sequence_as((args, kwargs), known)
        mapping = [*zip(weights, values, strict=True), *zip(others, states, strict=True), *kept]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = call(*args_again, **kwargs_again)
        return outputs, [scope.get_current_value(variable) for variable in others]

    inputs = [flat[position] for position in positions]
    outputs, after = keras.remat(pure)(inputs, [variable * 1 for variable in weights])
    for variable, value in zip(others, after, strict=True):
        variable.assign(value)
    return outputs


def _frozen_and_others(layer: keras.layers.Layer) -> tuple[list[Any], list[Any]]:
    """Weights that no call changes, frozen or quantised; and what else is not trained."""
    weights = {
        id(variable)
        for each in layer._flatten_layers()
        for variable in each._trainable_variables
        + (each._non_trainable_variables if each.quantization_mode else [])
    }
    variables = layer.non_trainable_variables
    fixed = [variable for variable in variables if id(variable) in weights]
    return fixed, [variable for variable in variables if id(variable) not in weights]


def _is_floating(value: Any) -> bool:
    return ops.is_tensor(value) and keras.backend.is_float_dtype(
        keras.backend.standardize_dtype(value.dtype)
    )
