"""Claims about register tokens, and about the pooling of a linear probe."""

import numpy as np
import pytest

from keras_transformers.layers import ClassAndMeanPooling, RegisterTokens
from keras_transformers.models import ViT
from tests.contract import assert_close, check_layer, to_numpy

X = np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")


@pytest.mark.parametrize("after", [0, 1, 5])
def test_registers_stand_where_they_are_told_and_leave_the_rest_alone(after):
    layer = RegisterTokens(3, after, "random_normal")
    y = to_numpy(layer(X))
    np.testing.assert_array_equal(np.delete(y, range(after, after + 3), axis=1), X)
    tokens = layer.get_weights()[0]
    np.testing.assert_array_equal(y[:, after : after + 3], np.tile(tokens, (2, 1, 1)))


def test_contract():
    check_layer(lambda **kwargs: RegisterTokens(3, initializer="random_normal", **kwargs), (X,))
    check_layer(lambda **kwargs: ClassAndMeanPooling(2, **kwargs), (X,))


def test_the_first_token_stands_beside_the_mean_of_the_patches():
    expected = np.concatenate([X[:, 0], X[:, 2:].mean(1)], axis=-1)
    assert_close(ClassAndMeanPooling(2)(X), expected, 1e-6)


def test_registers_have_no_positions_and_are_no_patches():
    model = ViT.from_variant("Ti/8", 3, image_size=16, num_layers=1, registers=3)
    model.build((None, 16, 16, 3))
    images = np.random.default_rng(1).normal(size=(2, 16, 24, 3)).astype("float32")
    assert tuple(model.encode(images).shape) == (2, 1 + 3 + 6, 192)
    assert model.embedding.position_embedding.table.shape[0] == 1 + 4
    assert tuple(model.features(images)["stride_8"].shape) == (2, 2, 3, 192)


def test_errors_say_what_was_expected_and_what_was_received():
    with pytest.raises(ValueError, match="`number` must be a positive integer.* 0"):
        RegisterTokens(0)
    with pytest.raises(ValueError, match="RegisterTokens 'mine': `x` must have shape"):
        RegisterTokens(2, name="mine")(X[0])
    with pytest.raises(ValueError, match="`prefix_tokens` must be a positive integer.* 0"):
        ClassAndMeanPooling(0)
