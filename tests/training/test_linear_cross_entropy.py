"""Claims about cross-entropy without logits, as a function and in `fit`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.models import ClassificationHead, LanguageModel, TextEncoder, Transformer
from keras_transformers.training import (
    AdamW,
    LinearCrossEntropy,
    MaskedAccuracy,
    Perplexity,
    SmoothedCrossEntropy,
    TokenCrossEntropy,
    linear_cross_entropy,
)
from tests.slow import slow_except

BATCH, LENGTH, DIM, VOCAB = 3, 7, 5, 13


def arrays(seed=0):
    draw = np.random.default_rng(seed)
    hidden, table = draw.normal(size=(BATCH, LENGTH, DIM)), draw.normal(size=(VOCAB, DIM))
    labels = draw.integers(1, VOCAB, (BATCH, LENGTH))
    labels[:, 5:] = 0
    return hidden, table, draw.normal(size=VOCAB), labels, draw.uniform(0.5, 2, labels.shape)


def by_numpy(hidden, table, bias, labels, weights, smoothing):
    """Weighted sum of the losses, and its gradients, in float64."""
    z = hidden @ table.T + bias
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    target = (1 - smoothing) * np.eye(VOCAB)[labels] + smoothing / VOCAB
    weights = weights * (labels != 0)
    change = (np.exp(log_p) - target) * weights[..., None]
    total = -(target * log_p).sum(-1)
    return (
        (total * weights).sum(),
        np.einsum("blv,vd->bld", change, table),
        np.einsum("blv,bld->vd", change, hidden),
        change.sum((0, 1)),
    )


def value_and_gradients(function, *inputs):
    """Of a function that gives a scalar, on the backend at hand."""
    inputs = [ops.convert_to_tensor(x, "float32") for x in inputs]
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(*inputs)
        gradients = tape.gradient(value, inputs)
    elif backend == "jax":
        import jax

        value, gradients = jax.value_and_grad(function, range(len(inputs)))(*inputs)
    else:
        inputs = [x.detach().requires_grad_() for x in inputs]
        value = function(*inputs)
        value.backward()
        gradients = [x.grad for x in inputs]
    return [
        ops.convert_to_numpy(x.detach() if backend == "torch" else x) for x in (value, *gradients)
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("chunk", "compiled"), [(256, True), (4, True), (4, False)])
@pytest.mark.parametrize("said", [False, True])
def test_value_and_gradients_are_those_of_float64(monkeypatch, smoothing, chunk, compiled, said):
    monkeypatch.setattr(_module(), "CHUNK", chunk)
    monkeypatch.setattr(_module(), "PART", chunk)
    hidden, table, bias, labels, weights = arrays()
    factors = ops.array(weights, "float32")

    def total(hidden, table, bias):
        options = {"weights": factors if said else None, "compiled": compiled}
        found = linear_cross_entropy(hidden, table, ops.array(labels), bias, smoothing, **options)
        return 3 * ops.sum(found.losses * factors)

    received = value_and_gradients(total, hidden, table, bias)
    expected = by_numpy(hidden, table, bias, labels, 3 * weights, smoothing)
    for ours, theirs in zip(received, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def _module():
    import sys

    return sys.modules["keras_transformers.training.losses"]


def test_padding_has_no_influence_not_even_nan():
    hidden, table, bias, labels, weights = arrays()
    hidden[labels == 0] = np.nan

    def total(hidden, table):
        return ops.sum(linear_cross_entropy(hidden, table, ops.array(labels)).losses)

    value, of_hidden, of_table = value_and_gradients(total, hidden, table)
    assert np.isfinite(value)
    assert np.all(np.isfinite(of_table))
    assert np.all(of_hidden[labels == 0] == 0)


def test_by_products_are_those_of_logits():
    hidden, table, bias, labels, _ = arrays()
    found = linear_cross_entropy(
        *(ops.convert_to_tensor(x, "float32") for x in (hidden, table)), ops.array(labels),
        ops.convert_to_tensor(bias, "float32"), label_smoothing=0.1,
    )  # fmt: skip
    z, real = hidden @ table.T + bias, labels != 0
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    nats = -np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
    smoothed = 0.9 * nats - 0.1 * log_p.mean(-1)
    for ours, theirs in (
        (found.nats, nats), (found.losses, smoothed), (found.right, z.argmax(-1) == labels),
    ):  # fmt: skip
        np.testing.assert_allclose(ops.convert_to_numpy(ours)[real], theirs[real], atol=1e-5)


IDS = np.random.default_rng(1).integers(1, VOCAB, (4, 6)).astype("int32")
IDS[:, 4:] = 0


def language_model():
    return LanguageModel.from_variant("tiny", VOCAB, hidden_dim=8, num_heads=2, mlp_dim=8), IDS


def encoder():
    sizes = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8}
    return TextEncoder.from_variant("tiny", VOCAB, head="masked_language", **sizes), IDS


def transformer():
    sizes = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "logits_bias": True}
    model = Transformer.from_variant("tiny", VOCAB, **sizes)
    return model, {"source": IDS, "target": IDS}


def fitted(make, loss, **compiled):
    """Logs of two epochs and of an evaluation, and the weights."""
    keras.utils.set_random_seed(2)
    model, inputs = make()
    for layer in model._flatten_layers():
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    metrics = [MaskedAccuracy(), TokenCrossEntropy(), Perplexity()]
    model.compile(AdamW(1e-2, epsilon=1e-3), loss, metrics=metrics, **compiled)
    weights = np.array([1.0, 2.0, 0.5, 1.0], "float32")
    options = {"sample_weight": weights, "batch_size": 4, "verbose": 0}
    history = model.fit(inputs, IDS, epochs=2, shuffle=False, **options).history
    return model, history, model.evaluate(inputs, IDS, return_dict=True, **options)


MAKERS = {"decoder": language_model, "encoder": encoder, "both": transformer}


@pytest.mark.slow
@pytest.mark.parametrize("make", slow_except(MAKERS, "decoder"))
def test_fit_and_evaluate_give_what_they_give_with_logits(make):
    model, history, scores = fitted(make, LinearCrossEntropy(0.1))
    other, expected, expected_scores = fitted(make, SmoothedCrossEntropy(0.1))
    assert history.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4)
        np.testing.assert_allclose(scores[name], expected_scores[name], rtol=1e-4)
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_no_logits_are_made_in_fit_and_predict_gives_them(monkeypatch):
    model, inputs = language_model()
    model.compile(AdamW(), LinearCrossEntropy(), metrics=[MaskedAccuracy()])
    made = []
    logits = model.token_embedding.logits
    monkeypatch.setattr(
        model.token_embedding, "logits", lambda x: made.append(x.shape) or logits(x)
    )
    model.train_on_batch(inputs, IDS)
    model.test_on_batch(inputs, IDS)
    # JAX's and PyTorch's trainers first run the model on shapes.
    assert len(made) == (keras.backend.backend() != "tensorflow")
    assert model.predict(inputs, verbose=0).shape == (*IDS.shape, VOCAB)


@pytest.mark.slow
def test_a_compiled_model_survives_a_file(tmp_path):
    model, inputs = language_model()
    model.compile(AdamW(), LinearCrossEntropy(0.1), metrics=[MaskedAccuracy()])
    model.fit(inputs, IDS, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.loss, LinearCrossEntropy)
    expected = model.evaluate(inputs, IDS, verbose=0)
    np.testing.assert_allclose(again.evaluate(inputs, IDS, verbose=0), expected, rtol=1e-5)


@pytest.mark.slow
def test_half_precision_and_accumulated_gradients_train():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, inputs = language_model()
    finally:
        keras.config.set_dtype_policy(policy)
    model.compile(AdamW(0.01, gradient_accumulation_steps=2), LinearCrossEntropy())
    losses = model.fit(inputs, IDS, epochs=20, batch_size=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("make", slow_except(MAKERS, "decoder"))
def test_eager_steps_give_what_compiled_ones_give(make):
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch compiles nothing here")
    model, history, scores = fitted(make, LinearCrossEntropy(0.1), run_eagerly=True)
    other, expected, expected_scores = fitted(make, SmoothedCrossEntropy(0.1))
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4)
        np.testing.assert_allclose(scores[name], expected_scores[name], rtol=1e-4)
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("make", slow_except(MAKERS, "decoder"))
@pytest.mark.parametrize("loss", [LinearCrossEntropy, SmoothedCrossEntropy])
def test_weights_of_classes_are_refused_where_tokens_have_labels(make, loss):
    model, inputs = make()
    model.compile(AdamW(), loss())
    for train, options in ((model.fit, {"verbose": 0}), (model.train_on_batch, {})):
        with pytest.raises(ValueError, match="`class_weight` of .* must be None.*`sample_weight`"):
            train(inputs, IDS, class_weight={3: 2.0}, **options)


@pytest.mark.slow
def test_weights_of_classes_are_those_of_rows_where_a_text_has_one_label():
    labels = np.array([0, 1, 1, 2])
    losses = []
    for options in ({"class_weight": {1: 3.0}}, {"sample_weight": np.array([1.0, 3, 3, 1])}):
        keras.utils.set_random_seed(2)
        sizes = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "head": ClassificationHead(3)}
        model = TextEncoder.from_variant("tiny", VOCAB, **sizes)
        model.compile("sgd", SmoothedCrossEntropy(ignore_id=-100))
        losses.append(model.fit(IDS, labels, shuffle=False, verbose=0, **options).history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
