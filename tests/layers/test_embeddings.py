"""Claims about token embeddings."""

import json

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.layers import ClassToken, TokenEmbedding
from tests.contract import assert_close, check_layer, gradients, to_numpy
from tests.seen import mask_of

BATCH, LENGTH, WIDTH, VOCAB = 3, 5, 7, 13
IDS = np.random.default_rng(0).integers(0, VOCAB, (BATCH, LENGTH)).astype("int32")


def make_layer(**kwargs):
    layer = TokenEmbedding(VOCAB, WIDTH, **kwargs)
    layer.build()
    return layer


@pytest.mark.parametrize("settings", [{}, {"scale": False, "mask_zero": True}])
def test_contract(settings):
    check_layer(lambda **kwargs: TokenEmbedding(VOCAB, WIDTH, **settings, **kwargs), (IDS,))


@pytest.mark.parametrize("scale", [True, False])
def test_a_token_is_its_row_of_the_table_times_the_root_of_the_width(scale):
    layer = make_layer(scale=scale)
    expected = np.float64(layer.get_weights()[0])[IDS] * (np.sqrt(WIDTH) if scale else 1)
    assert_close(layer(IDS), expected.astype("float32"), 1e-6)


@given(seed=st.integers(0, 99))
def test_logits_are_products_with_the_same_table(seed):
    layer, x = make_layer(), np.random.default_rng(seed).normal(size=(2, 3, WIDTH))
    expected = x @ np.float64(layer.get_weights()[0]).T
    assert_close(layer.logits(x.astype("float32")), expected, 2e-6)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_are_scaled_and_come_from_the_table_that_is_theirs(tied, bias):
    settings = {"logits_bias": bias, "logits_scale": 0.3, "tie_weights": tied}
    layer = TokenEmbedding(VOCAB, WIDTH, scale=False, **settings)
    layer.build()
    layer.set_weights([np.random.default_rng(1).normal(size=w.shape) for w in layer.get_weights()])
    names = ("token_embedding", "logits_bias", "output_embedding")
    weights = {weight.name: to_numpy(weight) for weight in layer.weights}
    assert weights.keys() == {
        name for name, there in zip(names, (True, bias, not tied), strict=True) if there
    }
    x = np.random.default_rng(0).normal(size=(2, 3, WIDTH)).astype("float32")
    table = weights.get("output_embedding", weights["token_embedding"])
    expected = 0.3 * x @ table.T + weights.get("logits_bias", 0)
    for made in (layer.logits(x), layer.step_logits(x), layer(x, reverse=True)):
        assert_close(made, expected, 2e-6)
    assert_close(layer(IDS), weights["token_embedding"][IDS], 0)
    config = TokenEmbedding.from_config(layer.get_config()).get_config()
    assert settings == {name: config[name] for name in settings}


@pytest.mark.parametrize("vocab_size", [24, 30, 31])
@pytest.mark.parametrize("rows", [(1, 1), (1, 4), (2, 1), (5, 1)])
def test_logits_of_a_step_are_those_of_a_sequence(rows, vocab_size):
    """Up to four rows are multiplied with blocks of the table, eight of 24 tokens, two of 30."""
    layer = TokenEmbedding(vocab_size, WIDTH)
    layer.build()
    x = np.random.default_rng(0).normal(size=(*rows, WIDTH)).astype("float32")
    assert_close(layer.step_logits(x), layer.logits(x), 2e-6)


@pytest.mark.parametrize("method", ["logits", "step_logits"])
def test_logits_in_a_functional_model_are_a_call_of_the_layer(method, tmp_path):
    embedding = TokenEmbedding(VOCAB, WIDTH)
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Dense(WIDTH, name="hidden")(embedding(ids))
    model = keras.Model(ids, getattr(embedding, method)(hidden))
    assert len(model.trainable_weights) == 3  # the table once, and those of `hidden`
    rng = np.random.default_rng(0)
    table, kernel, bias = (rng.normal(size=each.shape) for each in model.get_weights())
    model.set_weights([table, kernel, bias])
    expected = ((np.sqrt(WIDTH) * table[IDS]) @ kernel + bias) @ table.T
    assert_close(model(IDS), np.float32(expected), 1e-4)
    model.save(tmp_path / "tied.keras")
    loaded = keras.saving.load_model(tmp_path / "tied.keras")
    assert_close(loaded(IDS), model(IDS), 0)
    assert len(loaded.trainable_weights) == 3
    assert len(json.dumps(model.get_config())) < 5000  # no table is written into it
    before = model.get_weights()[0]
    model.compile("sgd", "mse")
    model.fit(IDS, np.zeros((BATCH, LENGTH, VOCAB)), verbose=0)
    assert np.all(np.any(model.get_weights()[0] != before, axis=1))  # through both of its uses


@pytest.mark.parametrize("mask_zero", [False, True])
def test_in_reverse_the_mask_of_the_vectors_is_carried_on(mask_zero):
    embedding = make_layer(mask_zero=mask_zero)
    ids = np.array([[4, 7, 0]], "int32")
    x = keras.layers.Embedding(VOCAB, WIDTH, mask_zero=True)(ids)
    np.testing.assert_array_equal(mask_of(embedding(x, reverse=True)), ids != 0)
    assert mask_of(embedding(to_numpy(x), reverse=True)) is None
    assert (mask_of(embedding(ids)) is not None) == mask_zero  # forward again


def test_vectors_in_reverse_may_have_any_axes_and_a_symbolic_shape():
    layer = make_layer()
    assert layer(np.ones((WIDTH,), "float32"), reverse=True).shape == (VOCAB,)
    assert layer(np.ones((2, 3, 4, WIDTH), "float32"), reverse=True).shape == (2, 3, 4, VOCAB)
    assert layer(keras.Input((None, WIDTH)), reverse=True).shape == (None, None, VOCAB)
    assert layer.compute_output_shape((2, WIDTH), reverse=True) == (2, VOCAB)
    with pytest.raises(ValueError, match=rf"of shape \(..., {WIDTH}\) in reverse.*\(2, 3\)"):
        layer(np.ones((2, 3), "float32"), reverse=True)


def test_scaled_vectors_have_unit_variance():
    layer = TokenEmbedding(1009, 101)
    x = to_numpy(layer(np.arange(1009, dtype="int32")[None]))
    assert x.std() == pytest.approx(1, abs=0.02)


def test_the_table_learns_from_both_of_its_uses():
    class Both(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.embedding = TokenEmbedding(VOCAB, WIDTH)

        def call(self, ids):
            return self.embedding.logits(self.embedding(ids))

    layer = Both()
    layer(IDS)
    assert len(layer.weights) == 1
    (gradient,) = gradients(layer, (np.full((1, 1), 3, "int32"),))
    assert np.all(np.any(gradient, axis=-1))  # the input uses one row, the output all


def test_zero_is_masked_on_request_only():
    ids = np.array([[4, 7, 0], [0, 2, 0]], "int32")
    mask = make_layer(mask_zero=True).compute_mask(ids)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    assert make_layer().compute_mask(ids) is None


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_any_integers_are_ids(dtype):
    layer = make_layer()
    assert_close(layer(IDS.astype(dtype)), layer(IDS), 0)


def test_errors_name_the_layer_the_argument_and_what_was_received():
    with pytest.raises(ValueError, match="TokenEmbedding: `vocab_size` and.*vocab_size=0"):
        TokenEmbedding(0, WIDTH)
    with pytest.raises(ValueError, match="TokenEmbedding: .*hidden_dim=-1"):
        TokenEmbedding(VOCAB, -1)
    with pytest.raises(ValueError, match="'words': `ids` must be integers, .*: bool"):
        make_layer(name="words")(IDS > 3)


def test_a_class_token_comes_first_and_leaves_the_rest_alone():
    x = np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")
    check_layer(lambda **kwargs: ClassToken("random_normal", **kwargs), (x,))
    layer = ClassToken("random_normal")
    y = to_numpy(layer(x))
    np.testing.assert_array_equal(y[:, 1:], x)
    np.testing.assert_array_equal(y[:, 0], np.tile(layer.get_weights()[0][0], (2, 1)))
    with pytest.raises(ValueError, match="ClassToken 'first': `x` must have shape"):
        ClassToken(name="first")(x[0])


def test_a_class_token_is_never_masked():
    ids = np.array([[4, 7, 0]])
    y = ClassToken()(keras.layers.Embedding(13, 6, mask_zero=True)(ids))
    mask = keras.ops.convert_to_numpy(y._keras_mask)
    np.testing.assert_array_equal(mask, [[True, True, True, False]])
