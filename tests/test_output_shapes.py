"""Every layer and model says the shape of its output, and says it right."""

import inspect

import keras
import numpy as np
import pytest

from tests.contract import assert_close, call, shapes_of, symbols_of
from tests.every_layer import EVERY
from tests.every_model import MODELS, OF_TOKENS, WITH_A_LOSS, data

ALONE = [name for name, case in EVERY.items() if len(case.inputs) == 1]
WITH_WEIGHTS = [
    name
    for name, case in EVERY.items()
    if "return_attention_scores" in inspect.signature(case.make().call).parameters
]


def shape_of(outputs):
    return keras.tree.map_structure(lambda x: tuple(x.shape), outputs)


def without_batch(shapes):
    return keras.tree.map_shape_structure(lambda shape: (None, *shape[1:]), shapes)


@pytest.mark.parametrize("name", EVERY)
def test_a_layer_says_the_shape_of_an_eager_call(name):
    case = EVERY[name]
    layer = case.make()
    eager = shape_of(call(layer, case.inputs))
    assert layer.compute_output_shape(*(x.shape for x in case.inputs)) == eager
    assert layer.compute_output_shape(*shapes_of(case.inputs)) == without_batch(eager)
    assert case.make().compute_output_shape(*(x.shape for x in case.inputs)) == eager


@pytest.mark.parametrize("name", ALONE)
def test_a_layer_can_be_distributed_over_time(name):
    case = EVERY[name]
    x = case.inputs[0]
    steps = np.stack([x, x[::-1]], axis=1)
    spread = keras.layers.TimeDistributed(case.make())
    found = spread(steps)
    assert spread.compute_output_shape(steps.shape) == tuple(found.shape)
    for step in (0, 1):
        assert_close(found[:, step], call(spread.layer, (steps[:, step],)), 1e-5)


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_symbolic_call_knows_of_attention_weights(name):
    case = EVERY[name]
    layer = case.make()
    eager = layer(*case.inputs, return_attention_scores=True)
    symbolic = layer(*symbols_of(case.inputs), return_attention_scores=True)
    for one, other in zip(symbolic, eager, strict=True):
        assert tuple(one.shape)[1:] == tuple(other.shape)[1:]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_the_shape_of_an_eager_call_and_its_summary_has_no_gaps(name):
    model, inputs = MODELS[name](0.0), data(name)[0]
    inputs = keras.tree.map_structure(lambda x: x[:2], inputs)
    eager = shape_of(model(inputs))
    shapes = keras.tree.map_structure(lambda x: x.shape, inputs)
    assert model.compute_output_shape(shapes) == eager
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    assert "?" not in "".join(lines)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITH_A_LOSS])
def test_a_model_can_be_distributed_over_time(name):
    if name in ("transformer", "recurrent"):
        pytest.skip("it takes two texts")
    x = data(name)[0][:2]
    spread = keras.layers.TimeDistributed(MODELS[name](0.0))
    steps = np.stack([x, x[::-1]], axis=1)
    found = spread(steps)
    if name in OF_TOKENS:
        assert tuple(found.shape[:3]) == (2, 2, 7)
    assert_close(found[:, 1], spread.layer(steps[:, 1]), 1e-5)
