"""Claims about packed documents and sliding windows: every token once, and few empty positions."""

import collections
import gzip
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import SentencePieceTokenizer, packed_documents, sliding_windows

LENGTH = 13
PLAYS = pathlib.Path(__file__).parents[2] / "recipes/data/shakespeare.txt.gz"
lengths = st.lists(st.integers(0, 61), max_size=40)


def documents_of(sizes):
    """Documents whose ids are all different, so that each token can be traced."""
    ends = np.cumsum(sizes)
    return [list(range(1 + end - size, 1 + end)) for end, size in zip(ends, sizes, strict=True)]


def as_dataset(documents, batch_size=None):
    if not documents:
        spec = tf.TensorSpec((None,), tf.int32)
        return tf.data.Dataset.from_generator(lambda: iter(()), output_signature=spec)
    ids = tf.ragged.constant(documents, dtype=tf.int32, ragged_rank=1)
    dataset = tf.data.Dataset.from_tensor_slices(ids)
    return dataset.ragged_batch(batch_size) if batch_size else dataset.map(tf.identity)


def pieces_in_rows(batches):
    """(ids, labels) of each piece, read back out of the rows through their segments."""
    for inputs, labels in batches:
        ids, segments, labels = (x.numpy() for x in (inputs["ids"], inputs["segments"], labels))
        for row in range(len(ids)):
            for segment in range(1, segments[row].max() + 1):
                inside = segments[row] == segment
                yield ids[row][inside].tolist(), labels[row][inside].tolist()


def real_share(batches):
    segments = np.concatenate([inputs["segments"] for inputs, _ in batches])
    return np.count_nonzero(segments) / segments.size


@settings(max_examples=25, deadline=None)
@given(
    sizes=lengths,
    rows=st.integers(1, 5),
    seed=st.sampled_from([None, 0, 3]),
    batch_size=st.sampled_from([None, 7, 100]),
)
def test_every_token_is_predicted_once_an_epoch_and_stands_in_order(sizes, rows, seed, batch_size):
    documents = documents_of(sizes)
    dataset = packed_documents(as_dataset(documents, batch_size), LENGTH, rows, seed)
    wanted = collections.Counter(
        pair for ids in documents for pair in zip(ids, ids[1:], strict=False)
    )
    for _ in range(2):  # in every epoch
        batches = list(dataset)
        found = list(pieces_in_rows(batches))
        pairs = [pair for ids, labels in found for pair in zip(ids, labels, strict=True)]
        assert collections.Counter(pairs) == wanted
        assert all(ids[1:] == labels[:-1] for ids, labels in found)
        assert all(labels.shape == (rows, LENGTH) for _, labels in batches)


@settings(max_examples=15, deadline=None)
@given(sizes=lengths, seed=st.sampled_from([None, 3]))
def test_without_shift_every_token_stands_once_and_in_order(sizes, seed):
    documents = documents_of(sizes)
    batches = packed_documents(as_dataset(documents), LENGTH, 2, seed, shift=False)
    found = [ids for ids, _ in pieces_in_rows((inputs, inputs["ids"]) for inputs in batches)]
    assert sorted(sum(found, [])) == sorted(sum(documents, []))
    assert all(ids == list(range(ids[0], ids[0] + len(ids))) for ids in found)


@settings(max_examples=15, deadline=None)
@given(sizes=lengths, rows=st.integers(1, 5))
def test_segments_are_consecutive_blocks_and_zero_exactly_at_padding(sizes, rows):
    for inputs, labels in packed_documents(as_dataset(documents_of(sizes)), LENGTH, rows):
        ids, segments = inputs["ids"].numpy(), inputs["segments"].numpy()
        np.testing.assert_array_equal(ids == 0, segments == 0)
        np.testing.assert_array_equal(labels.numpy() == 0, segments == 0)
        for row in segments:
            real = row[row > 0]
            assert list(real) == sorted(real)  # the pieces stand one after another
            assert set(real) == set(range(1, len(set(real)) + 1))
            assert not row[len(real) :].any()  # and padding comes last


def test_what_fits_into_a_row_is_never_cut():
    documents = documents_of([LENGTH + 1, 2, 9, LENGTH + 1, 5] * 4)
    batches = packed_documents(as_dataset(documents), LENGTH, 3)
    found = [[*ids, labels[-1]] for ids, labels in pieces_in_rows(batches)]
    assert sorted(found) == documents


def test_long_documents_are_cut_elsewhere_in_each_epoch():
    dataset = packed_documents(as_dataset(documents_of([200])), LENGTH, 4)
    firsts = []
    for _ in range(40):
        sizes = {ids[0]: len(ids) for ids, _ in pieces_in_rows(dataset)}
        first = sizes.pop(1)
        assert all(size == LENGTH for _, size in sorted(sizes.items())[:-1])
        firsts.append(first)
    assert min(firsts) >= 1 and max(firsts) <= LENGTH
    assert len(set(firsts)) > 6  # of 13; 40 draws give fewer than 1 time in a million


def test_without_a_seed_documents_are_cut_at_multiples_and_nothing_is_drawn():
    dataset = packed_documents(as_dataset(documents_of([3 * LENGTH, 4])), LENGTH, 2, seed=None)
    epochs = [
        [(inputs["ids"].numpy(), labels.numpy()) for inputs, labels in dataset] for _ in range(2)
    ]
    np.testing.assert_equal(epochs[0], epochs[1])
    starts = sorted(ids[0] for ids, _ in pieces_in_rows(dataset))
    assert starts == [1, 1 + LENGTH, 1 + 2 * LENGTH, 1 + 3 * LENGTH]


def test_rows_follow_from_the_seed_and_the_epoch():
    def epochs(seed):
        batches = packed_documents(as_dataset(documents_of([LENGTH + 1] * 40)), LENGTH, 5, seed)
        return [[labels.numpy().tolist() for _, labels in batches] for _ in range(2)]

    first, second = epochs(3)
    assert first != second
    assert epochs(3) == [first, second]
    assert epochs(4)[0] != first


def test_shapes_are_static():
    documents = as_dataset(documents_of([5]))
    inputs, labels = packed_documents(documents, LENGTH, rows=5).element_spec
    assert labels.shape == inputs["ids"].shape == inputs["segments"].shape == (5, LENGTH)
    assert {spec.dtype for spec in tf.nest.flatten((inputs, labels))} == {tf.int32}
    alone = packed_documents(documents, LENGTH, rows=5, shift=False).element_spec
    assert sorted(alone) == ["ids", "segments"]
    assert {spec.shape for spec in alone.values()} == {tf.TensorShape((5, LENGTH))}


@pytest.mark.parametrize("whole", [True, False], ids=["whole works", "speeches"])
def test_rows_of_real_text_are_full(whole):
    text = gzip.decompress(PLAYS.read_bytes()).decode("utf-8").replace("\r\n", "\n")
    works = re.split(r"(?=^\S.*\n+by William Shakespeare$)", text, flags=re.MULTILINE)[1:5]
    texts = works if whole else [part for work in works for part in work.split("\n\n")][:4000]
    tokenizer = SentencePieceTokenizer.train(works[1].split("\n"), 1000, "bpe")
    ids = tokenizer.tokenize(texts, start=True, end=True)
    batches = list(packed_documents(tf.data.Dataset.from_tensors(ids), 256, rows=8))
    assert real_share(batches) > 0.98


def test_documents_of_one_length_fill_rows_as_far_as_it_divides_them():
    batches = packed_documents(as_dataset(documents_of([61] * 64)), 256, rows=16)
    assert real_share(batches) == 4 * 60 / 256


@pytest.mark.parametrize("length, rows", [(0, 2), (5, 0)])
def test_rows_without_a_position_are_refused(length, rows):
    with pytest.raises(ValueError, match=rf"must be positive. Received: length={length}"):
        packed_documents(as_dataset(documents_of([3])), length, rows)


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
