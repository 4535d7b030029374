"""Adapters with values, for tests: new ones change nothing. And models of every kind of layer."""

import keras
import numpy as np

from keras_transformers.models import LanguageModel
from keras_transformers.training.adapters import adapted_layers
from tests.contract import to_numpy

IDS = np.random.default_rng(0).integers(1, 13, (3, 7)).astype("int32")


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


def language_model(layers=1, **options):
    model = LanguageModel(13, 12, num_heads=3, mlp_dim=20, num_layers=layers, **options)
    model.build((None, None))
    return model


def outputs(model, ids=IDS):
    return to_numpy(model(ids)).astype("float64")


@keras.saving.register_keras_serializable("tests")
class Own(keras.layers.Layer):
    """A layer of a user: it has layers in lists, one without a name, and one of Keras's owners."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.parts = [keras.layers.Dense(units, "tanh") for _ in range(2)]
        self.attention = keras.layers.MultiHeadAttention(2, 3)

    def build(self, shape):
        for part in self.parts:
            part.build(shape)
            shape = (*shape[:-1], self.units)
        self.attention.build(shape, shape)

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x + self.attention(x, x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("tests")
class OwnModel(keras.Model):
    """A model of a user, with a layer of a user and a head that Keras names."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.body, self.head = Own(units), keras.layers.Dense(3)

    def build(self, shape):
        self.body.build(shape)
        self.head.build((*shape[:-1], self.units))

    def call(self, x):
        return self.head(self.body(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def keras_model():
    ids = keras.Input((7,), dtype="int32")
    x = keras.layers.Embedding(13, 12, name="table")(ids)
    x = x + keras.layers.MultiHeadAttention(3, 4, name="attention")(x, x)
    x = keras.layers.TimeDistributed(keras.layers.Dense(12, "tanh", name="one"), name="each")(x)
    return keras.Model(ids, keras.layers.Dense(3, name="head")(x))


def model_with_own_layer():
    ids = keras.Input((7,), dtype="int32")
    x = Own(12, name="own")(keras.layers.Embedding(13, 12, name="table")(ids))
    return keras.Model(ids, keras.layers.Dense(3, name="head")(x))


def own_model():
    model = OwnModel(12)
    model.build((None, 7, 5))
    return model


ORIGINS = {
    "our layers": lambda: language_model(),
    "Keras's layers": keras_model,
    "a user's layer": model_with_own_layer,
    "a user's model": own_model,
}
FLOATS = np.random.default_rng(1).normal(size=(3, 7, 5)).astype("float32")


def answers(model):
    return outputs(model, FLOATS if isinstance(model, OwnModel) else IDS)
