"""Claims about scores of normalised vectors, and with a soft cap, against NumPy in float64."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    CausalSelfAttention,
    NormalizedScore,
    RotaryEmbedding,
    ScaledDotScore,
    SelfAttention,
    SoftCapScore,
)
from tests.contract import assert_close, to_numpy

RNG = np.random.default_rng(0)
QUERY, KEY = RNG.normal(size=(2, 3, 5, 6)), 3 * RNG.normal(size=(2, 3, 7, 6))


def scored(score, query=QUERY, key=KEY):
    return to_numpy(score(query.astype("float32"), key.astype("float32")))


def products(query, key):
    return np.einsum("bhqd,bhkd->bhqk", query, key)


def test_a_scale_takes_the_place_of_the_root():
    assert_close(scored(ScaledDotScore(0.25)), products(QUERY, KEY) * 0.25, 1e-5)


def test_a_capped_score_is_the_equation():
    expected = 2 * np.tanh(products(QUERY, KEY) / np.sqrt(6) / 2)
    assert_close(scored(SoftCapScore(2.0)), expected, 1e-5)
    expected = 2 * np.tanh(products(QUERY, KEY) * 0.1 / 2)
    assert_close(scored(SoftCapScore(2.0, scale=0.1)), expected, 1e-5)


def normed(x, scale, epsilon=1e-3):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale


def test_queries_and_keys_are_normalised_each_by_weights_of_its_own():
    score = NormalizedScore(keras.layers.RMSNormalization(epsilon=1e-3))
    score.build(QUERY.shape, KEY.shape)
    scales = RNG.normal(size=(2, 6))
    score.set_weights(list(scales))
    expected = products(normed(QUERY, scales[0]), normed(KEY, scales[1])) / np.sqrt(6)
    assert_close(scored(score), expected, 1e-5)


def test_positions_turn_what_is_normalised():
    """Not the other way round: the norm's weights differ inside a pair that turns together."""
    layer = SelfAttention(1, position=RotaryEmbedding(), score=NormalizedScore(), use_bias=False)
    x = RNG.normal(size=(1, 5, 6)).astype("float32")
    layer.build(x.shape)
    scales = RNG.normal(size=(2, 6)).astype("float32")
    layer.score.set_weights(list(scales))
    heads = [x @ to_numpy(d.kernel)[:, 0] for d in (layer.query_dense, layer.key_dense)]
    turned = [
        to_numpy(RotaryEmbedding()(normed(head, scale, 1e-6)[:, None].astype("float32")))
        for head, scale in zip(heads, scales, strict=True)
    ]
    scores = products(*turned) / np.sqrt(6)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    _, weights = layer(x, return_attention_scores=True)
    assert_close(weights, expected, 1e-5)


@pytest.mark.parametrize("score", [NormalizedScore(), SoftCapScore(1.5)], ids=["norms", "cap"])
def test_token_by_token_they_are_those_of_the_whole(score):
    layer = CausalSelfAttention(
        4, score=score, num_key_value_heads=2, key_dim=6, position=RotaryEmbedding()
    )
    x = RNG.normal(size=(2, 4, 8)).astype("float32")
    whole, cache = layer(x), layer.start_cache(2, 1, 4)
    for index in range(4):
        y, cache = layer.step(x[:, index : index + 1], cache, index)
        assert_close(y[:, 0], whole[:, index], 1e-5)


def test_a_cap_must_be_positive():
    with pytest.raises(ValueError, match="`cap` must be positive. Received: 0"):
        SoftCapScore(0.0)
