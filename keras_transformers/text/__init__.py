"""Tokenizers that run in the TensorFlow graph, parallel text, and batches of few shapes."""

from keras_transformers.text.batching import bucketed, encode_pairs, real_token_share
from keras_transformers.text.corpus import PairCorpus, read_pairs
from keras_transformers.text.packing import balanced_lengths, packed
from keras_transformers.text.tokenizers import SentencePieceTokenizer

__all__ = [
    "PairCorpus",
    "SentencePieceTokenizer",
    "balanced_lengths",
    "bucketed",
    "encode_pairs",
    "packed",
    "read_pairs",
    "real_token_share",
]
