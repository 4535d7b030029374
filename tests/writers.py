"""A language model of all the parts that today's published ones have."""

from keras_transformers.layers import (
    CausalSelfAttention,
    DecoderBlock,
    GatedFeedForward,
    Llama3Scaling,
    LocalAttention,
    NormalizedScore,
    OffsetRMSNormalization,
    RotaryEmbedding,
    SandwichDecoderBlock,
    SoftCapScore,
)
from keras_transformers.models import LanguageHead, LanguageModel, TextEmbedding


def writer_of_all_parts(vocab_size=31, soft_cap=4.0):
    """Blocks with a window and without in turn, each with other norms and scores."""
    turned = RotaryEmbedding(scaling=Llama3Scaling(8.0, 16))
    common = {"key_dim": 6, "num_key_value_heads": 2, "use_bias": ("query", "key", "value")}
    common["position"] = turned
    norm = OffsetRMSNormalization()
    windowed = SandwichDecoderBlock(
        mixer=LocalAttention(4, 5, causal=True, score=SoftCapScore(3.0, 0.3), **common),
        feed_forward=GatedFeedForward(20, "silu", use_bias=False),
        norm=norm,
    )
    plain = DecoderBlock(
        norm_first=True,
        mixer=CausalSelfAttention(4, score=NormalizedScore(), **common),
        feed_forward=GatedFeedForward(20, "silu", use_bias=False),
        norm=norm,
    )
    embedding = TextEmbedding(vocab_size, 12, None, scale=True, tie_weights=False)
    head = None if soft_cap is None else LanguageHead(soft_cap)
    return LanguageModel(num_layers=2, block=[windowed, plain], embedding=embedding, head=head)
