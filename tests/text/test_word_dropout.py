"""Claims about hiding words of what a model reads."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.text import word_dropout

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
