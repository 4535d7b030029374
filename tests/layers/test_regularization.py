"""Claims about stochastic depth and the learned scale of a branch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import DropPath, LayerScale
from tests.contract import assert_close, check_layer, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32")


@pytest.mark.parametrize(
    "make",
    [lambda **kwargs: DropPath(0.3, seed=3, **kwargs), lambda **kwargs: LayerScale(0.3, **kwargs)],
    ids=["DropPath", "LayerScale"],
)
def test_contract(make):
    check_layer(make, (X,))


@given(rate=st.sampled_from([0.1, 0.3, 0.5, 0.9]), seed=st.integers(0, 99))
def test_a_sample_keeps_or_loses_its_whole_branch(rate, seed):
    batch = 4003
    y = to_numpy(DropPath(rate, seed=seed)(np.ones((batch, 2, 3), "float32"), training=True))
    factors = y[:, 0, 0]
    np.testing.assert_array_equal(y, np.broadcast_to(factors[:, None, None], y.shape))
    kept = factors != 0
    np.testing.assert_allclose(factors[kept], 1 / (1 - rate), rtol=1e-6)
    # The expectation is 1; its standard error is sqrt(rate / (1 - rate) / batch).
    assert abs(factors.mean() - 1) < 5 * np.sqrt(rate / (1 - rate) / batch)


def test_every_call_drops_other_samples_and_a_seed_repeats_them():
    x, layers = np.ones((101, 1), "float32"), [DropPath(0.5, seed=11) for _ in range(2)]
    first, second = ([to_numpy(layer(x, training=True)) for _ in range(2)] for layer in layers)
    np.testing.assert_array_equal(first, second)
    assert np.any(first[0] != first[1])


@pytest.mark.parametrize("training", [False, None])
def test_inference_drops_nothing(training):
    assert_close(DropPath(0.9)(X, training=training), X, 0)


def test_rate_zero_drops_nothing():
    assert_close(DropPath(0.0)(X, training=True), X, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_rate_is_kept_in_low_precision(dtype):
    y = DropPath(0.25, seed=5, dtype=dtype)(np.ones((4003, 1)), training=True)
    assert abs(np.mean(to_numpy(y) != 0) - 0.75) < 0.035


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match=rf"DropPath: `rate` must be in \[0, 1\).*{rate}"):
        DropPath(rate)


def test_layer_scale_multiplies_each_feature_by_its_own_factor():
    layer, factors = LayerScale(), np.arange(1, 8, dtype="float32")
    layer.build((None, None, 7))
    np.testing.assert_allclose(ops.convert_to_numpy(layer.factor), np.full(7, 1e-5), rtol=1e-6)
    layer.set_weights([factors])
    assert_close(layer(X), X * factors, 0)
