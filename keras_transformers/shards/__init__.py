"""Streams of files larger than memory: any number of shards, from any step on."""

from keras_transformers.shards.journal import Journal
from keras_transformers.shards.order import Block, LeftOut, Position
from keras_transformers.shards.sources import Shards, as_texts
from keras_transformers.shards.stream import Encoded, ShardStream

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
