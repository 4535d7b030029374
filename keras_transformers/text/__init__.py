"""Tokenizers that run in the TensorFlow graph, parallel text, and batches of few shapes."""

from keras_transformers.text.batching import bucketed, encode_pairs, packed, real_token_share
from keras_transformers.text.tokenizers import SentencePieceTokenizer

__all__ = [
    "SentencePieceTokenizer",
    "bucketed",
    "encode_pairs",
    "packed",
    "real_token_share",
]
