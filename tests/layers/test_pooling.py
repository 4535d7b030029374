"""Claims about pooling by attention."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import AttentionPooling
from tests.contract import assert_close, check_layer, to_numpy
from tests.oracles import layer_norm, multi_head_attention

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 7, 10)).astype("float32")


def make(**kwargs):
    return AttentionPooling(5, 13, **kwargs)


def test_contract():
    check_layer(make, (X,))


def test_a_learned_query_attends_and_a_network_follows():
    layer = make()
    layer.build(X.shape)
    layer.set_weights([RNG.normal(size=weight.shape) / 3 for weight in layer.get_weights()])
    query, *weights = (np.float64(to_numpy(w)) for w in (layer.query, *layer.attention.weights))
    pooled, _ = multi_head_attention(weights, np.tile(query, (3, 1, 1)), X)
    y = layer_norm(pooled, *layer.norm.get_weights())
    network = layer.feed_forward
    hidden = y @ to_numpy(network.hidden_dense.kernel) + to_numpy(network.hidden_dense.bias)
    hidden = to_numpy(keras.activations.gelu(hidden))
    y = hidden @ to_numpy(network.output_dense.kernel) + to_numpy(network.output_dense.bias)
    assert_close(layer(X), np.float32((pooled + y)[:, 0]), 2e-5)


def test_the_order_of_tokens_does_not_matter():
    layer = make()
    assert_close(layer(X[:, ::-1]), layer(X), 2e-6)


def test_padding_has_no_influence():
    layer = make()
    mask = np.arange(7)[None] < np.array([[7], [4], [2]])
    poisoned = np.where(mask[..., None], X, 1e3).astype("float32")
    assert_close(layer(poisoned, mask=mask), layer(X, mask=mask), 1e-6)


def test_errors_name_the_layer():
    with pytest.raises(ValueError, match="`num_heads` must be a divisor of the width of `x`, 10"):
        AttentionPooling(3, 13)(X)
