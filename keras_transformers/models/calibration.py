"""GPTQ and AWQ by Keras: quantisation that looks at what the layers of a block are given."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.adapters import adapter_of
from keras_transformers.layers.base import CALIBRATED
from keras_transformers.layers.low_rank import quantized_by


def quantize(
    model: Any,
    keras_quantize: Callable[..., Any],
    mode: str | None,
    config: Any = None,
    filters: Any = None,
    **kwargs: Any,
) -> None:
    """Quantises a model whose blocks follow one another, so that Keras calibrates block by block.

    `keras.quantizers.GPTQConfig` (Frantar et al. 2022, https://arxiv.org/abs/2210.17323) and
    `AWQConfig` (Lin et al. 2023, https://arxiv.org/abs/2306.00978) have the texts. The dense layers
    of the blocks are quantised; tables, norms and heads stay as they are.

    Args:
        model: A `TextModel`, with `calibrated_blocks`.
        keras_quantize: The method `quantize` of its Keras class.
        mode: "int8", "int4", "gptq", "awq" or "float8"; by default that of `config`.
        config: Of `keras.quantizers`; GPTQ and AWQ need one, with a `dataset` of texts or ids and a
            `tokenizer`.
        filters: Which layers, as Keras takes it: a regular expression of their names, several, or
            a function of a layer.

    Raises:
        ValueError: If weights of a group have one sign, which zero points of GPTQ and AWQ cannot
            hold; the message names the layer. If there are adapters, for GPTQ and AWQ; or one is
            merged.
    """
    if mode not in CALIBRATED:
        if filters is not None:
            wanted_kernel = _wanted(filters)
            filters = lambda layer: wanted_kernel(quantized_by(layer))  # noqa: E731
        keras_quantize(mode, config=config, filters=filters, **kwargs)
        return
    if config.quantization_layer_structure is None:
        blocks = model.calibrated_blocks
    else:
        blocks = config.quantization_layer_structure["sequential_blocks"]
    kinds = (keras.layers.Dense, keras.layers.EinsumDense)
    inside = [each for block in blocks for each in block._flatten_layers()]
    if adapted := [layer for layer in inside if adapter_of(layer) is not None]:
        raise ValueError(
            f"quantize: '{model.name}' must have no adapters for {mode}; quantise it before "
            "`training.add_lora`, or after `training.remove_lora`. Received: "
            f"{adapted[0].path} and {len(adapted) - 1} more with adapters"
        )
    wanted = _wanted(filters)
    chosen = {id(each): each for each in inside if type(each) in kinds and wanted(each)}
    for layer in chosen.values():
        _check_signs(layer, config)
    kwargs["filters"] = lambda layer: id(layer) in chosen
    with _seen(list(chosen.values()), f"_{mode}_call", f"is_{mode}_calibrated"):
        keras_quantize(mode, config=config, **kwargs)


def _wanted(filters: Any) -> Callable[[Any], bool]:
    """Keras's `filters` as a function of a layer."""
    if filters is None or callable(filters):
        return filters or (lambda layer: True)
    patterns = [filters] if isinstance(filters, str) else filters
    return lambda layer: any(re.search(pattern, layer.name) for pattern in patterns)


def _check_signs(layer: Any, config: Any) -> None:
    """ValueError where all weights of a group are positive, which Keras's zero points cannot be."""
    rows = layer.kernel.shape[0]
    if isinstance(layer, keras.layers.EinsumDense):
        _, kernel, output = re.split(",|->", layer.equation)
        sizes = zip(kernel, layer.kernel.shape, strict=True)
        rows = math.prod(size for letter, size in sizes if letter not in output)
    weights = np.reshape(ops.convert_to_numpy(layer.kernel), (rows, -1))
    size = rows if config.group_size == -1 else config.group_size
    least = np.minimum.reduceat(weights, np.arange(0, rows, size), axis=0)
    if np.any(least > 0):
        raise ValueError(
            f"{type(layer).__name__} '{layer.path}': each group of weights must have negative ones "
            f"too, or Keras's zero point is out of range; give a larger `group_size`. "
            f"Received: group_size={config.group_size} of {rows} rows"
        )


@contextlib.contextmanager
def _seen(layers: list[Any], name: str, calibrated: str) -> Iterator[None]:
    """A scope in which Keras sees what the layers are given.

    Keras 3.15 looks on at `call`, and a layer that is made ready for GPTQ or AWQ has another one
    called (https://github.com/keras-team/keras/pull/23512): without this, weights are rounded as
    if all inputs were alike.
    """

    def through_call(layer: Any, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            done = getattr(layer, calibrated, False)
            return original(*args, **kwargs) if done else layer.call(*args, **kwargs)

        return call

    for layer in layers:
        vars(layer)[name] = through_call(layer, getattr(layer, name))
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop(name)
