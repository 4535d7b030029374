"""Streams of files larger than memory: any number of shards, from any step on."""

from keras_transformers.data.shard_streams import Encoded, Journal, ShardStream
from keras_transformers.data.shards import Block, LeftOut, Position, Shards, as_texts

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
