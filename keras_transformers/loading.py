"""One door: a folder as the object that answers."""

from keras_transformers.tasks.loading import begin, load

__all__ = ["begin", "load"]
