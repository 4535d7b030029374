"""Keras's and KerasHub's checks of a layer on each of ours, for `python -m tests.peers`."""

import dataclasses
import importlib
import inspect

import keras

from keras_transformers import layers
from tests.contract import call, to_tensors
from tests.every_layer import EVERY, HEADS, POINTS

# Of their private parts: it is their own tests that are run.
KerasTestCase = importlib.import_module("keras.src.testing").TestCase
KerasHubTestCase = importlib.import_module("keras_hub.src.tests.test_case").TestCase


class EveryLayer(KerasTestCase):
    """Keras's."""


class EveryLayerOfKerasHub(KerasHubTestCase):
    """KerasHub's."""


def _named(case, inputs):
    """The inputs by the names that the layer's `call` has for them."""
    names = inspect.signature(case.make().call).parameters
    return dict(zip(names, inputs, strict=False))


def _of_keras(case):
    def test(self):
        inputs = {"input_data": case.inputs[0]}
        if len(case.inputs) > 1:
            named = _named(case, case.inputs)
            shapes = {f"{name}_shape": x.shape for name, x in named.items()}
            inputs = {"input_shape": shapes, "run_training_check": False}
        masks = case.make().supports_masking
        self.run_layer_test(case.make, {}, supports_masking=masks, **inputs)

    return test


def _of_keras_hub(case):
    def test(self):
        layer, inputs = case.make(), to_tensors(case.inputs)
        output = call(layer, inputs)
        self.run_layer_test(
            case.make,
            {},
            inputs[0] if len(inputs) == 1 else _named(case, inputs),
            expected_output_shape=output.shape,
            expected_num_trainable_weights=len(layer.trainable_weights),
            expected_num_non_trainable_weights=len(layer.non_trainable_weights),
            expected_num_non_trainable_variables=len(layer.non_trainable_variables),
        )

    return test


SIZES = POINTS[1].tolist()  # of the maps of the case


class _WithContext:
    """Calls a deformable layer with fixed sizes of maps, which are no tensors to be drawn."""

    def build(self, x_shape, context_shape, reference_points_shape):
        super().build(x_shape, context_shape)

    def call(self, x, context, reference_points):
        return super().call(x, context, reference_points, SIZES)


@keras.saving.register_keras_serializable("tests.peers")
class _DeformableAttention(_WithContext, layers.DeformableAttention):
    pass


@keras.saving.register_keras_serializable("tests.peers")
class _DeformableDecoderBlock(_WithContext, layers.DeformableDecoderBlock):
    pass


@keras.saving.register_keras_serializable("tests.peers")
class _DeformableEncoderBlock(layers.DeformableEncoderBlock):
    def build(self, x_shape, reference_points_shape):
        super().build(x_shape)

    def call(self, x, reference_points):
        return super().call(x, reference_points, SIZES)


SIZED = {
    "DeformableAttention": lambda **kw: _DeformableAttention(HEADS, 2, 3, **kw),
    "DeformableEncoderBlock": lambda **kw: _DeformableEncoderBlock(HEADS, 13, 2, 3, **kw),
    "DeformableDecoderBlock": lambda **kw: _DeformableDecoderBlock(HEADS, 13, 2, 3, **kw),
}

for name, case in EVERY.items():
    if name in SIZED:
        case = dataclasses.replace(case, make=SIZED[name], inputs=case.inputs[:-1])
    setattr(EveryLayer, f"test_{name}", _of_keras(case))
    setattr(EveryLayerOfKerasHub, f"test_{name}", _of_keras_hub(case))
