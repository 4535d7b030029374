"""Claims about R-Drop."""

import numpy as np
import pytest
from keras import ops

from keras_transformers.data.streams import each_row_twice, epochs, first_or_second
from keras_transformers.training import RDropCrossEntropy, SmoothedCrossEntropy, token_learning
from tests.training.test_losses import example, in_graph, oracle, value_and_gradient


def in_two_passes(seed=0):
    """Labels of examples in two rows each, and other logits for each row."""
    labels, _ = example()
    twice = np.repeat(labels, 2, axis=0)
    logits = np.random.default_rng(seed).normal(0, 2, (*twice.shape, 11)).astype("float32")
    return twice, logits


def divergence(labels, logits):
    """`(KL(p || q) + KL(q || p)) / 2`, the mean over real tokens, in float64."""
    log_p = np.asarray(logits, "float64")
    log_p = log_p - np.log(np.exp(log_p).sum(-1, keepdims=True))
    first, second = log_p[0::2], log_p[1::2]
    one = (np.exp(first) * (first - second)).sum(-1)
    other = (np.exp(second) * (second - first)).sum(-1)
    real = labels[0::2] != 0
    return ((one + other) / 2)[real].mean()


@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_the_loss_is_the_papers_halved(alpha):
    labels, logits = in_two_passes()
    loss = RDropCrossEntropy(alpha, label_smoothing=0.1)(labels, logits)
    expected = oracle(labels, logits) + alpha * divergence(labels, logits) / 2
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_passes_that_agree_have_the_cross_entropy_alone():
    labels, logits = example()
    twice = np.repeat(labels, 2, axis=0), np.repeat(logits, 2, axis=0)
    loss = RDropCrossEntropy(3.0)(*twice)
    assert float(loss) == pytest.approx(float(SmoothedCrossEntropy()(labels, logits)), rel=1e-6)


def test_padding_reaches_neither_loss_nor_gradient():
    labels, logits = in_two_passes()
    value, _ = value_and_gradient(RDropCrossEntropy(), labels, logits)
    logits[labels == 0] = np.nan
    again, gradient = value_and_gradient(RDropCrossEntropy(), labels, logits)
    assert again == pytest.approx(value, rel=1e-6)
    assert np.all(gradient[labels == 0] == 0)


def test_the_gradient_is_that_of_small_differences():
    labels, logits = in_two_passes()
    loss = RDropCrossEntropy(2.0)
    _, gradient = value_and_gradient(loss, labels, logits)
    rng = np.random.default_rng(1)
    along = rng.normal(size=logits.shape)

    def at(step):
        moved = logits + step * along
        return oracle(labels, moved) + divergence(labels, moved)

    expected = (at(1e-5) - at(-1e-5)) / 2e-5
    assert np.sum(gradient * along) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("alpha", [0, -1.0])
def test_a_weight_that_is_not_positive_is_refused(alpha):
    with pytest.raises(ValueError, match="RDropCrossEntropy: `alpha` must be positive"):
        RDropCrossEntropy(alpha)


def test_rows_that_are_not_in_pairs_are_refused():
    labels, logits = example()  # of three rows
    with pytest.raises(ValueError, match="in two rows, one after the other.*Received: 3 rows"):
        RDropCrossEntropy()(labels, logits)


def test_its_settings_come_back():
    loss = RDropCrossEntropy(2.0, label_smoothing=0.2, ignore_id=7)
    again = RDropCrossEntropy.from_config(loss.get_config())
    assert (again.alpha, again.label_smoothing, again.ignore_id) == (2.0, 0.2, 7)
    assert token_learning(3, 0.1, r_drop=1.0)["loss"].ignore_id == 3


def test_a_row_stands_behind_itself_in_inputs_and_labels():
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensors(({"ids": tf.range(3)}, tf.range(3) + 5))
    inputs, labels = next(iter(each_row_twice(batches)))
    assert inputs["ids"].numpy().tolist() == [0, 0, 1, 1, 2, 2]
    assert labels.numpy().tolist() == [5, 5, 6, 6, 7, 7]


def test_only_the_chosen_dataset_is_asked():
    import tensorflow as tf

    def refuse(number):
        tf.debugging.assert_less(number, tf.constant(0, tf.int64), "asked")
        return number

    unwanted = tf.data.Dataset.range(2).map(refuse)
    wanted = tf.data.Dataset.range(5, 7)
    for chosen in (
        first_or_second(True, wanted, unwanted),
        first_or_second(False, unwanted, wanted),
    ):
        assert [int(number) for number in chosen] == [5, 6]
    by_epoch = epochs(
        lambda epoch: first_or_second(epoch >= 1, wanted, tf.data.Dataset.range(2)), 2
    )
    assert [int(number) for number in by_epoch.take(4)] == [0, 1, 5, 6]


def test_examples_that_are_not_paired_are_refused():
    labels, logits = in_two_passes()
    loss = RDropCrossEntropy()
    mixed = np.random.default_rng(3).permutation(len(labels))
    assert (labels[mixed][0::2] != labels[mixed][1::2]).any()
    with pytest.raises(ValueError, match="must be the same example.*`streams.each_row_twice`"):
        loss(labels[mixed], logits)
    single, of_one = np.array([3, 5, 3, 3]), logits[:4, 0]
    with pytest.raises(ValueError, match="`y_pred` must have"):
        loss(single, logits[:4])
    assert of_one.shape == (4, 11)


def test_compiled_the_pairs_alone_whose_labels_differ_become_nan():
    labels, logits = in_two_passes()
    expected = ops.convert_to_numpy(RDropCrossEntropy(reduction=None)(labels, logits))
    labels[3, 1] = labels[2, 1] % 10 + 1
    loss = RDropCrossEntropy(reduction=None)
    received = ops.convert_to_numpy(in_graph(loss, jit_compile=True)(labels, logits))
    is_wrong = np.zeros(labels.shape, bool)
    is_wrong[2:4, 1] = True
    assert np.isnan(received[is_wrong]).all()
    np.testing.assert_allclose(received[~is_wrong], expected[~is_wrong], rtol=1e-6)
