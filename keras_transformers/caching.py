"""Compiled programs that outlive their process, so that the next one need not compile them."""

from keras_transformers.core.caching import clean, compile_cache

__all__ = ["clean", "compile_cache"]
