"""Decoding: searches over one `decode_step`, sharing one key/value cache."""

from keras_transformers.generation.generate import decode, generate
from keras_transformers.generation.search import BeamSearch, Greedy, length_penalty

__all__ = ["BeamSearch", "Greedy", "decode", "generate", "length_penalty"]
