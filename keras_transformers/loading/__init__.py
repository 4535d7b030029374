"""One door: a folder as the object that answers."""

from keras_transformers.loading.folder import load

__all__ = ["load"]
