"""Ids and tied tables, as a new user would use them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import layers, models, pretrained

IDS = np.random.default_rng(0).integers(5, 31, (4, 6))


def test_an_embedding_stands_where_that_of_keras_stood():
    model = keras.Sequential([layers.TokenEmbedding(31, 8), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(IDS, np.zeros((4, 6, 2)), verbose=0)
    assert model.predict(IDS, verbose=0).shape == (4, 6, 2)


def test_a_loaded_bert_is_exported_by_keras(tmp_path):
    bert = models.TextEncoder(31, 12, 3, 16, 1, max_length=9)
    bert.build((None, None))
    pretrained.save(bert, tmp_path / "bert")
    loaded = pretrained.load(tmp_path / "bert")
    expected = np.array(loaded(IDS))
    loaded.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(served.serve(tf.constant(IDS, tf.int32)), expected, atol=1e-6)


def test_lazy_parts_are_there_when_they_are_first_used():
    for name in ("pretrained", "visualization", "text", "export", "load"):
        assert name in dir(keras_transformers)
        assert getattr(keras_transformers, name)
    with pytest.raises(AttributeError, match="no attribute 'pretraind'"):
        keras_transformers.pretraind  # noqa: B018


def test_the_base_of_scores_and_terms_is_saved_and_loaded(tmp_path):
    x = keras.Input((5, 8))
    attention = layers.SelfAttention(
        2, score=layers.Score(), position=layers.AttentionPositionEncoding()
    )
    model = keras.Model(x, attention(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = np.random.default_rng(0).normal(size=(2, 5, 8))
    np.testing.assert_array_equal(loaded.predict(inputs), model.predict(inputs))


@pytest.mark.parametrize("layer", [layers.PositionalEncoding, layers.RotaryEmbedding])
def test_a_width_given_for_a_wavelength_is_refused(layer):
    for width in (64, np.int64(512)):
        with pytest.raises(ValueError, match=r"`max_wavelength` must be a float, .*Received: \d+"):
            layer(width)
    assert layer(64.0).max_wavelength == 64.0


@pytest.mark.parametrize("block", [layers.EncoderBlock, layers.DecoderBlock])
def test_a_padding_mask_that_does_not_fit_is_called_so(block):
    x = np.ones((2, 5, 8), "float32")
    with pytest.raises(ValueError, match=r"`padding_mask` must .*\(2, 5\).*Received: .*\(2, 4\)"):
        block(2, 8)(x, padding_mask=np.ones((2, 4), bool))
