"""Keras layers, and the pure functions under them."""

from keras_transformers.layers.attention import MultiHeadAttention, SelfAttention
from keras_transformers.layers.blocks import DecoderBlock, EncoderBlock
from keras_transformers.layers.box_positions import relative_places, sinusoidal_coordinates
from keras_transformers.layers.convolution_mixing import ConvolutionMixing
from keras_transformers.layers.convolutional_stem import ConvolutionalStem
from keras_transformers.layers.convolutions import ConvolutionNorm, ResidualBlock
from keras_transformers.layers.decoder_attention import CausalSelfAttention, CrossAttention
from keras_transformers.layers.embeddings import ClassToken, TokenEmbedding
from keras_transformers.layers.feed_forward import (
    ConvolutionalFeedForward,
    FeedForward,
    GatedFeedForward,
    gelu_tanh,
)
from keras_transformers.layers.grid_bias import (
    GridRelativeBias,
    LogGridBias,
    relative_position_index,
)
from keras_transformers.layers.grid_positions import (
    GridPositionEmbedding,
    SinusoidalGrid,
    resize_positions,
    sinusoidal_grid,
)
from keras_transformers.layers.learned_scores import AdditiveScore, GeneralScore, ScaledCosineScore
from keras_transformers.layers.linear_attention import LinearAttention
from keras_transformers.layers.local_attention import LocalAttention
from keras_transformers.layers.lstm_mixing import LSTMMixing
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
    segment_positions,
    window_mask,
)
from keras_transformers.layers.mixers import FourierMixing, MLPMixing
from keras_transformers.layers.overlapping_patches import OverlappingPatchEmbedding
from keras_transformers.layers.patch_embedding import PatchEmbedding, ShiftedPatchEmbedding
from keras_transformers.layers.patch_merging import PatchMerging
from keras_transformers.layers.patches import patchify, unpatchify
from keras_transformers.layers.pooling import AttentionPooling
from keras_transformers.layers.pooling_attention import PoolingAttention
from keras_transformers.layers.pooling_block import PoolingBlock
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
from keras_transformers.layers.reduction_attention import SpatialReductionAttention
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale, keep_mask
from keras_transformers.layers.rematerialization import rematerialized_blocks
from keras_transformers.layers.rotary import RotaryEmbedding
from keras_transformers.layers.scores import (
    DotScore,
    ScaledDotScore,
    Score,
    dot_product_attention,
    masked_softmax,
)
from keras_transformers.layers.swin_block import SwinBlock
from keras_transformers.layers.synthesizer import RandomSynthesizer
from keras_transformers.layers.windows import (
    WindowAttention,
    merge_windows,
    partition_windows,
    shifted_window_mask,
)

__all__ = [
    "ALiBi",
    "AdditiveScore",
    "AttentionPooling",
    "CausalSelfAttention",
    "ClassToken",
    "ConvolutionMixing",
    "ConvolutionNorm",
    "ConvolutionalFeedForward",
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
    "LogGridBias",
    "MLPMixing",
    "MultiHeadAttention",
    "OverlappingPatchEmbedding",
    "PatchEmbedding",
    "PatchMerging",
    "PoolingAttention",
    "PoolingBlock",
    "PositionEmbedding",
    "PositionTerm",
    "PositionalEncoding",
    "RandomSynthesizer",
    "RelativePositionBias",
    "ResidualBlock",
    "RotaryEmbedding",
    "ScaledCosineScore",
    "ScaledDotScore",
    "Score",
    "SelfAttention",
    "ShawRelativePosition",
    "ShiftedPatchEmbedding",
    "SinusoidalGrid",
    "SpatialReductionAttention",
    "SwinBlock",
    "TokenEmbedding",
    "WindowAttention",
    "causal_mask",
    "combine_masks",
    "dot_product_attention",
    "gelu_tanh",
    "keep_mask",
    "masked_softmax",
    "merge_windows",
    "padding_mask",
    "partition_windows",
    "patchify",
    "relative_places",
    "relative_position_index",
    "rematerialized_blocks",
    "resize_positions",
    "segment_mask",
    "segment_positions",
    "shifted_window_mask",
    "sinusoidal_coordinates",
    "sinusoidal_encoding",
    "sinusoidal_grid",
    "unpatchify",
    "window_mask",
]
