"""Claims about alignment scores."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    AdditiveScore,
    AttentionPositionEncoding,
    CausalSelfAttention,
    CrossAttention,
    DotScore,
    GeneralScore,
    MultiHeadAttention,
    ScaledCosineScore,
    ScaledDotScore,
    Score,
    SelfAttention,
)
from tests.contract import assert_close, check_layer, gradients, to_numpy
from tests.oracles import project, softmax

BATCH, HEADS, QUERIES, KEYS, DIM = 3, 2, 5, 7, 11
RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(BATCH, HEADS, QUERIES, DIM)).astype("float32")
KEY = RNG.normal(size=(BATCH, HEADS, KEYS, DIM)).astype("float32")
X = RNG.normal(size=(BATCH, QUERIES, 22)).astype("float32")
CONTEXT = RNG.normal(size=(BATCH, KEYS, 13)).astype("float32")
CLASSES = {
    "scaled_dot": ScaledDotScore,
    "dot": DotScore,
    "general": GeneralScore,
    "additive": AdditiveScore,
    "scaled_cosine": ScaledCosineScore,
}
EVERY = pytest.mark.parametrize("name", CLASSES)


def expected_scores(name, query, key, weights):
    """Section 1 of the equations, pair by pair, in float64."""
    query, key = np.float64(query), np.float64(key)
    scores = np.zeros((*query.shape[:3], key.shape[2]))
    for b, h, i, j in np.ndindex(scores.shape):
        q, k = query[b, h, i], key[b, h, j]
        cosine = q @ k / np.sqrt((q @ q) * (k @ k))
        scores[b, h, i, j] = {
            "dot": lambda: q @ k,  # noqa: B023
            "scaled_dot": lambda: q @ k / np.sqrt(len(q)),  # noqa: B023
            "general": lambda: q @ np.float64(weights[0][h]) @ k,  # noqa: B023
            "additive": lambda: np.float64(weights[0][h]) @ np.tanh(q + k),  # noqa: B023
            "scaled_cosine": lambda: np.exp(weights[0][h, 0, 0]) * cosine,  # noqa: B023
        }[name]()
    return scores


@EVERY
def test_contract_of_the_score_alone(name):
    check_layer(CLASSES[name], (QUERY, KEY))


@EVERY
def test_contract_of_an_attention_with_it(name):
    check_layer(lambda **kwargs: SelfAttention(HEADS, score=name, **kwargs), (X,))


@EVERY
def test_scores_are_those_of_the_equation(name):
    layer = CLASSES[name]()
    scores = layer(QUERY, KEY)
    assert_close(scores, expected_scores(name, QUERY, KEY, layer.get_weights()), 1e-5)


@EVERY
@pytest.mark.parametrize("heads", [1, 2])
def test_attention_is_the_softmax_of_the_score(name, heads):
    layer = CrossAttention(heads, key_dim=DIM, score=CLASSES[name]())
    received, weights = layer(X, CONTEXT, return_attention_scores=True)
    query, key, value = (
        project(x, *dense.get_weights())
        for x, dense in (
            (X, layer.query_dense),
            (CONTEXT, layer.key_dense),
            (CONTEXT, layer.value_dense),
        )
    )
    expected = softmax(expected_scores(name, query, key, layer.score.get_weights()))
    assert_close(weights, expected, 1e-5)
    kernel, bias = layer.output_dense.get_weights()
    output = np.einsum("bhqk,bhkd,hdw->bqw", expected, value, np.float64(kernel)) + bias
    assert_close(received, output, 1e-5)


def test_the_additive_scores_gradient_is_that_of_the_sum_over_all_pairs():
    """It is written by hand, some features at a time."""

    @keras.saving.register_keras_serializable("tests")
    class Plain(AdditiveScore):
        def compare(self, query, key):
            y = ops.tanh(query[:, :, :, None] + key[:, :, None])
            return ops.sum(y * self.vector[:, None, None], axis=-1)

    settings = {"num_heads": HEADS, "key_dim": 19}
    mine, plain = (CrossAttention(score=kind, **settings) for kind in (AdditiveScore(), Plain()))
    for layer in (mine, plain):
        layer(X, CONTEXT)
    plain.set_weights(mine.get_weights())
    for one, other in zip(
        gradients(mine, (X, CONTEXT)), gradients(plain, (X, CONTEXT)), strict=True
    ):
        assert_close(one, other, 1e-4)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "scaled_cosine"])
def test_a_far_separated_key_set_is_a_dictionary(name):
    """With matching query and key, and scores far apart, attention looks the value up."""
    positions, width = 5, 8
    keys = np.eye(positions, width, dtype="float32")[None, None]  # one head
    layer = CLASSES[name]()
    layer.build(keys.shape, keys.shape)
    query, key = 60 * keys, 60 * keys
    if name == "general":
        layer.set_weights([np.eye(width)[None]])
    if name == "additive":
        # Query and key that differ saturate two features, those that match only one.
        layer.set_weights([np.full((1, width), -2e3)])
    weights = to_numpy(ops.softmax(layer(query, key)))[0, 0]
    np.testing.assert_array_equal(weights, np.eye(positions))


@EVERY
def test_permuting_keys_and_values_together_changes_nothing(name):
    layer = CrossAttention(HEADS, key_dim=DIM, score=name)
    order = np.random.default_rng(1).permutation(KEYS)
    assert_close(layer(X, CONTEXT[:, order]), layer(X, CONTEXT), 2e-6)


@EVERY
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_token_by_token_it_is_what_it_is_at_once(name, shared):
    layer = CausalSelfAttention(4, key_dim=6, score=name, num_key_value_heads=shared)
    whole = layer(X)
    for beams in (1, 3):
        cache = layer.start_cache(BATCH, beams, QUERIES)
        assert cache["value"].shape[1] == shared
        for index in range(QUERIES):
            token = ops.tile(ops.convert_to_tensor(X[:, index : index + 1]), (1, beams, 1))
            y, cache = layer.step(token, cache, index)
            assert_close(y[:, -1], whole[:, index], 1e-5)


@EVERY
def test_heads_that_share_keys_give_what_repeated_keys_give(name):
    layer = CrossAttention(6, key_dim=DIM, score=name, num_key_value_heads=2)
    repeated = CrossAttention(6, key_dim=DIM, score=name)
    expected = layer(X, CONTEXT)
    repeated.build(X.shape, CONTEXT.shape)
    for part in ("query_dense", "key_dense", "value_dense", "output_dense", "score"):
        values = getattr(layer, part).get_weights()
        if part in ("key_dense", "value_dense"):
            values = [np.repeat(values[0], 3, axis=1), np.repeat(values[1], 3, axis=0)]
        getattr(repeated, part).set_weights(values)
    assert_close(repeated(X, CONTEXT), expected, 1e-5)


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_grouped_queries_are_kerass(shared):
    theirs = keras.layers.GroupQueryAttention(DIM, 6, shared)
    ours = MultiHeadAttention(6, DIM, num_key_value_heads=shared)
    context = CONTEXT
    expected = theirs(X, context)
    ours.build(X.shape, context.shape)
    rng = np.random.default_rng(4)
    values = [rng.normal(size=weight.shape) / 3 for weight in theirs.get_weights()]
    theirs.set_weights(values)
    ours.set_weights(values)
    assert_close(ours(X, context), theirs(X, context), 1e-5)
    assert expected.shape == (BATCH, QUERIES, 22)


# ------------------------------------------------------------ parts from outside the library


@keras.saving.register_keras_serializable("tests")
class DistanceScore(Score):
    """Minus the squared distance, scaled by a weight."""

    def build(self, query_shape, key_shape):
        self.width = self.add_weight(name="width", shape=(), initializer="ones")

    def prepare_key(self, key):
        return key / 2

    def compare(self, query, key):
        pairs = query[:, :, :, None] - key[:, :, None]
        return -ops.sum(ops.square(pairs), axis=-1) * ops.cast(self.width, query.dtype)


@keras.saving.register_keras_serializable("tests")
class Recency(AttentionPositionEncoding):
    """Turns nothing, forgets with the logarithm of the distance, and recalls the distance."""

    def build(self, query_shape):
        self.rate = self.add_weight(name="rate", shape=(query_shape[1],), initializer="ones")

    def _distance(self, query_positions, key_positions):
        far = ops.absolute(query_positions[:, None] - key_positions[None, :])
        return ops.log(1 + ops.cast(far, "float32"))

    def bias(self, query, query_positions, key_positions):
        rate = ops.cast(self.rate, "float32")[:, None, None]
        return -rate * self._distance(query_positions, key_positions)

    def values(self, weights, query_positions, key_positions):
        far = ops.cast(self._distance(query_positions, key_positions), weights.dtype)
        return ops.sum(weights * far, axis=-1, keepdims=True)


def test_a_score_and_a_term_defined_elsewhere_keep_the_contract():
    check_layer(
        lambda **kwargs: CausalSelfAttention(
            HEADS, score=DistanceScore(), position=Recency(), **kwargs
        ),
        (X,),
    )


def test_a_score_and_a_term_defined_elsewhere_are_cached():
    layer = CausalSelfAttention(
        4, key_dim=6, score=DistanceScore(), position=Recency(), num_key_value_heads=2
    )
    whole = layer(X)
    cache = layer.start_cache(BATCH, 1, QUERIES)
    for index in range(QUERIES):
        y, cache = layer.step(ops.convert_to_tensor(X[:, index : index + 1]), cache, index)
        assert_close(y[:, 0], whole[:, index], 1e-5)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "cosine"}, "`score` must be one of 'scaled_dot', .* or a Score.*'cosine'"),
        ({"score": 3}, "`score` must be .*Received: 3"),
        (
            {"position": "rotary"},
            "`position` must be an AttentionPositionEncoding. Received: 'rotary'",
        ),
        ({"num_key_value_heads": 4}, "`num_key_value_heads` must be a divisor of .*=6.*: 4"),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` must be a positive integer"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(ValueError, match=f"SelfAttention 'heads': {message}"):
        SelfAttention(6, name="heads", **settings)


def test_one_object_for_two_layers_gives_each_its_own_weights():
    score = AdditiveScore()
    first, second = SelfAttention(HEADS, score=score), SelfAttention(HEADS, score=score)
    first(X), second(X)
    assert not score.built
    assert np.any(first.score.get_weights()[0] != second.score.get_weights()[0])


def test_a_temperature_does_not_fall_below_a_hundredth():
    layer = ScaledCosineScore()
    layer.build(QUERY.shape, KEY.shape)
    layer.log_scale.assign(np.full((HEADS, 1, 1), 9.0))
    assert_close(layer(QUERY, QUERY)[0, 0, 0, 0], np.float32(100), 1e-3)
    assert np.isfinite(to_numpy(layer(0 * QUERY, KEY))).all()  # the cosine of nothing
