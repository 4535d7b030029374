"""Attention and blocks as new users call them: masks, NaN, layers of one's own, others' words."""

import keras
import numpy as np
import pytest

from keras_transformers import layers

X = np.random.default_rng(0).normal(size=(3, 6, 8)).astype("float32")


def test_a_series_padded_with_nan_trains():
    lengths = np.array([[6], [4], [2]])
    real = np.arange(6) < lengths
    series = np.where(real[..., None], X, np.nan)
    block = layers.EncoderBlock(2, 16)
    y = keras.ops.convert_to_numpy(block(series, padding_mask=real))
    np.testing.assert_array_equal(y[1, :4], np.asarray(block(X, padding_mask=real))[1, :4])

    inputs, mask = keras.Input((None, 8)), keras.Input((None,), dtype="bool")
    y = layers.EncoderBlock(2, 16)(inputs, padding_mask=mask)
    pooled = layers.AttentionPooling(2, 16)(y, mask=mask)
    model = keras.Model([inputs, mask], keras.layers.Dense(1)(pooled))
    model.compile("adam", "mse", jit_compile=False)
    history = model.fit([series, real], np.ones((3, 1)), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert np.isfinite(model.get_weights()[0]).all()


def test_an_lstm_in_the_place_of_the_network_reads_no_padding():
    network = keras.layers.LSTM(8, return_sequences=True)
    block = layers.EncoderBlock(2, feed_forward=keras.layers.Bidirectional(network, "sum"))
    alone = block(X[:1, :4])
    beside = block(X[:1], padding_mask=np.arange(6)[None] < 4)
    np.testing.assert_allclose(beside[:, :4], alone, atol=1e-6)


def test_a_padding_mask_given_as_attention_mask_is_not_guessed_about():
    mask = np.ones((6, 6), bool)
    with pytest.raises(ValueError, match="two could be"):
        layers.SelfAttention(2)(np.concatenate([X, X]), attention_mask=mask)
    with pytest.raises(ValueError, match="`attention_bias`"):
        layers.SelfAttention(2)(X, attention_mask=np.where(np.tri(6) > 0, 0, -1e9)[None])


@keras.saving.register_keras_serializable("field")
class Shift(keras.layers.Layer):
    """The mixer of a new user: no `get_config`, no `**kwargs`."""

    def __init__(self):
        super().__init__()

    def call(self, x):
        return keras.ops.roll(x, 1, axis=1)


def test_a_mixer_of_ones_own_is_saved_and_loaded(tmp_path):
    inputs = keras.Input((6, 8))
    model = keras.Model(inputs, layers.EncoderBlock(mlp_dim=16, mixer=Shift())(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), model(X))


def test_kerass_attention_and_its_configuration_move_over():
    theirs = keras.layers.MultiHeadAttention(2, 4)
    expected = theirs(X, X)
    ours = layers.MultiHeadAttention.from_config(theirs.get_config())
    ours.build(X.shape, X.shape)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(X, X), expected, atol=1e-6)


def test_two_dense_layers_of_kerass_move_over():
    theirs = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(8)])
    expected = theirs(X)
    ours = layers.FeedForward(8)
    ours.build(X.shape)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(X), expected, atol=1e-6)


def test_kerashubs_words_are_told_in_ours():
    with pytest.raises(ValueError, match="`intermediate_dim` is called `mlp_dim` here"):
        layers.EncoderBlock(num_heads=np.int64(2), intermediate_dim=16)
    with pytest.raises(ValueError, match="`num_heads` must be left out beside `mixer`"):
        layers.EncoderBlock(3, 16, mixer=layers.SelfAttention(2))
    with pytest.raises(ValueError, match="`dropout` must be a rate"):
        layers.EncoderBlock(2, 16, dropout=50)
