"""What the blocks of a Vision Transformer are made of: its argument `block`."""

from typing import Any, Literal

import keras

from keras_transformers.annotations import Activation
from keras_transformers.layers import FeedForward, SelfAttention
from keras_transformers.layers.parts import serialized


def serialized_block(block: dict[str, Any] | None) -> dict[str, Any]:
    """The setting `block` with its default, and its parts as configurations."""
    block = {"activation": "gelu", **(block or {})}
    parts = {name: block[name] for name in ("mixer", "feed_forward", "norm") if name in block}
    return {**block, **{name: serialized(each) for name, each in parts.items()}}


def parts_of_blocks(
    num_heads: int,
    mlp_dim: int,
    norm_epsilon: float,
    activation: Activation | None = "gelu",
    attention_dropout: float = 0.0,
    qkv_bias: bool = True,
    **given: Any,
) -> dict[str, Any]:
    """Arguments of `EncoderBlock`: the parts that were not given are made of the numbers."""
    parts = {name: each for name, each in given.items() if each is not None}
    if "mixer" not in parts:
        bias: bool | Literal["output"] = True if qkv_bias else "output"
        parts["mixer"] = SelfAttention(num_heads, dropout=attention_dropout, use_bias=bias)
    if "feed_forward" not in parts:
        parts["feed_forward"] = FeedForward(mlp_dim, activation)
    if "norm" not in parts:
        parts["norm"] = keras.layers.LayerNormalization(epsilon=norm_epsilon)
    return parts
