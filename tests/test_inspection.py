"""Claims about looking at attention."""

import keras
import numpy as np
import pytest

from keras_transformers.inspection import (
    attention_gradients,
    attention_maps,
    attention_relevance,
    attention_rollout,
)
from keras_transformers.layers import EncoderBlock, LinearAttention, SelfAttention
from keras_transformers.models import Transformer, ViT
from tests.contract import to_numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 6)).astype("float32")


def two_blocks():
    x = keras.Input((5, 6))
    blocks = [EncoderBlock(num_heads=3, mlp_dim=7, name=f"block_{i}") for i in range(2)]
    return keras.Model(x, blocks[1](blocks[0](x))), blocks


def test_the_maps_are_the_weights_that_the_layers_return():
    model, (first, second) = two_blocks()
    maps = attention_maps(model, X)
    y, weights = first(X, return_attention_scores=True)
    _, others = second(y, return_attention_scores=True)
    assert list(maps) == [f"{name}/mixer" for name in ("block_0", "block_1")]
    for received, expected in zip(maps.values(), (weights, others), strict=True):
        np.testing.assert_allclose(received, to_numpy(expected), atol=1e-6)


def test_looking_leaves_no_trace():
    model, (first, _) = two_blocks()
    before = to_numpy(model(X))
    attention_maps(model, X)
    assert first.mixer.attention_observer is None
    np.testing.assert_array_equal(to_numpy(model(X)), before)
    with pytest.raises(ValueError):
        attention_maps(model, X[:, :, :5])
    assert first.mixer.attention_observer is None


def test_a_model_shows_its_maps_after_training():
    model = ViT(3, 8, 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=2)
    images = RNG.normal(size=(4, 8, 8, 1)).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=True)
    model.fit(images, np.array([0, 1, 2, 0]), verbose=0)
    shapes = [weights.shape for weights in attention_maps(model, images).values()]
    assert shapes == [(4, 2, 5, 5)] * 2


def test_a_part_of_the_path_chooses_the_layers():
    model = Transformer(31, hidden_dim=16, num_heads=2, mlp_dim=8, num_layers=2)
    ids = RNG.integers(3, 31, (2, 7))
    ids[1, 5:] = 0
    inputs = {"source": ids, "target": ids[:, :4]}
    maps = attention_maps(model, inputs, match="cross_attention")
    assert [path.split("/")[1] for path in maps] == ["decoder_0", "decoder_1"]
    for weights in maps.values():
        assert weights.shape == (2, 2, 4, 7)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
        assert not np.any(weights[1, ..., 5:])  # padding
    with pytest.raises(ValueError, match="no attention layer .* whose path contains 'fourier'"):
        attention_maps(model, inputs, match="fourier")


def test_rollout_is_the_product_of_its_definition():
    maps = [RNG.random((2, 3, 5, 5)) for _ in range(3)]
    maps = [each / each.sum(-1, keepdims=True) for each in maps]
    expected = np.stack([np.eye(5)] * 2)
    for each in maps:
        expected = (0.5 * np.eye(5) + 0.5 * each.mean(axis=1)) @ expected
    rollout = attention_rollout(maps)
    np.testing.assert_allclose(rollout, expected, atol=1e-12)
    np.testing.assert_allclose(rollout.sum(-1), 1, atol=1e-12)
    named = dict(zip("abc", maps, strict=True))
    np.testing.assert_allclose(attention_rollout(named), expected)


def test_rollout_of_attention_to_oneself_is_the_identity():
    maps = [np.broadcast_to(np.eye(4), (1, 2, 4, 4))] * 3
    np.testing.assert_allclose(attention_rollout(maps)[0], np.eye(4))


def test_rollout_refuses_what_is_no_self_attention():
    for maps in ([], [np.zeros((1, 2, 4, 5))], [np.zeros((1, 2, 4, 4)), np.zeros((1, 2, 3, 3))]):
        with pytest.raises(ValueError, match="attention_rollout: `maps` must hold weights"):
            attention_rollout(maps)


def in_numpy(blocks, x, offsets):
    """What `two_blocks` computes, post-norm, in float64, with something added to the weights."""

    def normalized(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    for block, offset in zip(blocks, offsets, strict=True):
        w = {each.path.split("/", 1)[1]: to_numpy(each).astype("float64") for each in block.weights}
        q, k, v = (
            np.einsum("bld,dhk->bhlk", x, w[f"mixer/{name}/kernel"])
            + w[f"mixer/{name}/bias"][:, None]
            for name in ("query", "key", "value")
        )
        scores = np.exp(q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1]))
        weights = scores / scores.sum(-1, keepdims=True) + offset
        y = np.einsum("bhlk,hkd->bld", weights @ v, w["mixer/attention_output/kernel"])
        x = normalized(x + y + w["mixer/attention_output/bias"], "mixer_norm")
        y = np.maximum(x @ w["feed_forward/hidden/kernel"] + w["feed_forward/hidden/bias"], 0)
        y = y @ w["feed_forward/output/kernel"] + w["feed_forward/output/bias"]
        x = normalized(x + y, "feed_forward_norm")
    return x


def test_gradients_of_weights_are_the_differences_of_an_independent_computation():
    def score(y):
        return y[:, 0, 1] * y[:, 2, 3]

    model, blocks = two_blocks()
    received = attention_gradients(model, X, score)
    assert list(received) == ["block_0/mixer", "block_1/mixer"]
    x, zeros = X.astype("float64"), np.zeros((2, 2, 3, 5, 5))
    np.testing.assert_allclose(in_numpy(blocks, x, zeros), to_numpy(model(X)), atol=1e-5)
    expected = np.zeros_like(zeros)
    for at in np.ndindex(2, 3, 5, 5):  # rows of the batch do not see one another
        values = []
        for step in (1e-5, -1e-5):
            offsets = zeros.copy()
            offsets[at[0], :, at[1], at[2], at[3]] = step
            values.append(score(in_numpy(blocks, x, offsets)))
        expected[at[0], :, at[1], at[2], at[3]] = (values[0] - values[1]) / 2e-5
    for i, gradients in enumerate(received.values()):
        np.testing.assert_allclose(gradients, expected[i], atol=1e-4)
    assert np.abs(expected).max() > 1e-2
    assert all(block.mixer.attention_change is None for block in blocks)


def test_by_default_the_score_is_that_of_the_class_that_the_model_says():
    model = ViT(3, 8, 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=2)
    images = RNG.normal(size=(2, 8, 8, 1)).astype("float32")
    said = to_numpy(model(images)).argmax(-1)
    received = attention_gradients(model, images)
    one = np.eye(3, dtype="float32")[said]
    expected = attention_gradients(model, images, lambda y: keras.ops.sum(y * one, axis=-1))
    for gradients, others in zip(received.values(), expected.values(), strict=True):
        np.testing.assert_allclose(gradients, others, atol=1e-6)
    assert not np.any(gradients[:, :, 1:])  # of the last block only the class token is read


def test_attention_without_weights_of_its_own_is_refused():
    x = keras.Input((5, 6))
    layer = SelfAttention(2)
    twice = keras.Model(x, layer(layer(x)))
    with pytest.raises(ValueError, match="once in a run. Received: .*attention"):
        attention_gradients(twice, X)
    linear = keras.Model(x, LinearAttention(2)(x))
    with pytest.raises(ValueError, match="no attention layer"):
        attention_gradients(linear, X)


def test_relevance_is_the_recursion_of_its_paper():
    maps = [RNG.random((2, 3, 5, 5)) for _ in range(3)]
    slopes = [RNG.normal(size=(2, 3, 5, 5)) for _ in range(3)]
    expected = np.zeros((2, 5, 5))
    for row in range(2):
        expected[row] = np.eye(5)
        for weights, slope in zip(maps, slopes, strict=True):
            mean = np.zeros((5, 5))
            for head, i, j in np.ndindex(3, 5, 5):
                mean[i, j] += max(weights[row, head, i, j] * slope[row, head, i, j], 0) / 3
            expected[row] = expected[row] + mean @ expected[row]
    np.testing.assert_allclose(attention_relevance(maps, slopes), expected, atol=1e-12)
    named = [dict(zip("abc", each, strict=True)) for each in (maps, slopes)]
    turned = dict(reversed(named[1].items()))
    np.testing.assert_allclose(attention_relevance(named[0], turned), expected, atol=1e-12)


def test_what_speaks_against_a_class_is_not_relevant_to_it():
    weights = np.full((1, 1, 2, 2), 0.5)
    against = attention_relevance([weights], [np.full((1, 1, 2, 2), -3.0)])
    np.testing.assert_array_equal(against[0], np.eye(2))


def test_relevance_refuses_gradients_of_something_else():
    maps = {"a": np.zeros((1, 2, 4, 4))}
    with pytest.raises(ValueError, match=r"layers of `maps`, \['a'\]. Received: \['b'\]"):
        attention_relevance(maps, {"b": maps["a"]})
    with pytest.raises(ValueError, match="must have the shapes of `maps`"):
        attention_relevance(maps, [np.zeros((1, 3, 4, 4))])
    with pytest.raises(ValueError, match="`gradients` must hold weights"):
        attention_relevance(maps, [])
