"""Claims about the metrics."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.training import (
    MaskedAccuracy,
    Perplexity,
    SmoothedCrossEntropy,
    TokenCrossEntropy,
    classification_accuracy,
    classification_loss,
)

BATCH, LENGTH, VOCAB = 5, 7, 11
METRICS = [MaskedAccuracy, TokenCrossEntropy, Perplexity]


def example(seed=0):
    """Labels with padding of random lengths, and logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (BATCH, LENGTH))
    labels[np.arange(LENGTH) >= rng.integers(1, LENGTH + 1, (BATCH, 1))] = 0
    return labels, rng.normal(0, 2, (BATCH, LENGTH, VOCAB)).astype("float32")


def measured(metric, *batches):
    for batch in batches:
        metric.update_state(*batch)
    return float(metric.result())


def test_accuracy_is_the_share_of_right_real_tokens():
    labels, logits = example()
    right = logits.argmax(-1) == labels
    assert measured(MaskedAccuracy(), (labels, logits)) == pytest.approx(right[labels != 0].mean())


def test_cross_entropy_is_the_unsmoothed_loss():
    labels, logits = example()
    expected = float(SmoothedCrossEntropy(0.0)(labels, logits))
    assert measured(TokenCrossEntropy(), (labels, logits)) == pytest.approx(expected, rel=1e-6)


def test_perplexity_of_uniform_logits_is_the_vocabulary():
    labels, logits = example()
    assert measured(Perplexity(), (labels, 0 * logits)) == pytest.approx(VOCAB)


@pytest.mark.parametrize("metric", METRICS)
@given(seed=st.integers(0, 1000), cut=st.integers(1, BATCH - 1))
def test_batches_count_by_their_real_tokens(metric, seed, cut):
    labels, logits = example(seed)
    parts = (labels[:cut], logits[:cut]), (labels[cut:], logits[cut:])
    assert measured(metric(), *parts) == pytest.approx(
        measured(metric(), (labels, logits)), rel=1e-5
    )


@pytest.mark.parametrize("content", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("metric", METRICS)
def test_padding_has_no_influence_bit_for_bit(metric, content):
    labels, logits = example()
    spoiled = np.where((labels == 0)[..., None], np.float32(content), logits)
    assert measured(metric(), (labels, spoiled)) == measured(metric(), (labels, logits))


@pytest.mark.parametrize("metric", METRICS)
def test_sample_of_weight_zero_has_no_influence(metric):
    labels, logits = example()
    weights = np.ones(BATCH, "float32")
    weights[-1] = 0
    expected = measured(metric(), (labels[:-1], logits[:-1]))
    assert measured(metric(), (labels, logits, weights)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_but_padding_gives_zero_nats(metric):
    labels, logits = example()
    nothing = 1 if metric is Perplexity else 0
    assert measured(metric(), (0 * labels, logits)) == nothing


@pytest.mark.parametrize("metric", METRICS)
def test_reset_forgets_everything(metric):
    labels, logits = example()
    mean = metric()
    first = measured(mean, (labels, logits))
    mean.reset_state()
    assert measured(mean, (labels, logits)) == first


@pytest.mark.parametrize("metric", METRICS)
def test_config_round_trip(metric):
    mean = metric(ignore_id=3, name="mine")
    again = keras.metrics.deserialize(keras.metrics.serialize(mean))
    assert again.get_config() == mean.get_config()
    assert (again.ignore_id, again.name) == (3, "mine")


def test_compiled_evaluation_agrees_with_the_metrics_alone():
    labels, logits = example()
    model = keras.Sequential([keras.Input((LENGTH, VOCAB)), keras.layers.Identity()])
    model.compile(metrics=[MaskedAccuracy(), TokenCrossEntropy()], loss=SmoothedCrossEntropy())
    model.jit_compile = True
    results = model.evaluate(logits, labels, batch_size=2, verbose=0, return_dict=True)
    for metric in (MaskedAccuracy(), TokenCrossEntropy()):
        expected = measured(metric, (labels, logits))
        assert results[metric.name] == pytest.approx(expected, rel=1e-5)


@pytest.fixture(params=["bfloat16", "float16"])
def coarse_floats(request):
    before = keras.config.floatx()
    keras.config.set_floatx(request.param)
    yield
    keras.config.set_floatx(before)


@pytest.mark.usefixtures("coarse_floats")
def test_numbers_are_counted_in_float32_whatever_the_usual_float_is():
    rng = np.random.default_rng(4)
    labels = rng.integers(1, VOCAB, (300, LENGTH))  # more tokens than bfloat16 can count
    logits = 5 * np.eye(VOCAB, dtype="float32")[np.where(rng.random(labels.shape) < 0.5, labels, 0)]
    batches = [(labels[i : i + 10], logits[i : i + 10]) for i in range(0, 300, 10)]
    log_p = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
    nats = -np.take_along_axis(log_p, labels[..., None], -1).mean()
    right = (logits.argmax(-1) == labels).mean()
    for metric, expected in ((MaskedAccuracy, right), (TokenCrossEntropy, nats)):
        assert measured(metric(), *batches) == pytest.approx(expected, rel=1e-5)
    assert measured(Perplexity(), *batches) == pytest.approx(np.exp(nats), rel=1e-5)
    assert float(SmoothedCrossEntropy(0.0)(labels, logits)) == pytest.approx(nats, rel=1e-5)


@pytest.mark.usefixtures("coarse_floats")
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_classifiers_are_scored_in_float32_whatever_the_usual_float_is(problem):
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (999, 3)).astype("float32")
    labels = np.eye(3, dtype="float32")[rng.integers(0, 3, 999)]
    if problem.startswith("single"):
        right = logits.argmax(-1) == labels.argmax(-1)
        log_p = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
        expected = -(labels * log_p).sum(-1).mean()
    else:
        right = (logits > 0) == labels
        expected = (np.log1p(np.exp(logits.astype("float64"))) - labels * logits).mean()
    loss = classification_loss(problem)(labels, logits)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    batches = [(labels[i : i + 9], logits[i : i + 9]) for i in range(0, 999, 9)]
    accuracy = measured(classification_accuracy(problem), *batches)
    assert accuracy == pytest.approx(right.mean(), rel=1e-6)
