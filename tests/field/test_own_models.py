"""Layers inside a user's own model: frozen, adapted, quantised, seeded, differentiated twice."""

import keras
import numpy as np
import pytest

from keras_transformers import layers, models, saving, training
from tests import derivatives

X = np.random.default_rng(0).normal(size=(3, 6, 8)).astype("float32")
IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")
SIZES = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 16, "num_layers": 2}


def test_a_head_is_trained_on_a_frozen_network():
    backbone = models.ViT(None, 8, 4, **SIZES)
    backbone.trainable = False
    inputs = keras.Input((8, 8, 3))
    model = keras.Model(inputs, keras.layers.Dense(2)(backbone(inputs)))
    assert len(model.trainable_weights) == 2
    before = [weight.numpy() for weight in backbone.weights]
    model.compile("adam", "mse", jit_compile=False)
    model.fit(IMAGES, np.ones((2, 2)), verbose=0)
    for old, new in zip(before, backbone.weights, strict=True):
        np.testing.assert_array_equal(old, new)


def test_fine_tuning_is_not_lost_between_two_programs(tmp_path):
    inputs = keras.Input((6, 8))
    model = keras.Model(inputs, layers.EncoderBlock(2, 16)(inputs))
    plain = keras.models.clone_model(model)
    training.add_lora(model, 2)
    model.save_weights(tmp_path / "tuned.weights.h5")
    with pytest.raises(ValueError, match="expected"):
        plain.load_weights(tmp_path / "tuned.weights.h5")
    training.merge(model)
    model.save_weights(tmp_path / "merged.weights.h5")
    plain.load_weights(tmp_path / "merged.weights.h5")
    np.testing.assert_allclose(plain(X), model(X), atol=1e-5)


def test_a_trained_table_is_not_silently_started_anew():
    table = layers.TokenEmbedding(13, 8)
    table.build((None, None))
    with pytest.raises(ValueError, match="not built"):
        models.Transformer(embedding=table, num_heads=2, mlp_dim=16)


@pytest.mark.parametrize("kind", [models.Transformer, models.RecurrentTranslator])
def test_a_translator_stands_behind_inputs_of_any_length(kind):
    sizes = {} if kind is models.RecurrentTranslator else SIZES
    translator = kind(13, **sizes) if sizes else kind(13, 8)
    inputs = {side: keras.Input((None,), dtype="int32") for side in ("source", "target")}
    model = keras.Model(inputs, translator(inputs))
    for length in (1, 7):
        ids = {side: np.ones((2, length), "int32") for side in inputs}
        assert model(ids).shape == (2, length, 13)


def test_a_keras_model_in_eight_bits_is_loaded(tmp_path):
    inputs = keras.Input((6, 8))
    model = keras.Model(inputs, layers.EncoderBlock(2, 16)(inputs))
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(saving.load_model(tmp_path / "model.keras")(X), model(X))


def test_a_norm_in_float32_stays_so_in_a_block_in_half_precision():
    norm = keras.layers.LayerNormalization(dtype="float32")
    block = layers.EncoderBlock(2, 16, norm=norm, dtype="bfloat16")
    assert keras.backend.standardize_dtype(block(X).dtype) == "bfloat16"
    dtypes = {keras.backend.standardize_dtype(w.dtype) for w in block.mixer_norm.weights}
    assert dtypes == {"float32"}


def test_an_adversarial_example_of_a_long_text():
    """The Hessian along a direction, as influence functions and curvature take it too."""
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(2).normal(size=(1, 520, 4)).astype("float32")
    attention = layers.SelfAttention(1)
    attention.build(x.shape)
    for derive in (derivatives.forward, derivatives.second):
        (found,) = derive(attention, [x])
        assert np.isfinite(found).all() and np.abs(found).max() > 0


def test_blocks_of_one_seed_are_not_copies_of_one_another():
    start = keras.initializers.GlorotUniform(seed=5)
    mixer = layers.CausalSelfAttention(2, kernel_initializer=start)
    block = layers.DecoderBlock(mlp_dim=16, mixer=mixer, cross_attention=None)
    model = models.LanguageModel(13, 8, num_layers=2, block=block)
    model.build((None, None))
    one, other = (each.mixer.query_dense.kernel.numpy() for each in model.decoder_blocks)
    assert np.abs(one - other).max() > 0.1


def test_dropout_that_would_not_act_is_refused():
    block = layers.EncoderBlock(2, 16)
    block.dropout = 0.5
    assert np.abs(np.asarray(block(X, training=True)) - np.asarray(block(X))).max() > 0
    with pytest.raises(ValueError, match="must be set before the layer is built"):
        block.dropout = 0.1
