"""Claims about blocks with norms on both sides of a branch, and about Gemma's norm."""

import numpy as np
import pytest

from keras_transformers.layers import OffsetRMSNormalization, SandwichDecoderBlock
from tests.contract import assert_close, check_layer

X = np.random.default_rng(0).normal(size=(3, 5, 12)).astype("float32")


def made():
    block = SandwichDecoderBlock(3, 20, norm=OffsetRMSNormalization(1e-3))
    block.build(X.shape)
    rng = np.random.default_rng(1)
    block.set_weights([rng.normal(size=w.shape) * 0.5 for w in block.weights])
    return block


def test_it_is_its_equation():
    block = made()
    x = X + block.mixer_output_norm(block.mixer(block.mixer_norm(X)))
    y = block.feed_forward(block.feed_forward_norm(x))
    assert_close(block(X), x + block.feed_forward_output_norm(y), 1e-6)


def test_token_by_token_it_gives_what_the_whole_gives():
    block = made()
    whole, cache = block(X), block.start_cache(3, 1, 5)
    _, cache = block.prefill(X[:, :2], cache, 1)
    for index in range(2, 5):
        y, cache, _ = block.step(X[:, index : index + 1], cache, index)
        assert_close(y[:, 0], whole[:, index], 1e-5)


def test_it_is_a_layer_like_others():
    check_layer(lambda **kw: SandwichDecoderBlock(3, 20, **kw), (X,))


def test_norms_stand_on_both_sides():
    with pytest.raises(ValueError, match="`norm_first` must be True, .* Received: False"):
        SandwichDecoderBlock(3, 20, norm_first=False)


def test_an_offset_of_zero_is_a_factor_of_one():
    layer = OffsetRMSNormalization(1e-3)
    x = np.float64(X)
    expected = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-3)
    assert_close(layer(X), expected, 1e-6)
    offset = np.linspace(-0.5, 0.5, 12)
    layer.set_weights([offset])
    assert_close(layer(X), expected * (1 + offset), 1e-6)
