"""keras_transformers: transformers in Keras 3, from layer to served model.

Sub-packages: `layers`, `models`, `generation`, `training`, and two that are imported on first use:
`text`, which needs tensorflow-text, and `export`, which needs TensorFlow.
"""

import importlib

from keras_transformers import generation, layers, models, training

__version__ = "0.1.0"
__all__ = ["export", "generation", "layers", "models", "text", "training"]


def __getattr__(name):
    if name in ("text", "export"):
        return importlib.import_module(f"keras_transformers.{name}")
    raise AttributeError(f"module 'keras_transformers' has no attribute {name!r}")
