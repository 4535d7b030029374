"""Claims about the masks: True always means keep."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
    segment_positions,
)

# One row: the lengths of the sequences packed into it, and how much padding follows.
rows = st.tuples(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3))


def packed(lengths, padding):
    """Segment ids `(1, length)` of one row, and the position of each token in its sequence."""
    segments = [n for n, length in enumerate(lengths, 1) for _ in range(length)]
    positions = [position for length in lengths for position in range(length)]
    return np.array([segments + [0] * padding], "int32"), positions


def as_array(mask):
    mask = ops.convert_to_numpy(mask)
    assert mask.dtype == bool
    return mask


def test_padding_is_the_zeros_or_the_id_that_is_named():
    ids = np.array([[5, 0, 7], [3, 3, 0]])
    assert as_array(padding_mask(ids)).tolist() == [[True, False, True], [True, True, False]]
    assert as_array(padding_mask(ids, ignore_id=3)).tolist() == [[True] * 3, [False, False, True]]


@given(queries=st.integers(1, 7), keys=st.integers(1, 11), start=st.integers(0, 5))
def test_a_query_sees_itself_and_what_stands_before_it(queries, keys, start):
    expected = np.tril(np.ones((queries, keys), bool), k=start)
    np.testing.assert_array_equal(as_array(causal_mask(queries, keys, start)), expected)
    tensor = ops.convert_to_tensor(start, "int32")
    np.testing.assert_array_equal(as_array(causal_mask(queries, keys, tensor)), expected)


def test_a_causal_mask_is_square_unless_told_otherwise():
    np.testing.assert_array_equal(as_array(causal_mask(5)), np.tril(np.ones((5, 5), bool)))


@given(row=rows)
def test_packed_sequences_do_not_see_each_other(row):
    segments, _ = packed(*row)
    same = as_array(segment_mask(ops.convert_to_tensor(segments)))[0]
    for query, key in np.ndindex(same.shape):
        expected = segments[0, query] == segments[0, key] and segments[0, key] != 0
        assert same[query, key] == expected


def test_queries_and_keys_may_be_segmented_differently():
    mask = segment_mask(ops.array([[1, 2, 2, 0]]), ops.array([[1, 1, 2, 0, 0]]))
    expected = [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert as_array(mask)[0].astype(int).tolist() == expected


@given(row=rows)
def test_positions_start_anew_in_every_packed_sequence(row):
    segments, expected = packed(*row)
    received = segment_positions(segment_mask(ops.convert_to_tensor(segments)))
    received = ops.convert_to_numpy(received)
    assert received.dtype == "int32"
    assert received[0, : len(expected)].tolist() == expected


@given(seed=st.integers(0, 99))
def test_combined_masks_keep_what_all_of_them_keep(seed):
    rng = np.random.default_rng(seed)
    one, other = rng.random((3, 5, 7)) < 0.5, rng.random((1, 7)) < 0.5
    np.testing.assert_array_equal(as_array(combine_masks(one, None, other)), one & other)


def test_no_mask_at_all_stays_none():
    assert combine_masks() is None
    assert combine_masks(None, None) is None


def test_integers_become_a_mask():
    assert as_array(combine_masks(np.array([0, 1, 2]))).tolist() == [False, True, True]
