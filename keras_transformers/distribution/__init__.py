"""One run on several devices: JAX through `keras.distribution`, TensorFlow where it is right."""

from keras_transformers.distribution.layouts import (
    Devices,
    bytes_per_device,
    initialize,
    is_first_host,
    layout_map,
    leave,
    parse,
    save,
)
from keras_transformers.distribution.scope import Guard, check, distribute

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
