"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""

import keras_transformers  # noqa: F401  first: TensorFlow is imported without its chatter

from .bad_input import name_missing_extras

name_missing_extras()
