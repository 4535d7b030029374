"""Every layer and model says the dtype of its output, and says it right, under every policy."""

import inspect

import keras
import numpy as np
import pytest

from tests.contract import (
    ON_JAX,
    POLICIES,
    assert_close,
    call,
    dtype_of,
    shapes_of,
    symbols_of,
    to_tensors,
)
from tests.every_layer import EVERY
from tests.every_model import MODELS, data
from tests.slow import slow_except


def dtypes_of(outputs):
    return [dtype_of(x) for x in keras.tree.flatten(outputs)]


def dtypes_of_call(layer, inputs, **options):
    """Of an eager call; traced on JAX, which would compile every operation of it."""
    if not ON_JAX:
        return dtypes_of(layer(*inputs, **options))
    import jax

    return dtypes_of(jax.eval_shape(lambda *inputs: layer(*inputs, **options), *inputs))


def narrowed(symbols, dtype):
    """The floating ones of some Keras inputs in another dtype."""
    return [keras.KerasTensor(x.shape, dtype if x.dtype == "float32" else x.dtype) for x in symbols]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("policy", slow_except(POLICIES.keys(), list(POLICIES)[-1]))
def test_a_layer_says_the_dtype_of_an_eager_call(name, policy):
    """Of float32, as tensors and as symbols, and of what Keras casts that to."""
    case = EVERY[name]
    layer, fresh = case.make(dtype=policy), case.make(dtype=policy)
    tensors, symbols = to_tensors(case.inputs), symbols_of(case.inputs)
    options = {}
    if "return_attention_scores" in inspect.signature(layer.call).parameters:
        options["return_attention_scores"] = True
    layer.build(*shapes_of(case.inputs))
    eager = dtypes_of_call(layer, tensors, **options)
    assert set(eager) == {layer.compute_dtype}
    assert dtypes_of(fresh(*symbols, **options)) == eager
    for inputs in (tensors, symbols, narrowed(symbols, layer.compute_dtype)):
        assert dtypes_of(layer.compute_output_spec(*inputs, **options)) == eager
    assert set(dtypes_of(layer.compute_output_spec(*symbols))) == {layer.compute_dtype}


OF_IMAGES = (
    "PatchEmbedding",
    "ShiftedPatchEmbedding",
    "ConvolutionalStem",
    "OverlappingPatchEmbedding",
    "ConvolutionNorm",
    "ResidualBlock",
)
OFTEN = ("SelfAttention", "CrossAttention", "DecoderBlock", "MLPMixing", "AttentionPooling")
OFTEN += ("PositionalEncoding", "PatchMerging", "PatchEmbedding")


@pytest.mark.parametrize("name", slow_except(EVERY.keys(), *OFTEN))
def test_vectors_of_integers_are_floats_or_images_and_refused(name):
    """As tensors and as inputs of a model. Images must be scaled as in training."""
    case = EVERY[name]
    layer = case.make()
    layer.build(*shapes_of(case.inputs))
    whole = [np.round(3 * x) if x.dtype == "float32" else x for x in case.inputs]
    integers = [whole[0].astype("int32"), *whole[1:]]
    if name in OF_IMAGES:
        with pytest.raises(ValueError, match="`x` must be floating"):
            layer(*to_tensors(integers))
        return
    expected = call(layer, whole)
    assert_close(call(layer, integers), expected, 1e-6)
    symbols = [keras.Input(batch_shape=x.shape, dtype=str(x.dtype)) for x in integers]
    model = keras.Model(symbols, layer(*symbols))
    assert_close(model(to_tensors(integers)), expected, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_the_dtype_of_an_eager_call(name):
    inputs = keras.tree.map_structure(lambda x: x[:2], data(name)[0])
    (tensors,) = to_tensors((inputs,))
    symbols = keras.tree.map_structure(
        lambda x: keras.KerasTensor((None, *x.shape[1:]), str(x.dtype)), inputs
    )
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model, fresh = MODELS[name](0.0), MODELS[name](0.0)
    finally:
        keras.config.set_dtype_policy("float32")
    model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
    eager = dtypes_of_call(model, (tensors,))
    assert "float16" in eager
    assert dtypes_of(fresh(symbols)) == eager
    for given in (tensors, symbols):
        assert dtypes_of(model.compute_output_spec(given)) == eager
