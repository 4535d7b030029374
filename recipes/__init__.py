"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""

import sys

from .bad_input import COMMAND, end_at_interrupt, look_first, name_missing_extras

if sys.argv[:1] == ["-m"] or sys.argv[:1] and sys.argv[0].startswith(f"{COMMAND} "):
    end_at_interrupt()  # a module of these is about to be run, not imported
    name_missing_extras()
    look_first()

import keras_transformers  # noqa: F401  before a recipe: TensorFlow comes without its chatter
