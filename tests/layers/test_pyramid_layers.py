"""Claims about the layers of PVT and MViT."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    ConvolutionalFeedForward,
    EncoderBlock,
    MultiHeadAttention,
    OverlappingPatchEmbedding,
    PoolingAttention,
    PoolingBlock,
    SpatialReductionAttention,
    patchify,
)
from tests.contract import ON_JAX, assert_close, check_layer, to_numpy

RNG = np.random.default_rng(8)
GRID = RNG.normal(size=(2, 7, 6, 15)).astype("float32")
LAYERS = {
    "embedding": lambda **kw: OverlappingPatchEmbedding(11, 5, 3, **kw),
    "embedding without norm": lambda **kw: OverlappingPatchEmbedding(11, 7, 4, False, **kw),
    "reduction": lambda **kw: SpatialReductionAttention(5, 2, **kw),
    "no reduction": lambda **kw: SpatialReductionAttention(3, **kw),
    "feed-forward": lambda **kw: ConvolutionalFeedForward(13, "gelu", **kw),
    "block of a PVT": lambda **kw: EncoderBlock(
        norm_first=True,
        mixer=SpatialReductionAttention(5, 3),
        feed_forward=ConvolutionalFeedForward(13, "gelu"),
        **kw,
    ),
    "pooling": lambda **kw: PoolingAttention(5, (7, 6), 2, 3, key_dim=4, output_shape=11, **kw),
    "block of an MViT": lambda **kw: PoolingBlock(2, 13, 10, (7, 6), 2, 1, layer_scale=0.5, **kw),
    "its other blocks": lambda **kw: PoolingBlock(3, 13, 15, (7, 6), key_stride=2, **kw),
}


# On JAX, which compiles every operation for every shape, those that hold the others.
OUTER = ["embedding", "block of a PVT", "block of an MViT"]


@pytest.mark.parametrize("name", OUTER if ON_JAX else LAYERS)
def test_contract(name):
    check_layer(LAYERS[name], (GRID,))


def test_overlapping_patches_are_a_convolution_with_zeros_around():
    layer = OverlappingPatchEmbedding(4, 3, 2, use_norm=False)
    x = RNG.normal(size=(1, 6, 5, 2)).astype("float32")
    found = to_numpy(layer(x))
    kernel, bias = (np.asarray(to_numpy(w)) for w in layer.projection.weights)
    padded = np.pad(x[0], ((1, 1), (1, 1), (0, 0)))
    for row in range(3):
        for column in range(3):
            patch = padded[2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            assert_close(
                found[0, row, column], np.einsum("rci,rcio->o", patch, kernel) + bias, 1e-5
            )


def test_reduction_is_attention_to_projected_patches():
    layer = SpatialReductionAttention(3, 2)
    x = GRID[:, :6]
    found = layer(x)
    attention = MultiHeadAttention(3)
    patches = layer.norm(layer.reduce.projection(patchify(x, 2)))
    tokens = x.reshape(2, -1, 15)
    attention(tokens, patches)
    attention.set_weights(layer.get_weights()[:8])
    assert_close(ops.reshape(found, tokens.shape), attention(tokens, patches), 1e-5)


def test_a_grid_smaller_than_a_patch_is_padded():
    assert tuple(SpatialReductionAttention(3, 4)(GRID[:, :2, :3]).shape) == (2, 2, 3, 15)


def test_the_grid_without_its_positions_would_be_a_set():
    """Neighbours matter to the feed-forward network: it is where PVT v2 has its positions."""
    layer = ConvolutionalFeedForward(13, "gelu")
    found = to_numpy(layer(GRID))
    mirrored = to_numpy(layer(GRID[:, ::-1]))[:, ::-1]
    assert np.abs(found - mirrored).max() > 1e-3


def test_tables_of_offsets_are_resized_for_another_grid():
    layer = PoolingAttention(3, (8, 8), 1, 2)
    layer(np.ones((1, 8, 8, 15), "float32"))
    assert tuple(layer(np.ones((1, 12, 10, 15), "float32")).shape) == (1, 12, 10, 15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OverlappingPatchEmbedding(4, 4), "`kernel_size` must be an odd"),
        (lambda: OverlappingPatchEmbedding(0), "`hidden_dim` must be a positive"),
        (lambda: SpatialReductionAttention(3, 0), "`reduction` must be"),
        (lambda: SpatialReductionAttention(3)(GRID[:, 0]), "must have shape"),
        (lambda: PoolingAttention(3, (7, 6), 0), "`query_stride` must be"),
        (lambda: PoolingBlock(3, 8, 10, (7, 6))(GRID), "must divide `hidden_dim`"),
        (lambda: PoolingBlock(3, 8, 10, (7, 6), norm_first=False), "`norm_first` True"),
        (lambda: PoolingBlock(3, 8, 9, (7, 6), mixer=keras.layers.Identity()), "`mixer` must"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
