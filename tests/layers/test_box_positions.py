"""Claims about positions of positions in padded images, and of boxes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import relative_coordinates, sinusoidal_coordinates
from tests.contract import assert_close, dtype_of, to_numpy
from tests.oracles import sinusoids

SIDES = st.tuples(st.integers(1, 5), st.integers(1, 7))


def frame(*sizes):
    """Masks of images of these sizes in the upper left corner of 5 x 7 positions."""
    mask = np.zeros((len(sizes), 5, 7), bool)
    for one, (rows, columns) in zip(mask, sizes, strict=True):
        one[:rows, :columns] = True
    return mask


@given(sizes=st.lists(SIDES, min_size=1, max_size=3))
def test_positions_are_shares_of_their_own_image(sizes):
    found = to_numpy(relative_coordinates(frame(*sizes)))
    for positions, (rows, columns) in zip(found, sizes, strict=True):
        down = np.broadcast_to(np.arange(1, rows + 1)[:, None] / rows, (rows, columns))
        right = np.broadcast_to(np.arange(1, columns + 1) / columns, (rows, columns))
        expected = np.stack([down, right], axis=-1).astype("float32")
        assert_close(positions[:rows, :columns], expected, 1e-6)
    assert np.isfinite(found).all()


@given(size=SIDES)
def test_padding_does_not_move_a_position(size):
    rows, columns = size
    padded = to_numpy(relative_coordinates(frame(size)))[:, :rows, :columns]
    assert_close(relative_coordinates(np.ones((1, rows, columns), bool)), padded, 0)


def test_a_image_of_nothing_but_padding_has_positions_too():
    assert np.isfinite(to_numpy(relative_coordinates(np.zeros((2, 3, 5), bool)))).all()


@pytest.mark.parametrize("wavelength", [20.0, 10000.0])
@pytest.mark.parametrize(("number", "width"), [(2, 20), (4, 24), (1, 6), (3, 30)])
def test_coordinates_are_encoded_side_by_side(number, width, wavelength):
    coordinates = np.random.default_rng(0).random((3, 5, number)).astype("float32")
    expected = np.concatenate(
        [
            sinusoids(2 * np.pi * np.float64(coordinates[..., i]), width // number, wavelength)
            for i in range(number)
        ],
        axis=-1,
    )
    found = sinusoidal_coordinates(coordinates, width, wavelength)
    assert_close(found, np.float32(expected), 1e-5)
    assert dtype_of(sinusoidal_coordinates(ops.cast(coordinates, "bfloat16"), width)) == "float32"


def test_a_box_is_encoded_as_a_position_is_and_its_size_after_it():
    boxes = np.random.default_rng(1).random((3, 5, 4)).astype("float32")
    found = to_numpy(sinusoidal_coordinates(boxes, 16))
    assert_close(found[..., :8], sinusoidal_coordinates(boxes[..., :2], 8), 1e-6)
    assert_close(found[..., 8:], sinusoidal_coordinates(boxes[..., 2:], 8), 1e-6)


def test_a_width_that_cannot_be_shared_out_is_refused():
    with pytest.raises(ValueError, match="`hidden_dim` must be a multiple of 8.*4 coord.*: 12"):
        sinusoidal_coordinates(np.zeros((3, 4)), 12)
