"""One run on several devices: JAX through `keras.distribution`, TensorFlow where it is right."""

from keras_transformers.distribution.devices import Devices, parse
from keras_transformers.distribution.guard import Guard, check
from keras_transformers.distribution.hosts import initialize, is_first_host, leave, save
from keras_transformers.distribution.layouts import layout_map
from keras_transformers.distribution.scope import distribute
from keras_transformers.distribution.sizes import bytes_per_device

__all__ = [
    "Devices",
    "Guard",
    "bytes_per_device",
    "check",
    "distribute",
    "initialize",
    "is_first_host",
    "layout_map",
    "leave",
    "parse",
    "save",
]
