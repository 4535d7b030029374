"""Keras layers, and the pure functions under them."""

from keras_transformers.layers.attention.cached import CausalSelfAttention
from keras_transformers.layers.attention.conditional import (
    ConditionalCrossAttention,
    ConditionalSelfAttention,
)
from keras_transformers.layers.attention.deformable import DeformableAttention, sample_levels
from keras_transformers.layers.attention.linear import LinearAttention
from keras_transformers.layers.attention.local import LocalAttention
from keras_transformers.layers.attention.multi_head import (
    CrossAttention,
    MultiHeadAttention,
    SelfAttention,
)
from keras_transformers.layers.attention.pooling import PoolingAttention, SpatialReductionAttention
from keras_transformers.layers.attention.scores import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    NormalizedScore,
    ScaledCosineScore,
    ScaledDotScore,
    Score,
    SoftCapScore,
    dot_product_attention,
    masked_softmax,
)
from keras_transformers.layers.attention.windows import (
    WindowAttention,
    merge_windows,
    partition_windows,
    shifted_window_mask,
)
from keras_transformers.layers.base import rematerialized_blocks
from keras_transformers.layers.blocks.conditional import (
    ConditionalDecoderBlock,
    FirstConditionalDecoderBlock,
)
from keras_transformers.layers.blocks.deformable import (
    DeformableDecoderBlock,
    DeformableEncoderBlock,
)
from keras_transformers.layers.blocks.pooling import PoolingBlock
from keras_transformers.layers.blocks.swin import SwinBlock
from keras_transformers.layers.blocks.transformer import (
    DecoderBlock,
    EncoderBlock,
    FirstEncoderBlock,
    SandwichDecoderBlock,
)
from keras_transformers.layers.convolutions import ConvolutionNorm, ResidualBlock, resize_map
from keras_transformers.layers.embeddings import TokenEmbedding
from keras_transformers.layers.feed_forward import (
    ConvolutionalFeedForward,
    FeedForward,
    GatedFeedForward,
    gelu_sigmoid,
    gelu_tanh,
)
from keras_transformers.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
    segment_positions,
    window_mask,
)
from keras_transformers.layers.mixers import (
    ConvolutionMixing,
    FourierMixing,
    LSTMMixing,
    MLPMixing,
    RandomSynthesizer,
)
from keras_transformers.layers.patches import (
    ClassToken,
    ConvolutionalStem,
    OverlappingPatchEmbedding,
    PatchEmbedding,
    PatchMerging,
    RegisterTokens,
    ShiftedPatchEmbedding,
    patchify,
    unpatchify,
)
from keras_transformers.layers.pooling import AttentionPooling, ClassAndMeanPooling
from keras_transformers.layers.positions.biases import (
    ALiBi,
    AttentionPositionEncoding,
    GridRelativeBias,
    LogGridBias,
    RelativePositionBias,
    ShawRelativePosition,
    relative_position_index,
)
from keras_transformers.layers.positions.grid import (
    GridPositionEmbedding,
    SinusoidalGrid,
    relative_coordinates,
    resize_positions,
    sinusoidal_coordinates,
    sinusoidal_grid,
)
from keras_transformers.layers.positions.rotary import (
    Llama3Scaling,
    LongRopeScaling,
    RotaryEmbedding,
    RotaryScaling,
    YarnScaling,
)
from keras_transformers.layers.positions.sequence import (
    PositionalEncoding,
    PositionEmbedding,
    sinusoidal_encoding,
)
from keras_transformers.layers.regularization import (
    Dropout,
    DropPath,
    LayerScale,
    OffsetRMSNormalization,
    keep_mask,
)

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
