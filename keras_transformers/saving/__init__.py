"""Models and weights in files, which may be others': read with suspicion, all or nothing."""

from keras_transformers.saving.model import load_model, load_weights, save_weights

__all__ = ["load_model", "load_weights", "save_weights"]
