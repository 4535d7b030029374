"""Decoding: searches over one `decode_step`, sharing one key/value cache."""

from keras_transformers.core.types import BackPointers
from keras_transformers.generation.beam import BeamSearch, coverage_penalty, length_penalty
from keras_transformers.generation.boundaries import Boundaries, StopStrings
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.decode import decode
from keras_transformers.generation.generate import generate, generate_all, stream
from keras_transformers.generation.request import Request
from keras_transformers.generation.search import Greedy, Sampling
from keras_transformers.generation.shortlists import Shortlist, Shortlisted
from keras_transformers.generation.speculative import Speculative

__all__ = [
    "BackPointers",
    "BeamSearch",
    "Boundaries",
    "Constraints",
    "Greedy",
    "Request",
    "Sampling",
    "Shortlist",
    "Shortlisted",
    "Speculative",
    "StopStrings",
    "coverage_penalty",
    "decode",
    "generate",
    "generate_all",
    "length_penalty",
    "stream",
]
