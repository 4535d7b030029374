"""Keras layers, and the pure functions under them."""

from keras_transformers.layers.attention import (
    CausalSelfAttention,
    CrossAttention,
    MultiHeadAttention,
    SelfAttention,
    dot_product_attention,
)
from keras_transformers.layers.blocks import DecoderBlock, EncoderBlock
from keras_transformers.layers.embeddings import ClassToken, TokenEmbedding
from keras_transformers.layers.feed_forward import FeedForward, GatedFeedForward
from keras_transformers.layers.grid_positions import (
    GridPositionEmbedding,
    SinusoidalGrid,
    resize_positions,
    sinusoidal_grid,
)
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    masked_softmax,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.patches import (
    ConvolutionalStem,
    PatchEmbedding,
    ShiftedPatchEmbedding,
    patchify,
    unpatchify,
)
from keras_transformers.layers.pooling import AttentionPooling
from keras_transformers.layers.positions import (
    PositionalEncoding,
    PositionEmbedding,
    sinusoidal_encoding,
)
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale, keep_mask

__all__ = [
    "AttentionPooling",
    "CausalSelfAttention",
    "ClassToken",
    "ConvolutionalStem",
    "CrossAttention",
    "DecoderBlock",
    "DropPath",
    "Dropout",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "GridPositionEmbedding",
    "LayerScale",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PositionEmbedding",
    "PositionalEncoding",
    "SelfAttention",
    "ShiftedPatchEmbedding",
    "SinusoidalGrid",
    "TokenEmbedding",
    "causal_mask",
    "combine_masks",
    "dot_product_attention",
    "keep_mask",
    "masked_softmax",
    "padding_mask",
    "patchify",
    "resize_positions",
    "segment_mask",
    "segment_positions",
    "sinusoidal_encoding",
    "sinusoidal_grid",
    "unpatchify",
]
