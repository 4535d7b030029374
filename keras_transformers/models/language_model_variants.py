"""Sizes and styles of `LanguageModel`: which parts flat keywords make."""

import functools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import keras

from keras_transformers.annotations import Activation, LayerOptions, Part
from keras_transformers.layers import (
    CausalSelfAttention,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    RotaryEmbedding,
    gelu_tanh,
)
from keras_transformers.models.settings import (
    Makers,
    check_changes,
    check_choice,
    check_divides,
    variant,
    with_parts,
)
from keras_transformers.models.text_embedding import TextEmbedding
from keras_transformers.models.text_variants import OF_BLOCK, OF_EMBEDDING, check_text_numbers

Style: TypeAlias = Literal["gpt2", "modern"]

# Radford et al. 2019, table 2 (small to xl), and smaller ones for small data.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 4},
    "small": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "medium": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "large": {"hidden_dim": 1280, "num_heads": 20, "mlp_dim": 5120, "num_layers": 36},
    "xl": {"hidden_dim": 1600, "num_heads": 25, "mlp_dim": 6400, "num_layers": 48},
}
# Keywords that make another part than the numbers do.
BLOCK_WORDS = ("style", "num_key_value_heads", "attention_dropout", "activation", "norm_epsilon")
EMBEDDING_WORDS = ("style", "padding_id", "tie_weights")


class LanguageModelKeywords(LayerOptions, total=False):
    """What `LanguageModel.from_variant` takes by name; see there."""

    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int
    max_length: int
    dropout: float
    block: Part | Sequence[Part] | None
    embedding: Part | None
    head: Part | None
    style: Style
    num_key_value_heads: int | None
    attention_dropout: float
    activation: Activation | None
    norm_epsilon: float
    padding_id: int
    tie_weights: bool


def decoder_embedding(
    vocab_size: int,
    hidden_dim: int,
    max_length: int = 1024,
    style: Style = "gpt2",
    padding_id: int = 0,
    tie_weights: bool = True,
) -> TextEmbedding:
    """What ids become in a style: with a table of positions in "gpt2", without in "modern"."""
    positions = max_length if style == "gpt2" else None
    return TextEmbedding(
        vocab_size, hidden_dim, positions, padding_id=padding_id, tie_weights=tie_weights
    )


def decoder_block(
    num_heads: int,
    mlp_dim: int,
    dropout: float = 0.1,
    style: Style = "gpt2",
    num_key_value_heads: int | None = None,
    attention_dropout: float | None = None,
    activation: Activation | None = gelu_tanh,
    norm_epsilon: float = 1e-5,
) -> DecoderBlock:
    """A block of a style; the rate on the attention weights is by default `dropout` too."""
    modern = style == "modern"
    attention = CausalSelfAttention(
        num_heads,
        dropout=dropout if attention_dropout is None else attention_dropout,
        use_bias=not modern,
        num_key_value_heads=num_key_value_heads,
        position=RotaryEmbedding() if modern else None,
    )
    network = (
        GatedFeedForward(mlp_dim, "silu", use_bias=False)
        if modern
        else FeedForward(mlp_dim, activation)
    )
    norm = keras.layers.RMSNormalization if modern else keras.layers.LayerNormalization
    return DecoderBlock(
        dropout=dropout,
        norm_first=True,
        mixer=attention,
        feed_forward=network,
        norm=norm(epsilon=norm_epsilon),
    )


def language_model_arguments(
    name: str, vocab_size: int | None, changes: LanguageModelKeywords
) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and parts where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or a part is given
            beside what it is made of.
    """
    owner = "LanguageModel"
    beside = {"block": BLOCK_WORDS, "embedding": EMBEDDING_WORDS}
    check_changes(owner, changes, LanguageModelKeywords, beside)
    found = variant(owner, name, VARIANTS, changes)
    check_choice(owner, {"style": "gpt2", **found}, "style", ("gpt2", "modern"))
    if changes.get("embedding") is None or vocab_size is not None:
        found["vocab_size"] = 50257 if vocab_size is None else vocab_size
    check_text_numbers(owner, found, ("num_key_value_heads",))
    if found.get("num_key_value_heads") is not None:
        check_divides(owner, found, "num_key_value_heads", "num_heads")
    block = functools.partial(decoder_block, dropout=found.get("dropout", 0.1))
    makers: Makers = {
        "embedding": (decoder_embedding, OF_EMBEDDING, EMBEDDING_WORDS),
        "block": (block, OF_BLOCK, BLOCK_WORDS),
    }
    return with_parts(found, changes, makers)
