"""Claims about batches: no text is lost or doubled, shapes are few, orders follow from the seed."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import (
    SentencePieceTokenizer,
    bucketed,
    bucketed_texts,
    encode_pairs,
    framed,
    packed,
    real_token_share,
)

LINES = [f"the {a} cat sat on {b}" for a in ("old", "red", "big") for b in ("a mat", "it", "logs")]
TOKENIZER = SentencePieceTokenizer.train(LINES * 3, 22)


def pairs_of(lengths, seed=0):
    """A dataset of pairs of these (source, target) lengths, target counted as a label row."""
    generator = np.random.default_rng(seed)
    pairs = []
    for source, target in lengths:
        ids = generator.integers(4, 1000, source + target - 2).tolist()
        pairs.append(([*ids[: source - 1], 2], [1, *ids[source - 1 :], 2]))
    return pairs


def as_dataset(pairs, batch_size=None):
    if not pairs:
        spec = tf.TensorSpec((None,), tf.int32)
        return tf.data.Dataset.from_generator(
            lambda: iter(()), output_signature={"source": spec, "target": spec}
        )
    sides = zip(*pairs, strict=True)
    sides = [tf.ragged.constant(side, dtype=tf.int32, ragged_rank=1) for side in sides]
    dataset = tf.data.Dataset.from_tensor_slices({"source": sides[0], "target": sides[1]})
    if batch_size:
        return dataset.ragged_batch(batch_size)
    return dataset.map(lambda pair: {name: tf.identity(ids) for name, ids in pair.items()})


def pairs_in_buckets(batches):
    """The pairs read back out of bucketed batches."""
    for inputs, labels in batches:
        for source, target, label in zip(
            inputs["source"].numpy(), inputs["target"].numpy(), labels.numpy(), strict=True
        ):
            if source.any():
                rebuilt = [*target[target > 0], label[label > 0][-1]]
                assert list(label[label > 0]) == rebuilt[1:]
                yield tuple(source[source > 0]), tuple(rebuilt)


def pairs_in_rows(batches):
    """The pairs read back out of packed batches, through their segments."""
    for inputs, labels in batches:
        arrays = {name: ids.numpy() for name, ids in inputs.items()} | {"labels": labels.numpy()}
        for row in range(len(arrays["labels"])):
            one = {name: array[row] for name, array in arrays.items()}
            last = one["source_segments"].max()
            assert last == one["target_segments"].max()
            for segment in range(1, last + 1):
                source = one["source"][one["source_segments"] == segment]
                inside = one["target_segments"] == segment
                target, label = one["target"][inside], one["labels"][inside]
                assert list(target[1:]) == list(label[:-1])
                yield tuple(source), (*target, label[-1])


def counted(pairs):
    return collections.Counter((tuple(map(int, a)), tuple(map(int, b))) for a, b in pairs)


lengths = st.lists(st.tuples(st.integers(1, 13), st.integers(1, 11)), max_size=60)


@settings(max_examples=10, deadline=None)
@given(lengths=lengths, rows=st.integers(1, 5), batch_size=st.sampled_from([None, 7, 100]))
def test_packing_loses_no_pair_and_doubles_none(lengths, rows, batch_size):
    pairs = pairs_of(lengths)
    batches = list(packed(as_dataset(pairs, batch_size), 13, 11, rows))
    assert counted(pairs_in_rows(batches)) == counted(pairs)
    assert all(labels.shape == (rows, 11) for _, labels in batches)


@settings(max_examples=10, deadline=None)
@given(lengths=lengths, rows=st.integers(1, 5))
def test_segments_are_consecutive_blocks_and_zero_exactly_at_padding(lengths, rows):
    for inputs, labels in packed(as_dataset(pairs_of(lengths)), 13, 11, rows):
        for side in ("source", "target"):
            ids, segments = inputs[side].numpy(), inputs[f"{side}_segments"].numpy()
            np.testing.assert_array_equal(ids == 0, segments == 0)
            for row in segments:
                real = row[row > 0]
                assert list(real) == sorted(real)  # the pairs stand one after another
                assert set(real) == set(range(1, len(set(real)) + 1))
                assert not row[len(real) :].any()  # and padding comes last
        np.testing.assert_array_equal(labels.numpy() == 0, inputs["target"].numpy() == 0)


def test_packed_rows_of_sentences_and_translations_fill_to_the_possible():
    generator = np.random.default_rng(1)
    source = generator.geometric(0.1, 3000)
    drawn = np.clip(np.stack([source, source + generator.integers(-2, 4, 3000)], axis=1), 1, 64)
    batches = packed(as_dataset(pairs_of(drawn), batch_size=3000), 64, 64, rows=1)
    possible = drawn.sum() / 2 / drawn.sum(axis=0).max()  # the longer side full everywhere
    assert real_token_share(batches) > 0.985 * possible


def test_packed_shapes_are_static():
    inputs, labels = packed(as_dataset(pairs_of([(3, 4)])), 13, 11, rows=5).element_spec
    assert labels.shape == inputs["target"].shape == inputs["target_segments"].shape == (5, 11)
    assert inputs["source"].shape == inputs["source_segments"].shape == (5, 13)
    assert {spec.dtype for spec in tf.nest.flatten((inputs, labels))} == {tf.int32}


def test_packed_rows_are_shuffled_by_the_seed_and_the_epoch():
    pairs = pairs_of([(13, 11)] * 50)  # a row each

    def epochs(seed):
        batches = packed(as_dataset(pairs), 13, 11, rows=5, seed=seed)
        return [[labels.numpy().tolist() for _, labels in batches] for _ in range(2)]

    first, second = epochs(3)
    assert first != second
    assert epochs(3) == [first, second]
    assert epochs(4)[0] != first


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(2, 13), st.integers(2, 11)), max_size=60),
    join=st.sampled_from([0.3, 1.0]),
    batch_size=st.sampled_from([None, 4]),
)
def test_joined_pairs_hold_the_ids_of_both_without_the_marks_between(lengths, join, batch_size):
    pairs = pairs_of(lengths)
    batches = list(packed(as_dataset(pairs, batch_size), 13, 11, 2, seed=3, join=join))
    wanted = {}  # what a pair, or a couple of neighbours, reads as -> the positions of its pairs
    for i, (source, target) in enumerate(pairs):
        wanted[tuple(source), tuple(target)] = [i]
        if i % 2 == 0 and i + 1 < len(pairs):
            after = pairs[i + 1]
            joined = (*source[:-1], *after[0]), (*target[:-1], *after[1][1:])
            wanted[joined] = [i, i + 1]
    seen = [i for pair in pairs_in_rows(batches) for i in wanted[pair]]
    assert sorted(seen) == list(range(len(pairs)))


def test_all_couples_that_fit_are_joined_when_the_share_is_one():
    batches = packed(as_dataset(pairs_of([(4, 3)] * 8 + [(9, 9)] * 2)), 13, 11, 2, join=1.0)
    sizes = sorted(len(source) for source, _ in pairs_in_rows(batches))
    assert sizes == [7, 7, 7, 7, 9, 9]


@pytest.mark.parametrize("join", [-0.1, 1.1])
def test_an_impossible_share_of_joins_is_refused(join):
    with pytest.raises(ValueError, match=rf"`join` must be in \[0, 1\]. Received: {join}"):
        packed(as_dataset([]), 13, 11, 2, join=join)


def test_repeated_rows_hold_every_pair_once_a_round():
    pairs = pairs_of([(5, 4), (2, 3), (13, 11), (7, 1), (4, 9)] * 4)
    rows = packed(as_dataset(pairs, batch_size=6), 13, 11, rows=1, seed=2)
    number = sum(1 for _ in rows)
    twice = list(rows.repeat(2))
    assert len(twice) == 2 * number
    for part in (twice[:number], twice[number:]):
        assert counted(pairs_in_rows(part)) == counted(pairs)


@pytest.mark.parametrize(("source", "target"), [(14, 3), (3, 12)])
def test_a_pair_longer_than_a_row_is_refused(source, target):
    batches = packed(as_dataset(pairs_of([(2, 2), (source, target)])), 13, 11, rows=2)
    with pytest.raises(Exception, match="but a row has positions for .13, 11.*without_long"):
        list(batches)


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(1, 13), st.integers(1, 13)), max_size=40))
def test_buckets_lose_no_pair_and_double_none(lengths):
    pairs = pairs_of(lengths)
    batches = list(bucketed(as_dataset(pairs), (3, 7, 13), tokens_per_batch=30))
    assert counted(pairs_in_buckets(batches)) == counted(pairs)
    shapes = {3: (10, 3), 7: (4, 7), 13: (2, 13)}
    for inputs, labels in batches:
        length = labels.shape[1]
        assert tuple(labels.shape) == shapes[length]
        assert inputs["source"].shape == inputs["target"].shape == labels.shape
        needed = max(np.count_nonzero(ids, axis=1).max() for ids in (inputs["source"], labels))
        assert needed > {3: 0, 7: 3, 13: 7}[length]  # no pair is in a longer bucket than it needs


def test_a_pair_longer_than_the_last_boundary_is_refused():
    for pair in ((8, 2), (2, 8)):
        batches = bucketed(as_dataset(pairs_of([(2, 2), pair])), (3, 7), tokens_per_batch=30)
        with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the last boundary"):
            list(batches)


@pytest.mark.parametrize("boundaries", [(), (7, 3), (3, 3), (3, 31)])
def test_boundaries_that_cannot_work_are_refused(boundaries):
    with pytest.raises(ValueError, match="`boundaries` must"):
        bucketed(as_dataset(pairs_of([(2, 2)])), boundaries, tokens_per_batch=30)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_every_pair_appears_once_an_epoch_in_an_order_that_follows_from_the_seed(batch_size):
    targets = LINES[::-1]

    def epochs(seed, number=3):
        dataset = encode_pairs(LINES, targets, TOKENIZER, seed, batch_size=batch_size)
        dataset = dataset.unbatch() if batch_size else dataset
        return [
            [(pair["source"].numpy().tolist(), pair["target"].numpy().tolist()) for pair in dataset]
            for _ in range(number)
        ]

    keras.utils.set_random_seed(1)
    shuffled = epochs(5)
    sources = TOKENIZER.tokenize(LINES, end=True).to_list()
    labels = TOKENIZER.tokenize(targets, start=True, end=True).to_list()
    expected = list(zip(sources, labels, strict=True))
    assert epochs(None, 1) == [expected]
    assert all(sorted(epoch) == sorted(expected) for epoch in shuffled)
    assert all(a != b for a, b in zip(shuffled, [expected, *shuffled], strict=False))
    keras.utils.set_random_seed(2)  # the orders follow from the dataset's own seed alone
    assert epochs(5) == shuffled
    assert epochs(6, 1)[0] != shuffled[0]


def test_sampled_pairs_are_split_anew_each_epoch_and_read_the_same():
    dataset = encode_pairs(LINES, LINES, TOKENIZER, sample=0.1)
    epochs = [[pair["source"].numpy().tolist() for pair in dataset] for _ in range(2)]
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        texts = TOKENIZER.detokenize(tf.ragged.constant(epoch)).numpy()
        assert [text.decode() for text in texts] == LINES


def test_a_drawn_split_that_does_not_fit_gives_way_to_the_best_one():
    best = TOKENIZER.tokenize(LINES, end=True).to_list()
    longest = max(map(len, best))
    pairs = encode_pairs(LINES * 20, LINES * 20, TOKENIZER, sample=0.1, longest=(longest, longest))
    drawn = [(pair["source"].numpy().tolist(), pair["target"].numpy().tolist()) for pair in pairs]
    assert all(len(source) <= longest and len(target) <= longest + 1 for source, target in drawn)
    assert any(source not in best for source, _ in drawn)
    read = TOKENIZER.detokenize(tf.ragged.constant([source for source, _ in drawn]))
    assert [text.decode() for text in read.numpy()] == LINES * 20


def test_targets_can_have_a_tokenizer_of_their_own():
    other = SentencePieceTokenizer.train(["abc def"] * 9, 12)
    (pair,) = encode_pairs(["the cat"], ["abc"], TOKENIZER, target_tokenizer=other)
    np.testing.assert_array_equal(pair["source"], TOKENIZER.tokenize("the cat", end=True))
    np.testing.assert_array_equal(pair["target"], other.tokenize("abc", start=True, end=True))


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="as many sentences as `sources`, 2. Received: 1"):
        encode_pairs(["a", "b"], ["a"], TOKENIZER)


def test_the_share_of_real_tokens_counts_both_sides():
    source, target = np.array([[5, 2, 0, 0]]), np.array([[1, 0]])
    assert real_token_share([({"source": source, "target": target}, target)]) == 0.5


@pytest.mark.parametrize("kind", ["packed", "bucketed"])
def test_fit_sees_every_token_once_in_every_epoch(kind):
    class Count(keras.Model):
        seen = 0

        def __init__(self):
            super().__init__()
            self.weight = self.add_weight(shape=())
            self.tokens = keras.metrics.Sum(name="tokens")

        def call(self, inputs):
            return keras.ops.cast(inputs["target"], "float32") * self.weight

        def compute_loss(self, x=None, y=None, y_pred=None, *args, **kwargs):
            self.tokens.update_state(keras.ops.cast(keras.ops.not_equal(y, 0), "float32"))
            return keras.ops.mean(y_pred)

    dataset = encode_pairs(LINES, LINES, TOKENIZER, shuffle_seed=2)
    if kind == "packed":
        batches = packed(dataset, 48, 48, rows=2)
    else:
        batches = bucketed(dataset, (24, 48), tokens_per_batch=96)
    model = Count()
    model.compile("sgd", jit_compile=True)
    history = model.fit(batches, epochs=3, shuffle=False, verbose=0).history
    total = TOKENIZER.tokenize(LINES, end=True).flat_values.shape[0]
    assert history["tokens"] == [total] * 3


RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 17, 61)
IDS = tf.RaggedTensor.from_row_lengths(np.arange(1, 1 + SIZES.sum()), SIZES)
LABELS = np.arange(61) % 7


def rows(dataset):
    """(ids without padding, label) of every text of weight 1."""
    found = []
    for ids, labels, weights in dataset:
        assert ids.dtype == labels.dtype == tf.int32
        for row, label, weight in zip(ids.numpy(), labels.numpy(), weights.numpy(), strict=True):
            assert weight == (row != 0).any()
            if weight:
                found.append((tuple(row[row != 0]), int(label)))
    return found


EVERY = sorted((tuple(row), int(label)) for row, label in zip(IDS.to_list(), LABELS, strict=True))


@pytest.mark.parametrize("seed", [None, 4])
def test_every_text_comes_once_an_epoch_in_one_of_a_few_shapes(seed):
    dataset = bucketed_texts(IDS, LABELS, (4, 8, 16), 32, seed)
    assert {tuple(ids.shape) for ids, _, _ in dataset} == {(8, 4), (4, 8), (2, 16)}
    assert sorted(rows(dataset)) == EVERY


def test_each_epoch_has_an_order_of_its_own_that_follows_from_the_seed():
    def epochs(seed):
        dataset = bucketed_texts(IDS, LABELS, (16,), 64, seed)
        return rows(dataset), rows(dataset)

    first, second = epochs(4)
    assert first != second
    assert epochs(4)[0] == first


@pytest.mark.parametrize(
    ("boundaries", "budget", "message"),
    [
        ((8, 4), 64, "must increase"),
        ((8, 16), 8, "not exceed `tokens_per_batch`"),
        ((8,), 64, "at most 8 long.*Received: 16"),
    ],
)
def test_what_does_not_fit_is_refused(boundaries, budget, message):
    with pytest.raises(ValueError, match=f"bucketed_texts: .*{message}"):
        bucketed_texts(IDS, LABELS, boundaries, budget)


def test_framed_texts_keep_their_end_when_they_are_cut():
    tokenizer = SentencePieceTokenizer.train(["a b c", "c b a"] * 9, vocab_size=8)
    ids, cut = framed(tokenizer, ["a b c a b c", "a", ""], longest=5)
    assert cut.numpy().tolist() == [True, False, False]
    assert [row[0] for row in ids.to_list()] == [1, 1, 1]
    assert [row[-1] for row in ids.to_list()] == [2, 2, 2]
    assert ids.row_lengths().numpy().tolist()[0] == 5


def test_labels_of_several_classes_go_with_their_texts():
    ids = tf.ragged.constant([[2, 7, 3], [2, 7, 8, 9, 3], [2, 8, 3]])
    hot = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
    found = {}
    for batch, labels, weights in bucketed_texts(ids, hot, (4, 8), tokens_per_batch=12):
        assert labels.shape == (len(batch), 3)
        for row, label, weight in zip(batch.numpy(), labels.numpy(), weights.numpy(), strict=True):
            if weight:
                found[tuple(row[row > 0])] = label.tolist()
            else:
                assert not row.any() and not label.any()
    assert found == {tuple(row): hot[i].tolist() for i, row in enumerate(ids.to_list())}
