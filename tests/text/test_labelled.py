"""Claims about batches of labelled texts."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.text import SentencePieceTokenizer, bucketed_texts, framed

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
