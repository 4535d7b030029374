"""keras_transformers: transformers in Keras 3, from layer to served model.

Sub-packages: `layers`, `models`, `generation`, `training`, `inspection`, `precision`; and, imported
when first used, `text`, which needs tensorflow-text, and `vision` and `export`, which need
TensorFlow.
"""

import importlib

from keras_transformers import generation, inspection, layers, models, precision, training

__version__ = "0.1.0"
__all__ = [
    "export", "generation", "inspection", "layers", "models", "precision", "text", "training",
    "vision",
]


def __getattr__(name):
    if name in ("text", "vision", "export"):
        return importlib.import_module(f"keras_transformers.{name}")
    raise AttributeError(f"module 'keras_transformers' has no attribute {name!r}")
