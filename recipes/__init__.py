"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""

import os

# Before TensorFlow is: of what it logs, fatal errors alone; all others come as exceptions as well.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_transformers  # noqa: F401  which imports TensorFlow faster than itself
