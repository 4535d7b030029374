"""Claims about cutting images, signals and volumes into patches."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.layers import (
    ConvolutionalStem,
    PatchEmbedding,
    ShiftedPatchEmbedding,
    patchify,
    unpatchify,
)
from tests.contract import assert_close, check_layer, to_numpy

RNG = np.random.default_rng(0)
WIDTH = 11
# One input a rank: patches of different sides, a number of them of its own on each axis.
CASES = {
    "signal": ((3,), (2, 15, 2)),
    "image": ((2, 3), (2, 10, 21, 3)),
    "volume": ((2, 3, 5), (2, 4, 9, 5, 2)),
}
INPUTS = {name: RNG.normal(size=shape).astype("float32") for name, (_, shape) in CASES.items()}
EACH_CASE = pytest.mark.parametrize("case", CASES)


def cut_by_hand(x, sizes):
    """Patches in the order of the paper, one slice after another."""
    grid = [extent // size for extent, size in zip(x.shape[1:-1], sizes, strict=True)]
    patches = []
    for position in itertools.product(*map(range, grid)):
        window = tuple(slice(i * s, (i + 1) * s) for i, s in zip(position, sizes, strict=True))
        patches.append(x[(slice(None), *window)].reshape(len(x), -1))
    return np.stack(patches, axis=1)


@EACH_CASE
def test_contract(case):
    sizes, _ = CASES[case]
    check_layer(lambda **kwargs: PatchEmbedding(sizes, WIDTH, **kwargs), (INPUTS[case],))


@pytest.mark.parametrize("layer", [ShiftedPatchEmbedding, ConvolutionalStem])
def test_contract_of_other_stems(layer):
    images = RNG.normal(size=(2, 8, 12, 3)).astype("float32")
    check_layer(lambda **kwargs: layer(4, 10, **kwargs), (images,))


@EACH_CASE
def test_patches_are_cut_row_by_row(case):
    sizes, _ = CASES[case]
    expected = cut_by_hand(INPUTS[case], sizes)
    assert_close(patchify(INPUTS[case], sizes), expected, 0)


@EACH_CASE
def test_an_embedding_is_a_convolution_with_its_stride(case):
    sizes, shape = CASES[case]
    kind = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}[len(sizes)]
    convolution = kind(WIDTH, sizes, strides=sizes)
    expected = to_numpy(convolution(INPUTS[case]))
    layer = PatchEmbedding(sizes, WIDTH)
    layer.build(shape)
    kernel, bias = convolution.get_weights()
    layer.set_weights([kernel.reshape(-1, WIDTH), bias])
    assert_close(layer(INPUTS[case]), expected.reshape(2, -1, WIDTH), 1e-5)
    assert_close(layer.filters(), kernel, 0)
    bare = PatchEmbedding(sizes, WIDTH, use_bias=False)
    bare.build(shape)
    bare.set_weights(layer.get_weights()[:1])
    assert_close(bare(INPUTS[case]) + bias, to_numpy(layer(INPUTS[case])), 1e-5)


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    size=st.integers(1, 3),
    channels=st.integers(1, 3),
)
def test_unpatchify_undoes_patchify(rows, columns, size, channels):
    x = RNG.normal(size=(2, rows * size, columns * size, channels)).astype("float32")
    assert_close(unpatchify(patchify(x, size), size, (rows, columns)), x, 0)


def test_shifted_patches_see_half_a_patch_further_and_no_more():
    layer = ShiftedPatchEmbedding(4, WIDTH)
    x = RNG.normal(size=(1, 12, 12, 1)).astype("float32")
    before = to_numpy(layer(x))[0].reshape(3, 3, WIDTH)
    for position, changes in (((6, 6), True), ((2, 2), True), ((1, 6), False), ((6, 10), False)):
        changed = x.copy()
        changed[0, position[0], position[1]] += 5.0
        after = to_numpy(layer(changed))[0].reshape(3, 3, WIDTH)
        assert np.allclose(after[1, 1], before[1, 1], atol=1e-6) != changes


def test_a_convolutional_stem_halves_until_a_position_is_a_patch():
    layer = ConvolutionalStem(8, 24)
    layer.build((None, 16, 24, 3))
    assert [tuple(c.kernel.shape) for c in layer.convolutions] == [
        (3, 3, 3, 6),
        (3, 3, 6, 12),
        (3, 3, 12, 24),
    ]
    assert tuple(layer(np.zeros((1, 16, 24, 3), "float32")).shape) == (1, 6, 24)


def test_the_extents_may_be_unknown():
    x = keras.Input((None, None, 3))
    model = keras.Model(x, PatchEmbedding(2, WIDTH)(x))
    for shape in ((1, 4, 6, 3), (2, 8, 2, 3)):
        images = RNG.normal(size=shape).astype("float32")
        assert model(images).shape == (shape[0], shape[1] * shape[2] // 4, WIDTH)


def test_errors_say_what_was_expected_and_what_was_received():
    layer = PatchEmbedding(4, WIDTH, name="cut")
    with pytest.raises(ValueError, match=r"'cut': each of height, width .* not a multiple"):
        layer(np.zeros((1, 6, 8, 3), "float32"))
    with pytest.raises(ValueError, match=r"'cut': .*\(1, 3, 8, 3\), smaller than a patch"):
        layer(np.zeros((1, 3, 8, 3), "float32"))
    with pytest.raises(ValueError, match="'cut': the input must have 1, 2 or 3 axes.*Received: 0"):
        PatchEmbedding(4, WIDTH, name="cut")(np.zeros((3, 8), "float32"))
    with pytest.raises(ValueError, match=r"'cut': `patch_size` must be .* 2 of them .*\(2, 2, 2\)"):
        PatchEmbedding((2, 2, 2), WIDTH, name="cut")(np.zeros((1, 4, 4, 1), "float32"))
    with pytest.raises(ValueError, match="PatchEmbedding: `hidden_dim` must be .*0"):
        PatchEmbedding(4, 0)
    built = PatchEmbedding(4, WIDTH, name="cut")
    built.build((None, 8, 8, 3))
    with pytest.raises(ValueError, match="'cut': `x` must have 3 channels"):
        built(np.zeros((1, 8, 8, 1), "float32"))
    with pytest.raises(ValueError, match=r"unpatchify: `patches` must have shape .*\(1, 5, 4\)"):
        unpatchify(np.zeros((1, 5, 4)), 2, (2, 3))
    with pytest.raises(ValueError, match="ConvolutionalStem: `patch_size` must be a power of two"):
        ConvolutionalStem(6, WIDTH)
    with pytest.raises(ValueError, match="`patch_size` must be even.*patch_size=3"):
        ShiftedPatchEmbedding(3, WIDTH)(np.zeros((1, 6, 6, 1), "float32"))
