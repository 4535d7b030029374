"""Adapters with values, for tests: new ones change nothing."""

import numpy as np

from keras_transformers.training.adapter_targets import adapted_layers


def fill(model, name="default", size=0.3, seed=0):
    """Gives an adapter values that change something; returns path -> arrays."""
    draw, found = np.random.default_rng(seed), {}
    for path, layer in adapted_layers(model).items():
        if name in layer.adapter.settings:
            arrays = layer.adapter.arrays(name)
            found[path] = {
                key: (x + size * draw.normal(size=x.shape)).astype("float32")
                for key, x in arrays.items()
            }
            layer.adapter.assign_arrays(name, found[path])
    return found
