"""One door: a folder as the object that answers."""

from keras_transformers.loading.folder import begin, load

__all__ = ["begin", "load"]
