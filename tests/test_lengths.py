"""Lengths that are not known yet, and rows without tokens."""

import keras
import numpy as np
import pytest

from tests.contract import ON_JAX, assert_close, call, to_numpy, to_tensors
from tests.every_layer import EVERY
from tests.every_model import MODELS, OF_TOKENS, data

QUICK = ("EncoderBlock", "DecoderBlock", "AdditiveScore", "transformer")
# Tables that end at some length, and a Fourier transform: JAX must know that the length fits.
OF_KNOWN_LENGTH = ("FourierMixing", "MLPMixing", "RandomSynthesizer")
OF_ROWS = [name for name, case in EVERY.items() if case.of_tokens]
TAKES_NONE = [*OF_ROWS, *OF_TOKENS]
EXPORTED = [name for name in (*OF_ROWS, *OF_TOKENS) if name not in OF_KNOWN_LENGTH]


def quick_first(names):
    """Cases of all names, of which most are slow."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def built(name):
    """A layer or a model of a registry, built, and inputs of a call."""
    if name in EVERY:
        layer, inputs = EVERY[name].make(), EVERY[name].inputs
        layer.build(*((None, *x.shape[1:]) for x in inputs))
        return layer, inputs
    model, inputs = MODELS[name](0.0), data(name)[0]
    model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
    return model, (inputs,)


def without_tokens(inputs):
    """The same inputs, the first with rows of length 0."""
    first = keras.tree.map_structure(lambda x: x[:, :0], inputs[0])
    return first, *inputs[1:]


@pytest.mark.parametrize("name", OF_TOKENS)
def test_a_model_can_be_called_on_inputs_of_unknown_length(name):
    model, (inputs,) = built(name)
    symbols = keras.Input((None,), dtype="int32")
    if isinstance(inputs, dict):
        symbols = {key: keras.Input((None,), dtype="int32", name=key) for key in inputs}
    outputs = model(symbols)
    assert outputs.shape[:2] == (None, None)
    assert_close(call(keras.Model(symbols, outputs), (inputs,)), call(model, (inputs,)), 1e-6)


@pytest.mark.parametrize("start", [0, 3])
def test_the_mask_of_a_target_has_its_first_token_whatever_that_is(start):
    """Marian's START has the id of padding; rows may be longer than a byte counts."""
    model, _ = built("transformer")
    target = np.zeros((2, 300), "uint8")
    target[0, 1:280] = 5
    target[:, 0] = start
    mask = to_numpy(model.compute_mask({"source": target, "target": target}))
    expected = np.arange(300) < [[280], [1 if start else 0]]
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("name", quick_first(TAKES_NONE))
def test_rows_without_tokens_give_rows_without_tokens(name):
    layer, inputs = built(name)
    inputs = to_tensors(without_tokens(inputs))
    shapes = keras.tree.map_structure(lambda x: tuple(x.shape), inputs)
    if name in OF_TOKENS:
        (shapes,) = keras.tree.map_shape_structure(tuple, (shapes,))
        (shapes,) = shapes
        expected = layer.compute_output_shape(shapes)
    else:
        expected = layer.compute_output_shape(*shapes)
    y = to_numpy(layer(*inputs))
    assert y.shape == tuple(expected)
    assert np.isfinite(y).all()


@pytest.mark.skipif(ON_JAX, reason="JAX knows every length when it compiles")
@pytest.mark.parametrize("name", quick_first(TAKES_NONE))
def test_a_graph_of_unknown_length_takes_rows_without_tokens(name):
    tf = pytest.importorskip("tensorflow")
    layer, inputs = built(name)

    def unknown(x):
        extents = [None] * (2 if x.dtype == "int32" and x.ndim == 2 else x.ndim - 1)
        return tf.TensorSpec([*extents, *x.shape[len(extents) :]], x.dtype)

    signature = keras.tree.map_structure(unknown, to_tensors(inputs))
    graph = tf.function(lambda *inputs: layer(*inputs), input_signature=signature)
    assert_close(graph(*to_tensors(inputs)), layer(*to_tensors(inputs)), 1e-5)
    empty = to_tensors(without_tokens(inputs))
    assert_close(graph(*empty), layer(*empty), 1e-5)


@pytest.mark.skipif(not ON_JAX, reason="the symbols of `jax.export`")
@pytest.mark.parametrize("name", quick_first(EXPORTED))
def test_jax_exports_a_program_of_unknown_length(name):
    import jax
    from jax import export

    layer, inputs = built(name)
    batch, length = export.symbolic_shape("batch, length")

    def symbolic(x):
        return jax.ShapeDtypeStruct((batch, length, *x.shape[2:]), x.dtype)

    first = keras.tree.map_structure(symbolic, inputs[0])
    others = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in inputs[1:]]
    trainable = [variable.value for variable in layer.trainable_variables]
    fixed = [variable.value for variable in layer.non_trainable_variables]

    def run(*inputs):
        return layer.stateless_call(trainable, fixed, *inputs)[0]

    program = export.export(jax.jit(run))(first, *others)
    assert_close(program.call(*to_tensors(inputs)), call(layer, inputs), 1e-5)
