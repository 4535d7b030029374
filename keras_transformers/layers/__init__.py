"""Keras layers, and the pure functions under them."""

from keras_transformers.layers.attention.conditional import (
    ConditionalCrossAttention,
    ConditionalSelfAttention,
)
from keras_transformers.layers.attention.decoder import CausalSelfAttention, CrossAttention
from keras_transformers.layers.attention.deformable import DeformableAttention, sample_levels
from keras_transformers.layers.attention.learned_scores import (
    AdditiveScore,
    GeneralScore,
    ScaledCosineScore,
)
from keras_transformers.layers.attention.linear import LinearAttention
from keras_transformers.layers.attention.local import LocalAttention
from keras_transformers.layers.attention.multi_head import MultiHeadAttention
from keras_transformers.layers.attention.pooling import PoolingAttention
from keras_transformers.layers.attention.reduction import SpatialReductionAttention
from keras_transformers.layers.attention.scores import (
    DotScore,
    ScaledDotScore,
    Score,
    dot_product_attention,
    masked_softmax,
)
from keras_transformers.layers.attention.self_attention import SelfAttention
from keras_transformers.layers.attention.shaped_scores import NormalizedScore, SoftCapScore
from keras_transformers.layers.attention.windows import (
    WindowAttention,
    merge_windows,
    partition_windows,
    shifted_window_mask,
)
from keras_transformers.layers.blocks.attention_pooling import AttentionPooling
from keras_transformers.layers.blocks.conditional import (
    ConditionalDecoderBlock,
    FirstConditionalDecoderBlock,
)
from keras_transformers.layers.blocks.deformable import (
    DeformableDecoderBlock,
    DeformableEncoderBlock,
)
from keras_transformers.layers.blocks.feed_forward import (
    ConvolutionalFeedForward,
    FeedForward,
    GatedFeedForward,
    gelu_sigmoid,
    gelu_tanh,
)
from keras_transformers.layers.blocks.first import FirstEncoderBlock
from keras_transformers.layers.blocks.pooling_block import PoolingBlock
from keras_transformers.layers.blocks.residual import DecoderBlock, EncoderBlock
from keras_transformers.layers.blocks.sandwich import SandwichDecoderBlock
from keras_transformers.layers.blocks.swin import SwinBlock
from keras_transformers.layers.class_token import ClassToken
from keras_transformers.layers.embeddings import TokenEmbedding
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
    segment_positions,
    window_mask,
)
from keras_transformers.layers.mixing.convolution import ConvolutionMixing
from keras_transformers.layers.mixing.lstm import LSTMMixing
from keras_transformers.layers.mixing.mixers import FourierMixing, MLPMixing
from keras_transformers.layers.mixing.synthesizer import RandomSynthesizer
from keras_transformers.layers.offset_norm import OffsetRMSNormalization
from keras_transformers.layers.positions.box import relative_coordinates, sinusoidal_coordinates
from keras_transformers.layers.positions.grid import (
    GridPositionEmbedding,
    SinusoidalGrid,
    sinusoidal_grid,
)
from keras_transformers.layers.positions.grid_bias import (
    GridRelativeBias,
    LogGridBias,
    relative_position_index,
)
from keras_transformers.layers.positions.in_attention import (
    ALiBi,
    AttentionPositionEncoding,
    RelativePositionBias,
    ShawRelativePosition,
)
from keras_transformers.layers.positions.resizing import resize_positions
from keras_transformers.layers.positions.rotary import RotaryEmbedding
from keras_transformers.layers.positions.rotary_scaling import (
    Llama3Scaling,
    LongRopeScaling,
    RotaryScaling,
    YarnScaling,
)
from keras_transformers.layers.positions.sequence import (
    PositionalEncoding,
    PositionEmbedding,
    sinusoidal_encoding,
)
from keras_transformers.layers.register_tokens import ClassAndMeanPooling, RegisterTokens
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale, keep_mask
from keras_transformers.layers.rematerialization import rematerialized_blocks
from keras_transformers.layers.vision.convolutions import ConvolutionNorm, ResidualBlock
from keras_transformers.layers.vision.map_resizing import resize_map
from keras_transformers.layers.vision.overlapping_patches import OverlappingPatchEmbedding
from keras_transformers.layers.vision.patch_embedding import PatchEmbedding, ShiftedPatchEmbedding
from keras_transformers.layers.vision.patch_merging import PatchMerging
from keras_transformers.layers.vision.patches import patchify, unpatchify
from keras_transformers.layers.vision.stem import ConvolutionalStem

__all__ = [
    "ALiBi",
    "AdditiveScore",
    "AttentionPooling",
    "CausalSelfAttention",
    "ClassAndMeanPooling",
    "ClassToken",
    "ConvolutionMixing",
    "ConvolutionNorm",
    "ConvolutionalFeedForward",
    "ConvolutionalStem",
    "ConditionalCrossAttention",
    "ConditionalDecoderBlock",
    "ConditionalSelfAttention",
    "CrossAttention",
    "DecoderBlock",
    "DeformableAttention",
    "DeformableDecoderBlock",
    "DeformableEncoderBlock",
    "DotScore",
    "DropPath",
    "Dropout",
    "EncoderBlock",
    "FeedForward",
    "FirstConditionalDecoderBlock",
    "FirstEncoderBlock",
    "FourierMixing",
    "GatedFeedForward",
    "GeneralScore",
    "GridPositionEmbedding",
    "GridRelativeBias",
    "LSTMMixing",
    "LayerScale",
    "LinearAttention",
    "Llama3Scaling",
    "LocalAttention",
    "LogGridBias",
    "LongRopeScaling",
    "MLPMixing",
    "MultiHeadAttention",
    "NormalizedScore",
    "OffsetRMSNormalization",
    "OverlappingPatchEmbedding",
    "PatchEmbedding",
    "PatchMerging",
    "PoolingAttention",
    "PoolingBlock",
    "PositionEmbedding",
    "AttentionPositionEncoding",
    "PositionalEncoding",
    "RandomSynthesizer",
    "RegisterTokens",
    "RelativePositionBias",
    "ResidualBlock",
    "RotaryEmbedding",
    "RotaryScaling",
    "SandwichDecoderBlock",
    "ScaledCosineScore",
    "ScaledDotScore",
    "Score",
    "SelfAttention",
    "ShawRelativePosition",
    "ShiftedPatchEmbedding",
    "SinusoidalGrid",
    "SoftCapScore",
    "SpatialReductionAttention",
    "SwinBlock",
    "TokenEmbedding",
    "WindowAttention",
    "YarnScaling",
    "causal_mask",
    "combine_masks",
    "dot_product_attention",
    "gelu_sigmoid",
    "gelu_tanh",
    "keep_mask",
    "masked_softmax",
    "merge_windows",
    "padding_mask",
    "partition_windows",
    "patchify",
    "relative_coordinates",
    "relative_position_index",
    "rematerialized_blocks",
    "resize_map",
    "resize_positions",
    "sample_levels",
    "segment_mask",
    "segment_positions",
    "shifted_window_mask",
    "sinusoidal_coordinates",
    "sinusoidal_encoding",
    "sinusoidal_grid",
    "unpatchify",
    "window_mask",
]
