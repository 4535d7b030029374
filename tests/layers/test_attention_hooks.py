"""Claims about attention of one's own: what its hooks are given, and that decoding heeds them."""

import numpy as np
from keras import ops

from keras_transformers.layers import CausalSelfAttention, CrossAttention, SelfAttention
from tests.contract import assert_close, to_numpy
from tests.oracles import multi_head_attention

BATCH, LENGTH, CONTEXT_LENGTH, HEADS, WIDTH = 3, 5, 7, 2, 22
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
CONTEXT = RNG.normal(size=(BATCH, CONTEXT_LENGTH, WIDTH)).astype("float32")


class EverySecond(SelfAttention):
    """Sees the keys at even positions only."""

    def make_mask(self, query, key, attention_mask, padding, causal):
        even = ops.arange(ops.shape(key)[1]) % 2 == 0
        mask = super().make_mask(query, key, attention_mask, padding, causal)
        return even if mask is None else ops.logical_and(mask, even)


class Twice(CausalSelfAttention):
    """Queries and keys are twice as long, so that scores are four times as large."""

    def prepare_query(self, query, positions):
        return 2 * super().prepare_query(query, positions)

    def prepare_key(self, key, positions):
        return 2 * super().prepare_key(key, positions)


class WithMean(CausalSelfAttention):
    """Adds to every output what the weights of the first head would give every head."""

    def attend(self, query, key, value, mask, bias, positions, training=None):
        y, weights = super().attend(query, key, value, mask, bias, positions, training)
        return y + ops.matmul(weights[:, :1], value), weights


class Sharp(CrossAttention):
    """Scores are three times as large."""

    def prepare_query(self, query, positions):
        return 3 * super().prepare_query(query, positions)


def built(layer_class, *shapes):
    layer, rng = layer_class(HEADS), np.random.default_rng(3)
    layer.build(*(shapes or (X.shape,)))
    layer.set_weights([rng.normal(size=weight.shape) / 5 for weight in layer.get_weights()])
    return layer


def decoded(layer):
    """What token by token gives, `(batch, length, width)`."""
    cache, outputs = layer.start_cache(BATCH, 1, LENGTH), []
    for index in range(LENGTH):
        token = ops.convert_to_tensor(X[:, index : index + 1])
        y, cache = layer.step(token, cache, index)
        outputs.append(to_numpy(y))
    return np.concatenate(outputs, axis=1)


def test_a_mask_of_ones_own_is_one_that_every_call_has():
    layer, plain = built(EverySecond), built(SelfAttention)
    even = np.broadcast_to(np.arange(LENGTH) % 2 == 0, (1, LENGTH, LENGTH))
    assert_close(layer(X), plain(X, attention_mask=even), 0)
    padding = np.arange(LENGTH) < np.array([[5], [4], [1]])
    both = layer(X, mask=padding)
    assert_close(both, plain(X, mask=padding, attention_mask=even), 0)


def test_queries_and_keys_prepared_otherwise_are_compared_so_token_by_token_too():
    layer = built(Twice)
    weights = layer.get_weights()
    causal = np.tril(np.ones((LENGTH, LENGTH), bool))
    longer = [4 * weights[0], 4 * weights[1], *weights[2:]]  # of the queries' projection alone
    expected, _ = multi_head_attention(longer, X, X, mask=causal)
    assert_close(layer(X), expected, 1e-4)
    assert_close(decoded(layer), expected, 1e-4)


def test_what_attends_otherwise_does_so_token_by_token_and_in_prefill():
    layer, plain = built(WithMean), built(CausalSelfAttention)
    whole = to_numpy(layer(X))
    assert np.abs(whole - to_numpy(plain(X))).max() > 1e-2
    assert_close(decoded(layer), whole, 1e-5)
    together, _ = layer.prefill(ops.convert_to_tensor(X), layer.start_cache(BATCH, 1, LENGTH), 1)
    assert_close(together, whole, 1e-5)


def test_attention_to_a_context_has_the_same_hooks():
    layer = built(Sharp, X.shape, CONTEXT.shape)
    weights = layer.get_weights()
    longer = [3 * weights[0], 3 * weights[1], *weights[2:]]
    expected, _ = multi_head_attention(longer, X, CONTEXT)
    assert_close(layer(X, CONTEXT), expected, 1e-4)
    cache = layer.project_context(ops.convert_to_tensor(CONTEXT))
    assert_close(layer.step(ops.convert_to_tensor(X), cache)[0], expected, 1e-4)
