"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""

import sys

from .lib.command_line import COMMAND, answer_early, end_at_interrupt, name_missing_extras

if sys.argv[:1] == ["-m"] or sys.argv[:1] and sys.argv[0].startswith(f"{COMMAND} "):
    end_at_interrupt()  # a module of these is about to be run, not imported
    name_missing_extras()
    answer_early()

import keras_transformers  # noqa: F401  before a recipe: TensorFlow comes without its chatter
