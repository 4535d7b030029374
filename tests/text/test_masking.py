"""Claims about masking and hidden words: which tokens are chosen, and what draws follow from."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import masked, word_dropout

VOCAB, LENGTH, MASK = 97, 23, 4
SPECIAL = range(5)
GENERATOR = np.random.default_rng(7)
STARTS = GENERATOR.random(VOCAB) < 0.6


def rows_of(sizes, seed=0):
    """A row for each list of segment sizes: random ids between `[CLS]` and `[SEP]`, padding."""
    generator = np.random.default_rng(seed)
    ids = np.zeros((len(sizes), LENGTH), "int32")
    segments = np.zeros_like(ids)
    for row, parts in enumerate(sizes):
        start = 0
        for number, size in enumerate(parts, 1):
            end = min(start + size, LENGTH)
            ids[row, start:end] = generator.integers(5, VOCAB, end - start)
            ids[row, start : start + 1], ids[row, end - 1 : end] = 2, 3
            segments[row, start:end] = number
            start = end
    return {"ids": ids, "segments": segments}


def batches_of(rows, count=1, **options):
    dataset = tf.data.Dataset.from_tensors(rows).repeat(count)
    return masked(dataset, MASK, VOCAB, SPECIAL, **options)


def read(batches):
    """Ids, chosen (row, column) and their labels of all batches, one under another."""
    ids, positions, labels = [], [], []
    for inputs, wanted in batches:
        ids.append(inputs["ids"].numpy())
        positions.append(inputs["masked_positions"].numpy())
        labels.append(wanted.numpy())
    ids, positions, labels = map(np.concatenate, (ids, positions, labels))
    row, position = np.nonzero(labels)
    return ids, (row, positions[row, position]), labels[row, position]


def words_of(ids, segments):
    """Lists of the columns of each word of a row."""
    words, before = [], None
    for column, (token, segment) in enumerate(zip(ids, segments, strict=True)):
        if token < 5 or segment == 0:
            before = None
        elif before == segment and not STARTS[token]:
            words[-1].append(column)
        else:
            words.append([column])
            before = segment
    return words


sizes = st.lists(st.lists(st.integers(1, LENGTH), min_size=1, max_size=5), min_size=1, max_size=7)


@settings(max_examples=25, deadline=None)
@given(sizes=sizes, rate=st.sampled_from([0.15, 0.4, 1.0]), whole=st.booleans())
def test_labels_are_what_stood_there_and_nothing_else_changes(sizes, rate, whole):
    rows = rows_of(sizes)
    batches = list(batches_of(rows, rate=rate, starts_word=STARTS if whole else None))
    ids, chosen, labels = read(batches)
    np.testing.assert_array_equal(rows["ids"][chosen], labels)
    assert labels.size == 0 or labels.min() >= 5  # neither special nor padding
    assert len(set(zip(*chosen, strict=True))) == len(labels)  # none twice
    ids[chosen] = labels
    np.testing.assert_array_equal(ids, rows["ids"])
    np.testing.assert_array_equal(batches[0][0]["segments"], rows["segments"])


@settings(max_examples=25, deadline=None)
@given(sizes=sizes, rate=st.sampled_from([0.15, 0.4, 1.0]))
def test_each_row_has_its_share_of_chosen_tokens_in_rising_order(sizes, rate):
    rows = rows_of(sizes)
    ((inputs, labels),) = batches_of(rows, rate=rate)
    predictions = round(rate * LENGTH)
    assert labels.shape == inputs["masked_positions"].shape == (len(sizes), predictions)
    positions, labels = inputs["masked_positions"].numpy(), labels.numpy()
    for row in range(len(sizes)):
        choosable = np.count_nonzero(rows["ids"][row] >= 5)
        count = np.count_nonzero(labels[row])
        assert count == min(choosable, max(1, round(rate * choosable)))
        assert labels[row, :count].all() and not positions[row, count:].any()
        assert np.all(np.diff(positions[row, :count]) > 0)


@settings(max_examples=25, deadline=None)
@given(sizes=sizes, rate=st.sampled_from([0.15, 0.4, 1.0]), seed=st.integers(0, 9))
def test_words_are_chosen_whole_and_until_none_fits(sizes, rate, seed):
    rows = rows_of(sizes, seed)
    _, chosen, _ = read(batches_of(rows, rate=rate, starts_word=STARTS, seed=seed))
    for row in range(len(sizes)):
        columns = set(chosen[1][chosen[0] == row])
        words = words_of(rows["ids"][row], rows["segments"][row])
        hit = [word for word in words if columns & set(word)]
        assert columns == set(sum(hit, []))
        wanted = max(1, round(rate * sum(map(len, words))))
        assert len(columns) <= wanted
        spared = [len(word) for word in words if word not in hit]
        assert not spared or min(spared) > wanted - len(columns)


def test_four_fifths_are_hidden_a_tenth_replaced_and_a_tenth_kept():
    rows = rows_of([[LENGTH]] * 50)
    ids, chosen, labels = read(batches_of(rows, 60))
    shown = ids[chosen]
    assert len(labels) == 50 * 60 * 3
    assert abs(np.mean(shown == MASK) - 0.8) < 0.02  # 5 standard deviations
    replaced = shown[(shown != MASK) & (shown != labels)]
    assert abs(len(replaced) / len(labels) - 0.1) < 0.016
    assert replaced.min() >= 5 and len(set(replaced)) == VOCAB - 5  # any ordinary id


def test_every_position_is_as_likely_to_be_chosen():
    rows = rows_of([[LENGTH]] * 50)
    _, (_, columns), _ = read(batches_of(rows, 60))
    shares = np.bincount(columns, minlength=LENGTH) / (50 * 60)
    assert shares[0] == shares[-1] == 0  # [CLS] and [SEP]
    np.testing.assert_allclose(shares[1:-1], 3 / 21, atol=0.033)  # 5 standard deviations


def test_pieces_of_a_word_are_hidden_one_by_one():
    rows = {"ids": np.full((50, LENGTH), 6, "int32"), "segments": np.ones((50, LENGTH), "int32")}
    starts = np.arange(VOCAB) != 6  # each row is one word
    ids, chosen, _ = read(batches_of(rows, rate=1.0, starts_word=starts))
    assert len(chosen[0]) == 50 * LENGTH
    both = np.any(ids == MASK, axis=1) & np.any(ids != MASK, axis=1)
    assert np.count_nonzero(both) > 40  # all of a word is hidden in 0.6 % of words


def test_draws_follow_from_the_seed_the_epoch_and_the_batch():
    rows = rows_of([[LENGTH]] * 3)

    def epochs(seed):
        batches = batches_of(rows, 2, seed=seed)
        return [[inputs["ids"].numpy().tolist() for inputs, _ in batches] for _ in range(2)]

    first, second = epochs(3)
    assert first[0] != first[1] and first != second
    assert epochs(3) == [first, second]
    assert epochs(4)[0] != first


def test_without_dynamics_every_epoch_draws_the_same():
    batches = batches_of(rows_of([[LENGTH]] * 3), 2, dynamic=False)
    epochs = [[inputs["ids"].numpy().tolist() for inputs, _ in batches] for _ in range(2)]
    assert epochs[0] == epochs[1] and epochs[0][0] != epochs[0][1]
    repeated = [inputs["ids"].numpy().tolist() for inputs, _ in batches.repeat(2)]
    assert repeated == epochs[0] * 2


def test_shapes_are_static_and_other_inputs_pass():
    rows = rows_of([[5], [6]]) | {"label": np.array([1, 0])}
    inputs, labels = batches_of(rows, rate=0.3).element_spec
    assert inputs["ids"].shape == inputs["segments"].shape == (2, LENGTH)
    assert inputs["masked_positions"].shape == labels.shape == (2, 7)
    assert {spec.dtype for spec in (*inputs.values(), labels)} == {tf.int32, tf.int64}
    assert inputs["label"].shape == (2,)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rate": 0.0}, r"`rate` must be in \(0, 1\]. Received: 0.0"),
        ({"special_ids": range(VOCAB)}, "leaves none of the 97 ids"),
        ({"starts_word": [True] * 3}, r"must have the shape \(97,\). Received: \(3,\)"),
        ({"mask_id": VOCAB}, r"in `mask_id` must be from 0 to 96.*Received: \[97\]"),
        ({"mask_id": -1}, r"in `mask_id` must be from 0 to 96.*Received: \[-1\]"),
        ({"special_ids": [0, 100]}, r"in `special_ids` must be from 0 to 96.*\[100\]"),
    ],
)
def test_what_cannot_be_masked_is_refused(options, message):
    dataset = tf.data.Dataset.from_tensors(rows_of([[5]]))
    arguments = {"mask_id": MASK, "vocab_size": VOCAB, "special_ids": SPECIAL} | options
    with pytest.raises(ValueError, match=message):
        masked(dataset, **arguments)


@pytest.mark.parametrize("wrong", [VOCAB, -1])
def test_ids_outside_the_vocabulary_end_the_run_but_for_padding(wrong):
    rows = rows_of([[5], [6]])
    rows["ids"][:, -1] = wrong  # padding
    list(batches_of(rows))
    rows["ids"][1, 2] = wrong
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"in `dataset` must.*\[{wrong}\]"):
        list(batches_of(rows))


def test_rows_of_unknown_length_are_refused():
    spec = tf.TensorSpec((None, None), tf.int32)
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature={"ids": spec, "segments": spec}
    )
    with pytest.raises(ValueError, match="rows of a known length"):
        masked(dataset, MASK, VOCAB, SPECIAL)


PADDING, START, END, UNKNOWN = range(4)
STARTS_WORD = np.arange(40) % 2 == 0  # even ids begin a word


def batches(rows=64, words=9, number=3):
    """Rows of words of two tokens each, between marks, then padding."""
    ids = np.zeros((rows, 2 * words + 4), "int32")
    ids[:, 0] = START
    ids[:, 1 : 2 * words + 1 : 2] = np.random.default_rng(0).integers(3, 20, (rows, words)) * 2
    ids[:, 2 : 2 * words + 2 : 2] = ids[:, 1 : 2 * words + 1 : 2] - 1  # odd: it goes on
    ids[:, 2 * words + 1] = END
    return tf.data.Dataset.from_tensors(({"source": ids, "target": ids}, ids)).repeat(number)


def hidden(rate, **options):
    return list(word_dropout(batches(), rate, UNKNOWN, **options))


@pytest.mark.parametrize("starts_word", [None, STARTS_WORD])
def test_so_many_are_hidden_and_labels_stay(starts_word):
    for inputs, labels in hidden(0.3, starts_word=starts_word):
        ids = labels.numpy()
        ordinary = ids > UNKNOWN
        for name in ("source", "target"):
            gone = inputs[name].numpy() != ids
            assert not gone[~ordinary].any()
            assert set(inputs[name].numpy()[gone]) == {UNKNOWN}
            assert gone[ordinary].mean() == pytest.approx(0.3, abs=0.06)


def test_a_word_is_hidden_whole():
    def gone(**options):
        parts = [x["source"].numpy() != y.numpy() for x, y in hidden(0.4, **options)]
        first, second = np.stack(parts)[..., 1:19:2], np.stack(parts)[..., 2:20:2]
        return np.array_equal(first, second)

    assert gone(starts_word=STARTS_WORD) and not gone()


def test_draws_follow_from_seed_epoch_and_batch_alone():
    def drawn(**options):
        return [x["target"].numpy().tolist() for x, _ in hidden(0.3, **options)]

    first = drawn(seed=1, epoch=4)
    assert drawn(seed=1, epoch=4) == first
    assert drawn(seed=2, epoch=4) != first != drawn(seed=1, epoch=5)
    assert first[0] != first[1]
    both = next(iter(word_dropout(batches(), 0.3, UNKNOWN)))[0]
    assert both["source"].numpy().tolist() != both["target"].numpy().tolist()


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\). Received: 1"):
        word_dropout(batches(), 1, UNKNOWN)
    with pytest.raises(ValueError, match="must be inputs of `batches`.*Received: query"):
        word_dropout(batches(), 0.1, UNKNOWN, names=("query",))
