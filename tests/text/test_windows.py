"""Claims about sliding windows: every token once, with context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.text import sliding_windows


@given(
    sizes=st.lists(st.integers(0, 40), max_size=5), length=st.integers(1, 13), share=st.floats(0, 1)
)
def test_every_token_is_predicted_once_with_its_context(sizes, length, share):
    stride = max(1, round(share * length))
    ends = np.cumsum(sizes)
    documents = [np.arange(end - size, end) + 1 for end, size in zip(ends, sizes, strict=True)]
    ids, labels = sliding_windows(documents, length, stride)
    assert ids.shape == labels.shape and ids.shape[1] == length
    expected = [token for document in documents for token in document[1:]]
    assert sorted(labels[labels != 0].tolist()) == sorted(expected)
    first = {int(document[0]) for document in documents if len(document)}
    for row, column in np.argwhere(labels):
        assert labels[row, column] == ids[row, column] + 1  # documents count up
        begins = int(ids[row, 0]) in first
        assert begins or column >= length - stride


def test_windows_that_do_not_overlap_hold_every_token_once():
    ids, labels = sliding_windows([np.arange(1, 12)], length=4, stride=4)
    assert ids.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]
    assert labels.tolist() == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 0, 0]]


@pytest.mark.parametrize("stride", [0, 5])
def test_a_stride_that_does_not_fit_is_refused(stride):
    with pytest.raises(ValueError, match=f"between 1 and `length`=4. Received: {stride}"):
        sliding_windows([[1, 2]], 4, stride)
