"""Every public layer, small, with inputs that it takes: for claims that are made of all of them.

`LAYERS` has each class of `keras_transformers.layers` but scores and position encodings, which are
parts of attention; those are in `SCORES` and `TERMS`, in an attention each. `test_every_layer.py`
holds that none is missing.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_transformers import layers

HEADS, WIDTH, LENGTH = 2, 28, 6
RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(3, LENGTH, WIDTH)).astype("float32")
CONTEXT = RNG.normal(size=(3, 5, 10)).astype("float32")
# Of each token on two maps, of 4 and 1 positions, and the rows and columns of those.
POINTS = (
    RNG.uniform(size=(3, LENGTH, 2, 2)).astype("float32"),
    np.array([[2, 2], [1, 1]], "int32"),
)
IMAGES = RNG.normal(size=(2, 8, 12, 3)).astype("float32")
FEATURES = RNG.normal(size=(2, 7, 6, 10)).astype("float32")  # (batch, rows, columns, channels)
WINDOWS = RNG.normal(size=(10, 6, 14)).astype("float32")
IDS = RNG.integers(1, 13, (3, LENGTH)).astype("int32")


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer, and inputs of a call.

    Attributes:
        make: Takes keyword arguments of `keras.layers.Layer` and returns a new layer.
        inputs: The positional arguments of a call.
        of_tokens: Whether the first input is (batch, length, width), of any length.
        mixes: Whether an output depends on other tokens of the sequence: it must know which are
            padding.
    """

    make: Callable
    inputs: tuple
    of_tokens: bool = False
    mixes: bool = False


def _tokens(make, *more, mixes=False):
    return Case(make, (TOKENS, *more), of_tokens=True, mixes=mixes)


def _mixer(make, *more):
    return _tokens(make, *more, mixes=True)


def _attention(**part):
    return _mixer(lambda **kw: layers.SelfAttention(HEADS, **part, **kw))


LAYERS = {
    "MultiHeadAttention": _mixer(lambda **kw: layers.MultiHeadAttention(HEADS, **kw)),
    "SelfAttention": _mixer(lambda **kw: layers.SelfAttention(HEADS, **kw)),
    "CausalSelfAttention": _mixer(lambda **kw: layers.CausalSelfAttention(HEADS, **kw)),
    "CrossAttention": _mixer(lambda **kw: layers.CrossAttention(HEADS, **kw), CONTEXT),
    "LocalAttention": _mixer(lambda **kw: layers.LocalAttention(HEADS, 3, **kw)),
    "LinearAttention": _mixer(lambda **kw: layers.LinearAttention(HEADS, **kw)),
    "EncoderBlock": _mixer(lambda **kw: layers.EncoderBlock(HEADS, 13, **kw)),
    "FirstEncoderBlock": _mixer(
        lambda **kw: layers.FirstEncoderBlock(HEADS, 13, norm_first=True, **kw)
    ),
    "DecoderBlock": _mixer(lambda **kw: layers.DecoderBlock(HEADS, 13, **kw), CONTEXT),
    "SandwichDecoderBlock": _mixer(
        lambda **kw: layers.SandwichDecoderBlock(HEADS, 13, **kw), CONTEXT
    ),
    "ConditionalSelfAttention": Case(
        lambda **kw: layers.ConditionalSelfAttention(HEADS, **kw), (TOKENS, TOKENS)
    ),
    "ConditionalCrossAttention": Case(
        lambda **kw: layers.ConditionalCrossAttention(HEADS, **kw),
        (TOKENS, CONTEXT, TOKENS, CONTEXT),
    ),
    "ConditionalDecoderBlock": Case(
        lambda **kw: layers.ConditionalDecoderBlock(HEADS, 13, **kw),
        (TOKENS, CONTEXT, TOKENS, TOKENS, CONTEXT),
    ),
    "FirstConditionalDecoderBlock": Case(
        lambda **kw: layers.FirstConditionalDecoderBlock(HEADS, 13, **kw),
        (TOKENS, CONTEXT, TOKENS, TOKENS, CONTEXT),
    ),
    "DeformableAttention": Case(
        lambda **kw: layers.DeformableAttention(HEADS, 2, 3, **kw), (TOKENS, CONTEXT, *POINTS)
    ),
    "DeformableEncoderBlock": Case(
        lambda **kw: layers.DeformableEncoderBlock(HEADS, 13, 2, 3, **kw),
        (TOKENS[:, :5], POINTS[0][:, :5], POINTS[1]),
    ),
    "DeformableDecoderBlock": Case(
        lambda **kw: layers.DeformableDecoderBlock(HEADS, 13, 2, 3, **kw),
        (TOKENS, CONTEXT, *POINTS),
    ),
    "OffsetRMSNormalization": _tokens(lambda **kw: layers.OffsetRMSNormalization(**kw)),
    "FourierMixing": _tokens(layers.FourierMixing),  # refuses masks, or ignores them when told
    "MLPMixing": _mixer(lambda **kw: layers.MLPMixing(11, max_length=9, **kw)),
    "RandomSynthesizer": _mixer(lambda **kw: layers.RandomSynthesizer(HEADS, 9, **kw)),
    "ConvolutionMixing": _mixer(lambda **kw: layers.ConvolutionMixing(3, HEADS, **kw)),
    "LSTMMixing": _mixer(layers.LSTMMixing),
    "AttentionPooling": _mixer(lambda **kw: layers.AttentionPooling(HEADS, 13, **kw)),
    "FeedForward": _tokens(lambda **kw: layers.FeedForward(13, **kw)),
    "GatedFeedForward": _tokens(lambda **kw: layers.GatedFeedForward(13, **kw)),
    "PositionalEncoding": _tokens(layers.PositionalEncoding),
    "PositionEmbedding": _tokens(lambda **kw: layers.PositionEmbedding(9, **kw)),
    "Dropout": _tokens(lambda **kw: layers.Dropout(0.1, **kw)),
    "DropPath": _tokens(lambda **kw: layers.DropPath(0.1, **kw)),
    "LayerScale": _tokens(layers.LayerScale),
    "ClassToken": _tokens(lambda **kw: layers.ClassToken("random_normal", **kw)),
    "RegisterTokens": Case(lambda **kw: layers.RegisterTokens(2, **kw), (TOKENS,)),
    "ClassAndMeanPooling": Case(lambda **kw: layers.ClassAndMeanPooling(2, **kw), (TOKENS,)),
    "TokenEmbedding": Case(
        lambda **kw: layers.TokenEmbedding(13, 7, tie_weights=False, **kw), (IDS,)
    ),
    "PatchEmbedding": Case(lambda **kw: layers.PatchEmbedding(4, 10, **kw), (IMAGES,)),
    "ShiftedPatchEmbedding": Case(
        lambda **kw: layers.ShiftedPatchEmbedding(4, 10, **kw), (IMAGES,)
    ),
    "ConvolutionalStem": Case(lambda **kw: layers.ConvolutionalStem(4, 10, **kw), (IMAGES,)),
    "OverlappingPatchEmbedding": Case(
        lambda **kw: layers.OverlappingPatchEmbedding(11, 5, 3, **kw), (FEATURES,)
    ),
    "PatchMerging": Case(layers.PatchMerging, (FEATURES,)),
    "GridPositionEmbedding": Case(
        lambda **kw: layers.GridPositionEmbedding((2, 3), **kw), (TOKENS,)
    ),
    "SinusoidalGrid": Case(lambda **kw: layers.SinusoidalGrid((2, 3), **kw), (TOKENS,)),
    "ConvolutionNorm": Case(lambda **kw: layers.ConvolutionNorm(5, **kw), (FEATURES,)),
    "ResidualBlock": Case(lambda **kw: layers.ResidualBlock(5, 2, **kw), (FEATURES,)),
    "ConvolutionalFeedForward": Case(
        lambda **kw: layers.ConvolutionalFeedForward(13, "gelu", **kw), (FEATURES,)
    ),
    "WindowAttention": Case(lambda **kw: layers.WindowAttention(HEADS, (2, 3), **kw), (WINDOWS,)),
    "SwinBlock": Case(lambda **kw: layers.SwinBlock(HEADS, 3, 13, shift=1, **kw), (FEATURES,)),
    "SpatialReductionAttention": Case(
        lambda **kw: layers.SpatialReductionAttention(HEADS, 2, **kw), (FEATURES,)
    ),
    "PoolingAttention": Case(
        lambda **kw: layers.PoolingAttention(HEADS, (7, 6), 2, 3, **kw), (FEATURES,)
    ),
    "PoolingBlock": Case(
        lambda **kw: layers.PoolingBlock(HEADS, 13, 10, (7, 6), 2, 1, **kw), (FEATURES,)
    ),
}
SCORES = {
    score.__name__: _attention(score=score())
    for score in (
        layers.ScaledDotScore, layers.DotScore, layers.GeneralScore, layers.AdditiveScore,
        layers.ScaledCosineScore, layers.NormalizedScore,
    )
}  # fmt: skip
SCORES["SoftCapScore"] = _attention(score=layers.SoftCapScore(cap=2.0))
TERMS = {
    "RotaryEmbedding": _attention(position=layers.RotaryEmbedding()),
    "ALiBi": _attention(position=layers.ALiBi()),
    "RelativePositionBias": _attention(position=layers.RelativePositionBias(8, 6)),
    "ShawRelativePosition": _attention(position=layers.ShawRelativePosition(max_distance=3)),
    "GridRelativeBias": Case(
        lambda **kw: layers.SelfAttention(HEADS, position=layers.GridRelativeBias((2, 3)), **kw),
        (TOKENS,), mixes=True,
    ),
    "LogGridBias": Case(
        lambda **kw: layers.SelfAttention(HEADS, position=layers.LogGridBias((2, 3)), **kw),
        (TOKENS,), mixes=True,
    ),
}  # fmt: skip
EVERY = {**LAYERS, **SCORES, **TERMS}
