"""What the blocks of `TextEncoder` and `LanguageModel` are made of, in each of their styles."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    CausalSelfAttention,
    FeedForward,
    GatedFeedForward,
    RotaryEmbedding,
    SelfAttention,
)


def encoder_norm(
    settings: Mapping[str, Any], name: str, dtype: Any
) -> keras.layers.LayerNormalization:
    """A norm of `TextEncoder`, by default with the published models' epsilon."""
    modern, epsilon = settings["style"] == "modern", settings["norm_epsilon"]
    if epsilon is None:
        epsilon = 1e-5 if modern else 1e-12
    return keras.layers.LayerNormalization(
        epsilon=epsilon, center=not modern, name=name, dtype=dtype
    )


def encoder_parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `EncoderBlock` in a `TextEncoder`, beside the norm."""
    heads, dropout = settings["num_heads"], settings["attention_dropout"]
    if settings["style"] == "bert":
        network = FeedForward(settings["mlp_dim"], settings["activation"])
        return {"mixer": SelfAttention(heads, dropout=dropout), "feed_forward": network}
    position = RotaryEmbedding()
    attention = SelfAttention(heads, dropout=dropout, use_bias=False, position=position)
    network = GatedFeedForward(settings["mlp_dim"], "gelu", use_bias=False)
    return {"mixer": attention, "feed_forward": network, "norm_first": True}


def decoder_norm(settings: Mapping[str, Any], name: str, dtype: Any) -> keras.layers.Layer:
    """A norm of `LanguageModel`."""
    modern = settings["style"] == "modern"
    kind = keras.layers.RMSNormalization if modern else keras.layers.LayerNormalization
    return kind(epsilon=settings["norm_epsilon"], name=name, dtype=dtype)


def decoder_parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `DecoderBlock` in a `LanguageModel`, beside the norm."""
    modern = settings["style"] == "modern"
    attention = CausalSelfAttention(
        settings["num_heads"],
        dropout=settings["attention_dropout"],
        use_bias=not modern,
        num_key_value_heads=settings["num_key_value_heads"],
        position=RotaryEmbedding() if modern else None,
    )
    if modern:
        network = GatedFeedForward(settings["mlp_dim"], "silu", use_bias=False)
    else:
        network = FeedForward(settings["mlp_dim"], settings["activation"])
    return {"mixer": attention, "feed_forward": network}
