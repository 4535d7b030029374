"""Claims about the sinusoidal encoding and the learned table of positions."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import PositionalEncoding, PositionEmbedding, sinusoidal_encoding
from tests.contract import assert_close, check_layer, to_numpy
from tests.oracles import sinusoids

BATCH, LENGTH, WIDTH, MAX_LENGTH = 3, 5, 7, 11
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
POSITIONS = RNG.integers(0, MAX_LENGTH, (BATCH, LENGTH)).astype("int32")


@pytest.mark.parametrize(
    "make",
    [
        PositionalEncoding,
        lambda **kwargs: PositionalEncoding(
            max_wavelength=50.0, combine="concat", layout="halves", **kwargs
        ),
        lambda **kwargs: PositionEmbedding(MAX_LENGTH, **kwargs),
        lambda **kwargs: PositionEmbedding(LENGTH, initializer="glorot_normal", **kwargs),
    ],
    ids=["added", "concatenated", "learned", "learned, another initialiser"],
)
def test_contract(make):
    check_layer(make, (X,))


@pytest.mark.parametrize("max_wavelength", [10000.0, 100.0])
@pytest.mark.parametrize("width", [1, 2, 7, 62])
def test_the_table_has_the_closed_form_of_the_paper(width, max_wavelength):
    table = sinusoidal_encoding(ops.arange(127), width, max_wavelength)
    expected = sinusoids(np.arange(127), width, max_wavelength)
    assert_close(table, expected, 5e-5)
    halves = sinusoidal_encoding(ops.arange(127), width, max_wavelength, "halves")
    expected = np.concatenate([expected[:, 0::2], expected[:, 1::2]], axis=1)
    assert_close(halves, expected, 5e-5)


@given(position=st.integers(0, 100), offset=st.integers(-50, 50))
def test_a_shift_is_a_linear_map_that_does_not_depend_on_the_position(position, offset):
    width = 14
    angles = offset / 10000 ** (np.arange(0, width, 2) / width)
    shift = np.zeros((width, width))  # rotates each pair (sine, cosine)
    for pair, angle in enumerate(angles):
        rotation = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        shift[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = rotation
    before, after = to_numpy(sinusoidal_encoding(np.array([position, position + offset]), width))
    np.testing.assert_allclose(shift @ before, after, atol=5e-5)


@given(distance=st.integers(0, 60), start=st.integers(0, 60))
def test_similarity_depends_on_the_distance_alone(distance, start):
    table = to_numpy(sinusoidal_encoding(np.array([0, distance, start, start + distance]), 14))
    assert table[0] @ table[1] == pytest.approx(table[2] @ table[3], abs=2e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_positions_up_to_5000_stay_exact_in_bfloat16(dtype):
    x = np.zeros((1, 5003, 62), "float32")
    table = PositionalEncoding(dtype=dtype)(x)
    assert_close(table, sinusoids(np.arange(5003), 62)[None], 0.01)


def test_the_table_is_float32_whatever_the_positions_are():
    for dtype in ("int32", "float32", "bfloat16"):
        table = sinusoidal_encoding(ops.arange(5, dtype=dtype), 6)
        assert keras.backend.standardize_dtype(table.dtype) == "float32"


def test_the_encoding_is_added_or_concatenated():
    expected = np.broadcast_to(sinusoids(np.arange(LENGTH), WIDTH), X.shape)
    assert_close(PositionalEncoding()(X), X + expected, 2e-6)
    assert_close(PositionalEncoding(combine="concat")(X), np.concatenate([X, expected], -1), 2e-6)


def test_the_learned_table_is_added():
    layer = PositionEmbedding(MAX_LENGTH)
    layer.build(X.shape)
    assert_close(layer(X), X + layer.get_weights()[0][:LENGTH], 1e-6)


LAYERS = pytest.mark.parametrize(
    "make", [PositionalEncoding, lambda: PositionEmbedding(MAX_LENGTH)], ids=["sinusoidal", "table"]
)


@LAYERS
@given(start=st.integers(0, LENGTH))
def test_a_sequence_may_be_given_in_pieces(make, start):
    layer = make()
    whole = to_numpy(layer(X))
    tensor = ops.convert_to_tensor(start, "int32")
    for position in (start, tensor) if start < LENGTH else ():
        assert_close(layer(X[:, start:], start=position), whole[:, start:], 1e-6)


@LAYERS
def test_every_row_may_have_positions_of_its_own(make):
    layer, long = make(), np.zeros((1, MAX_LENGTH, WIDTH), "float32")
    table = to_numpy(layer(long))[0]
    assert_close(layer(X, positions=POSITIONS), X + table[POSITIONS], 1e-6)


@LAYERS
def test_the_length_may_be_unknown(make):
    layer, x = make(), keras.Input((None, WIDTH))
    model = keras.Model(x, layer(x))
    for length in (2, LENGTH):
        assert_close(model(X[:, :length]), layer(X[:, :length]), 0)


@LAYERS
def test_an_implicit_mask_is_carried_on(make):
    ids = np.array([[4, 7, 0, 0, 0]])
    y = make()(keras.layers.Embedding(13, WIDTH, mask_zero=True)(ids))
    np.testing.assert_array_equal(ops.convert_to_numpy(y._keras_mask), ids != 0)


def test_errors_name_the_layer_the_argument_and_what_was_received():
    with pytest.raises(ValueError, match="PositionalEncoding: `combine` must be.*'multiply'"):
        PositionalEncoding(combine="multiply")
    with pytest.raises(ValueError, match="PositionalEncoding: `layout` must be.*'quarters'"):
        PositionalEncoding(layout="quarters")
    for layer in (PositionalEncoding(name="where"), PositionEmbedding(MAX_LENGTH, name="where")):
        with pytest.raises(ValueError, match=r"'where': `x` must have shape .*\(3, 7\)"):
            layer(X[:, 0])
    with pytest.raises(ValueError, match="PositionEmbedding: `max_length` must be positive.*: 0"):
        PositionEmbedding(0)


def test_a_sequence_longer_than_the_table_is_refused():
    layer = PositionEmbedding(LENGTH, name="where")
    with pytest.raises(ValueError, match="'where': `x` must end at .*max_length=5"):
        layer(np.zeros((1, LENGTH + 1, WIDTH), "float32"))
    with pytest.raises(ValueError, match="'where': `x` must end at .*max_length=5.*starts at"):
        layer(X, start=2)
