"""Keras layers, and the pure functions under them."""

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.blocks import EncoderBlock
from keras_transformers.layers.convolution_mixing import ConvolutionMixing
from keras_transformers.layers.cross_attention import CrossAttention
from keras_transformers.layers.decoder_block import DecoderBlock
from keras_transformers.layers.embeddings import ClassToken, TokenEmbedding
from keras_transformers.layers.feed_forward import FeedForward, GatedFeedForward, gelu_tanh
from keras_transformers.layers.grid_bias import GridRelativeBias, relative_position_index
from keras_transformers.layers.grid_positions import (
    GridPositionEmbedding,
    SinusoidalGrid,
    resize_positions,
    sinusoidal_grid,
)
from keras_transformers.layers.heads import dot_product_attention
from keras_transformers.layers.linear_attention import LinearAttention
from keras_transformers.layers.local_attention import LocalAttention
from keras_transformers.layers.lstm_mixing import LSTMMixing
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    masked_softmax,
    padding_mask,
    segment_mask,
    segment_positions,
    window_mask,
)
from keras_transformers.layers.mixers import FourierMixing, MLPMixing
from keras_transformers.layers.patches import (
    ConvolutionalStem,
    PatchEmbedding,
    ShiftedPatchEmbedding,
    patchify,
    unpatchify,
)
from keras_transformers.layers.pooling import AttentionPooling
from keras_transformers.layers.position_terms import (
    ALiBi,
    PositionTerm,
    RelativePositionBias,
    ShawRelativePosition,
)
from keras_transformers.layers.positions import (
    PositionalEncoding,
    PositionEmbedding,
    sinusoidal_encoding,
)
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale, keep_mask
from keras_transformers.layers.rotary import RotaryEmbedding
from keras_transformers.layers.scores import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    ScaledDotScore,
    Score,
)
from keras_transformers.layers.self_attention import CausalSelfAttention, SelfAttention
from keras_transformers.layers.synthesizer import RandomSynthesizer

__all__ = [
    "ALiBi",
    "AdditiveScore",
    "AttentionPooling",
    "CausalSelfAttention",
    "ClassToken",
    "ConvolutionMixing",
    "ConvolutionalStem",
    "CrossAttention",
    "DecoderBlock",
    "DotScore",
    "DropPath",
    "Dropout",
    "EncoderBlock",
    "FeedForward",
    "FourierMixing",
    "GatedFeedForward",
    "GeneralScore",
    "GridPositionEmbedding",
    "GridRelativeBias",
    "LSTMMixing",
    "LayerScale",
    "LinearAttention",
    "LocalAttention",
    "MLPMixing",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PositionEmbedding",
    "PositionTerm",
    "PositionalEncoding",
    "RandomSynthesizer",
    "RelativePositionBias",
    "RotaryEmbedding",
    "ScaledDotScore",
    "Score",
    "SelfAttention",
    "ShawRelativePosition",
    "ShiftedPatchEmbedding",
    "SinusoidalGrid",
    "TokenEmbedding",
    "causal_mask",
    "combine_masks",
    "dot_product_attention",
    "gelu_tanh",
    "keep_mask",
    "masked_softmax",
    "padding_mask",
    "patchify",
    "relative_position_index",
    "resize_positions",
    "segment_mask",
    "segment_positions",
    "sinusoidal_encoding",
    "sinusoidal_grid",
    "unpatchify",
    "window_mask",
]
