"""Streams of files larger than memory: any number of shards, from any step on."""

from keras_transformers.data.shards import Block, LeftOut, Position, Shards, as_texts
from keras_transformers.data.streams import Encoded, Journal, ShardStream

__all__ = [
    "Block",
    "Encoded",
    "Journal",
    "LeftOut",
    "Position",
    "ShardStream",
    "Shards",
    "as_texts",
]
