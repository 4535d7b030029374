"""Keras's and KerasHub's checks of a layer on each of ours, for `python -m tests.peers`."""

import importlib

from tests.contract import call, to_tensors
from tests.every_layer import EVERY

# Of their private parts: it is their own tests that are run.
KerasTestCase = importlib.import_module("keras.src.testing").TestCase
KerasHubTestCase = importlib.import_module("keras_hub.src.tests.test_case").TestCase


class EveryLayer(KerasTestCase):
    """Keras's."""


class EveryLayerOfKerasHub(KerasHubTestCase):
    """KerasHub's."""


def _named(case, suffix=""):
    return [f"{name}{suffix}" for name in ("x", "context")[: len(case.inputs)]]


def _of_keras(case):
    def test(self):
        inputs = {"input_data": case.inputs[0]}
        if len(case.inputs) > 1:
            shapes = zip(_named(case, "_shape"), (x.shape for x in case.inputs), strict=True)
            inputs = {"input_shape": dict(shapes), "run_training_check": False}
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
            inputs[0] if len(inputs) == 1 else dict(zip(_named(case), inputs, strict=True)),
            expected_output_shape=output.shape,
            expected_num_trainable_weights=len(layer.trainable_weights),
            expected_num_non_trainable_weights=len(layer.non_trainable_weights),
            expected_num_non_trainable_variables=len(layer.non_trainable_variables),
        )

    return test


for name, case in EVERY.items():
    setattr(EveryLayer, f"test_{name}", _of_keras(case))
    setattr(EveryLayerOfKerasHub, f"test_{name}", _of_keras_hub(case))
