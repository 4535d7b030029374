"""Images and maps have their channels last, whatever Keras's configuration says."""

import keras
import numpy as np
import pytest

from tests.contract import assert_close, call, shapes_of
from tests.every_layer import EVERY
from tests.every_model import MODELS, data


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("name", EVERY)
def test_layers(name, channels_first):
    case = EVERY[name]
    assert_close(*_twice(case.make, case.inputs, lambda layer: call(layer, case.inputs)), 0)


@pytest.mark.parametrize("name", MODELS)
def test_models(name, channels_first):
    inputs = keras.tree.map_structure(lambda x: x[:2], data(name)[0])

    def make():
        return MODELS[name](0.0)

    assert_close(*_twice(make, (inputs,), lambda model: model(inputs, training=False)), 0)


def test_augmentation(channels_first):
    vision = pytest.importorskip("keras_transformers.vision")
    images = np.random.default_rng(0).uniform(0, 255, (4, 6, 8, 3)).astype("float32")
    options = {"flip": True, "erasing": 0.3, "cutmix": 1.0, "rand_augment": 1, "seed": 3}
    key, labels = np.array([1, 2]), np.eye(4, dtype="float32")
    first = vision.Augmentation(**options)(images, labels, key)
    keras.config.set_image_data_format("channels_last")
    assert_close(first, vision.Augmentation(**options)(images, labels, key), 0)


def _twice(make, inputs, run):
    """What is computed under either setting, with the same weights."""
    one = make()
    first = run(one)
    keras.config.set_image_data_format("channels_last")
    other = make()
    other.build(*shapes_of(inputs))
    other.set_weights(one.get_weights())
    return first, run(other)
