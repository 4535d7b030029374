"""Claims about the loss."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.training import (
    LinearCrossEntropy,
    MaskedAccuracy,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
    TokenCrossEntropy,
    linear_cross_entropy,
    token_cross_entropy,
)

BATCH, LENGTH, VOCAB = 3, 5, 11


def example(seed=0, padding=2):
    """Labels whose last positions are padding, and logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (BATCH, LENGTH))
    labels[:, LENGTH - padding :] = 0
    return labels, rng.normal(0, 3, (BATCH, LENGTH, VOCAB)).astype("float32")


def oracle(labels, logits, label_smoothing=0.1, weights=None):
    """Cross-entropy against the smoothed one-hot target, in float64."""
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    vocab = logits.shape[-1]
    target = (1 - label_smoothing) * np.eye(vocab)[labels] + label_smoothing / vocab
    weights = (labels != 0) * (1.0 if weights is None else weights)
    return (-(target * log_p).sum(-1) * weights).sum() / weights.sum()


def value_and_gradient(loss, labels, logits):
    """The loss and its gradient with respect to the logits, on the backend in use."""
    if keras.backend.backend() == "jax":
        import jax

        differentiate = jax.value_and_grad(lambda z: loss(labels, z))
        value, gradient = differentiate(ops.convert_to_tensor(logits))
    else:
        import tensorflow as tf

        variable = tf.convert_to_tensor(logits)
        with tf.GradientTape() as tape:
            tape.watch(variable)
            value = loss(labels, variable)
        gradient = tape.gradient(value, variable)
    return float(value), ops.convert_to_numpy(ops.cast(gradient, "float32"))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_loss_is_the_cross_entropy_against_a_smoothed_target(label_smoothing):
    labels, logits = example()
    loss = SmoothedCrossEntropy(label_smoothing)(labels, logits)
    assert float(loss) == pytest.approx(oracle(labels, logits, label_smoothing), rel=1e-6)


def test_without_padding_it_is_kerass_categorical_cross_entropy():
    labels, logits = example(padding=0)
    reference = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    expected = float(reference(np.eye(VOCAB, dtype="float32")[labels], logits))
    assert float(SmoothedCrossEntropy(0.1)(labels, logits)) == pytest.approx(expected, rel=1e-5)


def test_uniform_logits_cost_the_log_of_the_vocabulary():
    labels, logits = example()
    assert float(SmoothedCrossEntropy()(labels, 0 * logits)) == pytest.approx(np.log(VOCAB))


def test_gradient_is_softmax_minus_smoothed_target():
    labels, logits = example()
    _, gradient = value_and_gradient(SmoothedCrossEntropy(0.1), labels, logits)
    p = np.exp(logits.astype("float64"))
    p /= p.sum(-1, keepdims=True)
    real = (labels != 0)[..., None]
    expected = (p - 0.9 * np.eye(VOCAB)[labels] - 0.1 / VOCAB) * real / real.sum()
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("content", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_padding_has_no_influence_bit_for_bit(content):
    labels, logits = example()
    spoiled = np.where((labels == 0)[..., None], np.float32(content), logits)
    value, gradient = value_and_gradient(SmoothedCrossEntropy(), labels, logits)
    spoiled_value, spoiled_gradient = value_and_gradient(SmoothedCrossEntropy(), labels, spoiled)
    assert spoiled_value == value
    np.testing.assert_array_equal(spoiled_gradient, gradient)
    assert not gradient[labels == 0].any()


def test_batch_without_real_tokens_costs_nothing():
    labels, logits = example(padding=LENGTH)
    value, gradient = value_and_gradient(SmoothedCrossEntropy(), labels, logits)
    assert value == 0
    assert not gradient.any()


def test_ignore_id_can_be_another_label():
    labels, logits = example()
    labels = np.where(labels == 0, -1, labels)
    expected = oracle(np.where(labels == -1, 0, labels), logits)
    loss = SmoothedCrossEntropy(ignore_id=-1)(labels, logits)
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weights_shape", [(BATCH,), (BATCH, 1), (BATCH, LENGTH)])
def test_sample_weights_weigh_the_mean(weights_shape):
    labels, logits = example()
    weights = np.random.default_rng(1).uniform(0.5, 2, weights_shape).astype("float32")
    wide = weights[:, None] if weights.ndim == 1 else weights
    expected = oracle(labels, logits, weights=wide)
    loss = SmoothedCrossEntropy()(labels, logits, sample_weight=weights)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_are_summed_in_float32(dtype):
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 4099, (2, 7))  # beyond what bfloat16 can count
    logits = ops.cast(rng.normal(0, 3, (2, 7, 4099)), dtype)
    loss = SmoothedCrossEntropy()(labels, logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    exact = ops.convert_to_numpy(ops.cast(logits, "float32"))
    assert float(loss) == pytest.approx(oracle(labels, exact), rel=1e-5)


@given(st.integers(0, 1000), st.integers(1, BATCH - 1))
def test_batch_is_the_token_weighted_mean_of_its_parts(seed, cut):
    labels, logits = example(seed)
    labels[0, 0] = 0  # so that the parts have different numbers of real tokens
    loss = SmoothedCrossEntropy()
    parts = [(labels[:cut], logits[:cut]), (labels[cut:], logits[cut:])]
    tokens = [(y != 0).sum() for y, _ in parts]
    mean = sum(n * float(loss(*part)) for n, part in zip(tokens, parts, strict=True)) / sum(tokens)
    assert float(loss(labels, logits)) == pytest.approx(mean, rel=1e-5)


@given(st.integers(0, 1000), st.floats(-100, 100))
def test_a_constant_added_to_the_logits_changes_nothing(seed, constant):
    labels, logits = example(seed)
    shifted = logits + np.float32(constant)
    expected = float(SmoothedCrossEntropy()(labels, logits))
    assert float(SmoothedCrossEntropy()(labels, shifted)) == pytest.approx(expected, abs=2e-4)


def test_labels_of_a_classifier_have_no_length_axis():
    labels, logits = np.array([3, 1]), np.zeros((2, VOCAB), "float32")
    assert float(SmoothedCrossEntropy()(labels, logits)) == pytest.approx(np.log(VOCAB))


def test_token_cross_entropy_weighs_padding_zero():
    labels, logits = example()
    losses, weights = token_cross_entropy(labels, logits, 0.1)
    np.testing.assert_array_equal(ops.convert_to_numpy(weights), labels != 0)
    assert not ops.convert_to_numpy(losses)[labels == 0].any()


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0, 2])
def test_impossible_smoothing_is_refused(label_smoothing):
    with pytest.raises(ValueError, match=r"SmoothedCrossEntropy: `label_smoothing`.*\[0, 1\)"):
        SmoothedCrossEntropy(label_smoothing)


def test_logits_of_the_wrong_rank_are_refused():
    with pytest.raises(ValueError, match="`y_pred` must have the shape of the labels.*Received"):
        SmoothedCrossEntropy()(np.ones((2, 3)), np.ones((2, 3)))


def test_config_round_trip():
    loss = SmoothedCrossEntropy(0.3, ignore_id=7, name="mine")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    assert (again.label_smoothing, again.ignore_id, again.name) == (0.3, 7, "mine")


def in_graph(function, jit_compile):
    """The function compiled on the backend in use, of NumPy arrays."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)


def updated(kind):
    """Function of labels and logits that updates a metric of a kind."""
    return lambda labels, logits: kind().update_state(labels, logits)


def linear(labels, logits):
    """The loss without logits: their table is the unit matrix."""
    return linear_cross_entropy(ops.convert_to_tensor(logits), ops.eye(VOCAB), labels).losses


READERS = {
    "token_cross_entropy": token_cross_entropy,
    "SmoothedCrossEntropy": SmoothedCrossEntropy(),
    "RDropCrossEntropy": RDropCrossEntropy(),
    "LinearCrossEntropy": LinearCrossEntropy(),
    "linear_cross_entropy": linear,
    "MaskedAccuracy": updated(MaskedAccuracy),
    "TokenCrossEntropy": updated(TokenCrossEntropy),
}


def with_impossible(label):
    """Labels of which those of one position are impossible, in pairs of equal rows, and logits."""
    labels, logits = (np.repeat(x, 2, axis=0) for x in example())
    labels[2:4, 1] = label
    return labels, logits


@pytest.mark.parametrize("label", [-1, -100, VOCAB, 900])
@pytest.mark.parametrize("reader", READERS)
def test_a_label_that_is_no_token_is_refused(reader, label):
    labels, logits = with_impossible(label)
    message = rf"{reader}: labels must lie in \[0, 11\).*`ignore_id=-100`. Received: {label}"
    with pytest.raises(ValueError, match=message):
        READERS[reader](labels, logits)


@pytest.mark.parametrize("reader", READERS)
def test_a_graph_asserts_that_labels_are_tokens(reader):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow" or "Accuracy" in reader or reader[:6] == "TokenC":
        pytest.skip("a metric makes variables, and is tested in `fit`")
    run = in_graph(READERS[reader], jit_compile=False)
    run(*example()) if reader != "RDropCrossEntropy" else run(*with_impossible(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{reader}: labels must lie in"):
        run(*with_impossible(VOCAB))


def test_metrics_in_fit_assert_that_labels_are_tokens():
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("traced programs of JAX raise no errors")
    labels, logits = with_impossible(-1)
    for metric in (MaskedAccuracy(), TokenCrossEntropy()):
        model = keras.Sequential([keras.Input((LENGTH, VOCAB)), keras.layers.Identity()])
        model.compile(loss=SmoothedCrossEntropy(ignore_id=-1), metrics=[metric], jit_compile=False)
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels must lie in"):
            model.evaluate(logits, labels, verbose=0)


@pytest.mark.parametrize("label", [-1, -100, VOCAB, 900])
@pytest.mark.parametrize("reader", ["token_cross_entropy", "linear_cross_entropy"])
def test_under_a_compiler_such_a_label_has_the_loss_nan_and_no_gradient(reader, label):
    labels, logits = with_impossible(label)
    is_wrong, is_padding = labels == label, labels == 0
    ids = ops.convert_to_tensor(labels)

    def losses(z):
        result = READERS[reader](ids, z)
        return result[0] if isinstance(result, tuple) else result

    received = ops.convert_to_numpy(in_graph(losses, jit_compile=True)(logits))
    z = logits.astype("float64")
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    possible = np.where(is_wrong, 0, labels)
    expected = -np.take_along_axis(log_p, possible[..., None], -1)[..., 0] * ~is_padding
    np.testing.assert_allclose(received[~is_wrong], expected[~is_wrong], atol=1e-5)
    assert np.isnan(received[is_wrong]).all()

    def total(labels, z):
        return ops.sum(in_graph(losses, jit_compile=True)(z))

    _, gradient = value_and_gradient(total, labels, logits)
    change = (np.exp(log_p) - np.eye(VOCAB)[possible]) * ~(is_wrong | is_padding)[..., None]
    np.testing.assert_allclose(gradient, change, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int16", "float32"])
@pytest.mark.parametrize("kind", [SmoothedCrossEntropy, RDropCrossEntropy, LinearCrossEntropy])
def test_data_in_the_form_of_hugging_face_are_taken_with_their_ignore_id(kind, dtype):
    labels, logits = example()
    labels[0, 0] = 0  # a token like any other here
    marked = np.where(np.arange(LENGTH) < LENGTH - 2, labels, -100)
    twice, logits = np.repeat(marked, 2, axis=0).astype(dtype), np.repeat(logits, 2, axis=0)
    z = logits.astype("float64")
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    target = 0.9 * np.eye(VOCAB)[np.maximum(twice, 0).astype(int)] + 0.1 / VOCAB
    expected = -(target * log_p).sum(-1)[twice != -100].mean()
    assert float(kind(ignore_id=-100)(twice, logits)) == pytest.approx(expected, rel=1e-5)


def test_unsigned_labels_are_compared_with_a_negative_ignore_id():
    labels, logits = example(padding=0)
    for dtype in ("uint8", "uint16"):
        loss = SmoothedCrossEntropy(ignore_id=-100)(labels.astype(dtype), logits)
        assert float(loss) == pytest.approx(oracle(labels, logits), rel=1e-5)


@pytest.mark.parametrize("kind", [SmoothedCrossEntropy, LinearCrossEntropy, TokenCrossEntropy])
def test_weights_of_rows_may_have_a_last_axis_where_labels_have_none(kind):
    rng = np.random.default_rng(2)
    labels, logits = rng.integers(1, VOCAB, 7), rng.normal(0, 2, (7, VOCAB)).astype("float32")
    weights = rng.uniform(0.5, 2, 7)
    metric = kind is TokenCrossEntropy
    for shape in ((7,), (7, 1)):
        if metric:
            mean = kind()
            mean.update_state(labels, logits, weights.reshape(shape))
            received = mean.result()
        else:
            received = kind(0.0)(labels, logits, weights.reshape(shape).astype("float32"))
        assert float(received) == pytest.approx(oracle(labels, logits, 0.0, weights), rel=1e-5)


@pytest.mark.parametrize("shape", [(BATCH + 1,), (BATCH, 2), (LENGTH,), (BATCH, LENGTH, VOCAB)])
def test_weights_of_another_shape_are_refused(shape):
    labels, logits = example()
    with pytest.raises(ValueError, match="`sample_weight` must have the shape .* Received: shape"):
        SmoothedCrossEntropy()(labels, logits, np.ones(shape, "float32"))
