"""Trained models in fewer bits, for inference."""

import gc
import warnings
from typing import Literal

import keras

from keras_transformers.layers.low_rank import LowRank
from keras_transformers.saving.untrusted_files import within

PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int4")
QUANTISED = ("int8", "int4")
GROUP = 32  # inputs of a kernel that share a scale in 4 bits


def in_precision(
    model: keras.Model, precision: Literal["float32", "float16", "bfloat16", "int8", "int4"]
) -> keras.Model:
    """A copy of a trained model whose weights and arithmetic take fewer bits.

    "float16" and "bfloat16" hold and compute everything in that type but what the layers keep in
    float32 for good reason (softmax, positions, scores of a search). "int8" is Keras's quantisation
    of the kernels of `Dense` and `EinsumDense` layers, one scale for each output, and ours of the
    token table, one scale for each token; their inputs are quantised on the way in, and the other
    layers stay as they are. "int4" holds kernels in 4 bits, with a scale and a zero point for every
    32 inputs of an output, and multiplies by the numbers they stand for; token tables are as in
    "int8". The model itself is left alone. The copy can be saved and loaded like any model, to the
    same numbers; and so can a model after Keras's own `quantize`.

    Which is quicker depends on the machine. XLA on a CPU computes both 16-bit types by way of
    float32, and is quick at 8-bit products (docs/benchmarks/decoding.md).

    Args:
        model: A built `keras.Model` that `from_config(get_config())` makes anew, such as ours.
        precision: "float32", "float16", "bfloat16", "int8" or "int4".

    Returns:
        A model of the same class.

    Raises:
        ValueError: If `precision` is none of these, or the model is not built, is quantised, has
            Keras's own LoRA, or has adapters and would be quantised.

    Example:
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.precision import in_precision
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> model.build({"source": (None, None), "target": (None, None)})
    >>> in_precision(model, "bfloat16").dtype_policy.name
    'bfloat16'
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"in_precision: `precision` must be one of {', '.join(PRECISIONS)}. "
            f"Received: {precision!r}"
        )
    if not model.built:
        raise ValueError(f"in_precision: `model` must be built. Received: '{model.name}', unbuilt")
    if is_quantised(model):
        raise ValueError(
            "in_precision: `model` must have weights in floating-point numbers. Received: "
            f"'{model.name}', quantised"
        )
    if any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers()):
        raise ValueError(
            "in_precision: `model` must not have Keras's own LoRA (`enable_lora`), which a copy "
            f"does not get; merge it into the kernels first. Received: '{model.name}', with it"
        )
    adapted = any(getattr(layer, "adapter", None) for layer in model._flatten_layers())
    if precision in QUANTISED and adapted:
        raise ValueError(
            "in_precision: `model` must have no adapters to be quantised; `training.merge` and "
            f"`training.remove_lora`, or quantise it before `training.add_lora`. Received: "
            f"'{model.name}', with adapters"
        )
    dtype = "float32" if precision in QUANTISED else precision
    with within(model.count_params(), zeros=True):
        copy = type(model).from_config({**model.get_config(), "dtype": dtype})
        copy.build_from_config(model.get_build_config())
    for ours, theirs in zip(copy.weights, model.weights, strict=True):  # one in memory at a time
        ours.assign(theirs.value)
    for ours, theirs in zip(copy._flatten_layers(), model._flatten_layers(), strict=True):
        if isinstance(ours, LowRank):
            ours.take_arrays(theirs)
    if precision in QUANTISED:
        _quantise(copy, precision)
    return copy


def is_quantised(model: keras.Model) -> bool:
    """Whether layers of a model have weights in 8 bits or fewer.

    Example:
    >>> import keras
    >>> from keras_transformers.precision import is_quantised
    >>> is_quantised(keras.Sequential([keras.layers.Dense(1)]))
    False
    """
    return any(layer.quantization_mode for layer in model._flatten_layers())


def _quantise(model: keras.Model, precision: str) -> None:
    """Kernels in the bits of a precision, tables in 8."""
    # Keras collects garbage after every layer, which walks over all objects there are: 24 of the 25
    # seconds it took to quantise a Transformer base. Imports may be left out of them for good, and
    # then stay so.
    lasting = gc.get_freeze_count() > 0
    if not lasting:
        gc.freeze()
    try:
        with warnings.catch_warnings():  # one for each layer that has no kernel
            warnings.filterwarnings("ignore", message=".*`quantize` method.*")
            if precision == "int4":
                groups = keras.quantizers.Int4QuantizationConfig(block_size=GROUP)
                model.quantize(config=groups, filters=_has_kernel)
            model.quantize("int8", filters=lambda layer: layer.quantization_mode is None)
    finally:
        if not lasting:
            gc.unfreeze()
            gc.collect()  # the kernels that were quantised, which their layers still hold


def _has_kernel(layer: keras.layers.Layer) -> bool:
    return type(layer) in (keras.layers.Dense, keras.layers.EinsumDense)
