"""An exercise: a score of one's own, in this file alone; CONTRIBUTING.md, "Add a score"."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import EncoderBlock, ScaledDotScore, SelfAttention
from tests.contract import assert_close, check_layer, to_numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 7, 12)).astype("float32")


@keras.saving.register_keras_serializable("exercises")
class SoftCappedScore(ScaledDotScore):
    """`a(q, k) = c tanh(q^T k / (c sqrt(d_k)))`, in (-c, c).

    Gemma Team 2024, "Gemma 2", https://arxiv.org/abs/2408.00118, section 2.

    Args:
        cap: The limit c.
    """

    def __init__(self, cap=50.0, **kwargs):
        super().__init__(**kwargs)
        if cap <= 0:
            raise ValueError(f"SoftCappedScore: `cap` must be positive. Received: {cap}")
        self.cap = cap

    def compare(self, query, key):
        return self.cap * ops.tanh(super().compare(query, key) / self.cap)

    def get_config(self):
        return {**super().get_config(), "cap": self.cap}


def attention(**kwargs):
    return SelfAttention(3, score=SoftCappedScore(0.5), **kwargs)


def test_it_does_what_every_layer_must():
    check_layer(attention, (X,), no_gradient=())


def test_it_computes_the_equation():
    """Against NumPy in float64."""
    query, key = RNG.normal(size=(2, 3, 5, 4)), RNG.normal(size=(2, 3, 7, 4))
    found = SoftCappedScore(0.5, dtype="float64")(query, key)
    products = np.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(4)
    assert_close(found, 0.5 * np.tanh(products / 0.5), 1e-12)


def test_attention_computes_its_weights_with_it():
    layer = attention()
    _, weights = layer(X, return_attention_scores=True)
    kernels = {weight.path.split("/", 1)[1]: to_numpy(weight) for weight in layer.weights}
    query, key = (
        np.einsum("bld,dhk->bhlk", X, kernels[f"{name}/kernel"]) + kernels[f"{name}/bias"][:, None]
        for name in ("query", "key")
    )
    scores = 0.5 * np.tanh(np.einsum("bhqk,bhmk->bhqm", query, key) / np.sqrt(4) / 0.5)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert_close(weights, expected, 1e-5)


def test_scores_stay_below_the_cap_and_far_below_it_are_the_scaled_ones():
    query, key = 10 * RNG.normal(size=(2, 1, 3, 5, 4)).astype("float32")
    assert np.abs(to_numpy(SoftCappedScore(2.0)(query, key))).max() <= 2
    assert_close(SoftCappedScore(1e5)(query, key), ScaledDotScore()(query, key), 1e-3)


def test_a_model_with_it_is_saved_and_loaded(tmp_path):
    inputs = keras.Input((None, 12))
    x = inputs
    block = {"mixer": attention(), "mlp_dim": 17}  # one object serves all blocks
    for _ in range(2):
        x = EncoderBlock(**block)(x)
    model = keras.Model(inputs, x)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.layers[-1].mixer.score.cap == 0.5
    assert_close(again(X), model(X), 0)


def test_a_cap_that_is_none_is_refused():
    with pytest.raises(ValueError, match="`cap` must be positive. Received: 0"):
        SoftCappedScore(0)
