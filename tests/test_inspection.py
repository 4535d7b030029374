"""Claims about looking at attention."""

import keras
import numpy as np
import pytest

from keras_transformers.inspection import attention_maps, attention_rollout
from keras_transformers.layers import EncoderBlock
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
