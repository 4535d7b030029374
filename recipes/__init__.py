"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""

import sys

import keras_transformers  # noqa: F401  first: TensorFlow is imported without its chatter

from .bad_input import name_missing_extras

if sys.argv[:1] == ["-m"]:  # a module of these is about to be run, not imported
    name_missing_extras()
