"""Whole architectures, one a file."""

from keras_transformers.models.transformer import Transformer

__all__ = ["Transformer"]
