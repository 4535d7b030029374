"""Claims about positions on a grid of patches."""

import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    GridPositionEmbedding,
    SinusoidalGrid,
    resize_positions,
    sinusoidal_grid,
)
from tests.contract import assert_close, check_layer, to_numpy
from tests.oracles import sinusoids

RNG = np.random.default_rng(0)
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "vit.npz")
GRID, WIDTH = (3, 5), 12
TOKENS = RNG.normal(size=(2, 16, WIDTH)).astype("float32")


@pytest.mark.parametrize("layer", [GridPositionEmbedding, SinusoidalGrid])
def test_contract(layer):
    check_layer(lambda **kwargs: layer(GRID, prefix_tokens=1, **kwargs), (TOKENS,))


def test_contract_of_a_image_of_features():
    x = RNG.normal(size=(2, 3, 5, 8)).astype("float32")
    check_layer(lambda **kwargs: SinusoidalGrid(**kwargs), (x,))


@pytest.mark.parametrize("new", [(10, 9), (3, 4), (7, 11)])
def test_resizing_is_that_of_pytorch(new):
    table = GOLDEN["grid/7x6"].reshape(42, 5)
    expected = GOLDEN[f"grid/{new[0]}x{new[1]}"].reshape(-1, 5)
    assert_close(resize_positions(table, (7, 6), new), expected, 1e-5)


@pytest.mark.parametrize("new", [(10, 9), (3, 4), (7, 11), (7, 6)])
def test_resizing_without_antialiasing_is_that_of_pytorch(new):
    torch = pytest.importorskip("torch")
    table = RNG.normal(size=(1 + 42, 5)).astype("float32")
    grid = torch.tensor(table[1:].reshape(1, 7, 6, 5)).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(grid, size=new, mode="bicubic", align_corners=False)
    expected = np.concatenate([table[:1], resized[0].permute(1, 2, 0).reshape(-1, 5).numpy()])
    assert_close(resize_positions(table, (7, 6), new, antialias=False), expected, 1e-5)
    sides = [keras.ops.convert_to_tensor(side, "int32") for side in new]  # as a call knows them
    assert_close(resize_positions(table, (7, 6), sides, antialias=False), expected, 1e-5)


def test_resizing_is_that_of_keras():
    table = RNG.normal(size=(8, 6, 5)).astype("float32")
    expected = keras.ops.image.resize(
        table[None], (5, 7), interpolation="bicubic", antialias=True, data_format="channels_last"
    )
    resized = resize_positions(table.reshape(48, 5), (8, 6), (5, 7))
    assert_close(resized, to_numpy(expected).reshape(35, 5), 1e-5)


def test_resizing_leaves_the_class_token_and_a_constant_alone():
    table = np.concatenate([RNG.normal(size=(1, WIDTH)), np.full((15, WIDTH), 3.0)])
    resized = to_numpy(resize_positions(table, GRID, (4, 9)))
    np.testing.assert_allclose(resized[0], table[0], atol=1e-6)
    np.testing.assert_allclose(resized[1:], 3.0, atol=1e-5)
    assert_close(resize_positions(table, GRID, GRID), np.float32(table), 0)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_weights_load_into_another_grid(suffix, tmp_path):
    def model(grid):
        x = keras.Input((None, WIDTH))
        return keras.Model(x, GridPositionEmbedding(grid, 1, name="positions")(x))

    small, large = model(GRID), model((4, 9))
    if suffix == ".keras":
        small.save(tmp_path / "small.keras")
        loaded = keras.models.load_model(tmp_path / "small.keras")
        assert_close(loaded.get_weights()[0], small.get_weights()[0], 0)
    else:
        small.save_weights(tmp_path / "small.weights.h5")
        large.load_weights(tmp_path / "small.weights.h5")
        expected = resize_positions(small.get_weights()[0], GRID, (4, 9))
        assert_close(large.get_weights()[0], to_numpy(expected), 1e-6)


def test_a_call_with_another_grid_uses_resized_positions():
    layer = GridPositionEmbedding(GRID, 1)
    layer(TOKENS)
    table = to_numpy(resize_positions(layer.table, GRID, (4, 9)))
    assert_close(layer(np.zeros((1, 37, WIDTH), "float32"), grid=(4, 9)), table[None], 1e-6)


def test_rows_and_columns_share_the_features():
    table = to_numpy(sinusoidal_grid(GRID, WIDTH)).reshape(*GRID, WIDTH)
    rows, columns = (sinusoids(np.arange(side), WIDTH // 2) for side in GRID)
    half = WIDTH // 2
    np.testing.assert_allclose(table[..., :half], np.tile(rows[:, None], (1, 5, 1)), atol=1e-6)
    np.testing.assert_allclose(table[..., half:], np.tile(columns, (3, 1, 1)), atol=1e-6)


def test_sinusoids_stay_exact_in_bfloat16_and_leave_the_class_token_alone():
    layer = SinusoidalGrid((61, 67), prefix_tokens=1, dtype="bfloat16")
    table = to_numpy(layer(np.zeros((1, 61 * 67 + 1, WIDTH), "float32")))[0]
    assert not table[0].any()
    expected = to_numpy(sinusoidal_grid((61, 67), WIDTH))
    np.testing.assert_allclose(table[1:], expected, atol=4e-3)


def test_a_image_gets_what_its_tokens_get():
    x = RNG.normal(size=(2, *GRID, WIDTH)).astype("float32")
    flat = SinusoidalGrid(GRID)(x.reshape(2, 15, WIDTH))
    assert_close(SinusoidalGrid()(x), to_numpy(flat).reshape(x.shape), 0)


def test_an_implicit_mask_is_carried_on():
    ids = np.array([[4, 7, 0, 0, 0, 0]])
    y = GridPositionEmbedding((2, 3))(keras.layers.Embedding(13, WIDTH, mask_zero=True)(ids))
    np.testing.assert_array_equal(ops.convert_to_numpy(y._keras_mask), ids != 0)


def test_errors_say_what_was_expected_and_what_was_received():
    layer = GridPositionEmbedding(GRID, 1, name="where")
    with pytest.raises(ValueError, match=r"'where': `x` must have 16 tokens .*\(2, 15, 12\)"):
        layer(TOKENS[:, 1:])
    with pytest.raises(ValueError, match="`grid` must hold positive integers.*grid=\\(0, 5\\)"):
        GridPositionEmbedding((0, 5))
    with pytest.raises(ValueError, match="resize_positions: `table` must have a row .*\\(9, 9"):
        resize_positions(np.zeros((16, 4)), (9, 9), (3, 3))
    with pytest.raises(ValueError, match="`hidden_dim` must be a multiple of 4.*Received: 10"):
        sinusoidal_grid(GRID, 10)
    with pytest.raises(ValueError, match="'where': `x` must have 16 tokens .*prefix_tokens=1"):
        SinusoidalGrid(GRID, 1, name="where")(TOKENS[:, 1:])
    with pytest.raises(ValueError, match=r"'where': `x` must have shape .*\(2, 12\)"):
        SinusoidalGrid(GRID, name="where")(TOKENS[:, 0])
    with pytest.raises(ValueError, match=r"'where': the table .* shape \(6, 12\).*\(5, 12\)"):
        layer.assign_resized(np.zeros((5, WIDTH)), (1, 5))
