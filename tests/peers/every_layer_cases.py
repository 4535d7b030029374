"""Keras's check of a layer on each of ours, for `python -m tests.peers`."""

import importlib

from tests.every_layer import EVERY

# Of the private part: it is Keras's own tests that are run.
TestCase = importlib.import_module("keras.src.testing").TestCase


class EveryLayer(TestCase):
    pass


def _check(case):
    def test(self):
        inputs = {"input_data": case.inputs[0]}
        if len(case.inputs) > 1:
            shapes = zip(("x_shape", "context_shape"), (x.shape for x in case.inputs), strict=True)
            inputs = {"input_shape": dict(shapes), "run_training_check": False}
        masks = case.make().supports_masking
        self.run_layer_test(case.make, {}, supports_masking=masks, **inputs)

    return test


for name, case in EVERY.items():
    setattr(EveryLayer, f"test_{name}", _check(case))
