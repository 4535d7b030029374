"""Claims about dropout, stochastic depth and the learned scale of a branch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import Dropout, DropPath, LayerScale, keep_mask
from tests.contract import assert_close, check_layer, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32")


@pytest.mark.parametrize(
    "make",
    [
        lambda **kwargs: Dropout(0.3, seed=3, **kwargs),
        lambda **kwargs: DropPath(0.3, seed=3, **kwargs),
        lambda **kwargs: LayerScale(0.3, **kwargs),
    ],
    ids=["Dropout", "DropPath", "LayerScale"],
)
def test_contract(make):
    check_layer(make, (X,))


def hashed(shape, rate, seed):
    """`keep_mask` in NumPy's unsigned integers."""

    def mix(x, key=0):
        x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32 ^ key
        x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
        return x ^ (x >> 16)

    key = mix((seed[0] + mix(seed[1])) % 2**32)
    index = np.arange(np.prod(shape), dtype="uint64").reshape(shape)
    bits = mix(index ^ np.uint64(key), np.uint64(mix((key + 1) % 2**32)))
    return (bits ^ 2**31) >= rate * 2**32  # signed order


@given(
    rate=st.floats(0, 0.999),
    seed=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    shape=st.sampled_from([(7,), (3, 5), (2, 3, 11)]),
)
def test_a_mask_is_the_documented_hash_on_every_backend(rate, seed, shape):
    kept = to_numpy(keep_mask(shape, rate, np.array(seed, "uint32")))
    np.testing.assert_array_equal(kept, hashed(shape, rate, seed))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_look_random_within_a_call_and_from_call_to_call(rate):
    layer, x = Dropout(rate, seed=17), np.ones((64, 64, 16), "float32")
    masks = np.stack([to_numpy(layer(x, training=True)) != 0 for _ in range(16)])
    deviations = (masks - (1 - rate)) / np.sqrt(rate * (1 - rate))
    bound = 5 / np.sqrt(masks.size)  # five standard errors of a mean of independent draws
    assert abs(deviations.mean()) < bound
    for axis in range(4):  # neighbours in each direction; the first axis is that of the calls
        for lag in (1, 2, 8):
            ahead = np.roll(deviations, lag, axis)
            assert abs((ahead * deviations).mean()) < bound
    words = np.packbits(masks.reshape(-1, 8), axis=1)[:, 0]
    share = np.unpackbits(np.arange(256, dtype="uint8")[:, None], axis=1).sum(axis=1)
    expected = words.size * (1 - rate) ** share * rate ** (8 - share)
    likely = expected > 20
    surprise = np.bincount(words, minlength=256)[likely] - expected[likely]
    chi_square = np.sum(surprise**2 / expected[likely])
    assert chi_square < likely.sum() + 5 * np.sqrt(2 * likely.sum())


@given(rate=st.sampled_from([0.1, 0.3, 0.5, 0.9]), seed=st.integers(0, 99))
def test_dropout_keeps_the_expectation(rate, seed):
    y = to_numpy(Dropout(rate, seed=seed)(np.ones((61, 67), "float32"), training=True))
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)
    assert abs(y.mean() - 1) < 5 * np.sqrt(rate / (1 - rate) / y.size)


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


@pytest.mark.parametrize("layer", [Dropout, DropPath])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_an_impossible_rate_is_refused(layer, rate):
    with pytest.raises(ValueError, match=rf"{layer.__name__} .*`rate` must be.*\[0, 1\).*{rate}"):
        layer(rate)


def test_layer_scale_multiplies_each_feature_by_its_own_factor():
    layer, factors = LayerScale(), np.arange(1, 8, dtype="float32")
    layer.build((None, None, 7))
    np.testing.assert_allclose(ops.convert_to_numpy(layer.factor), np.full(7, 1e-5), rtol=1e-6)
    layer.set_weights([factors])
    assert_close(layer(X), X * factors, 0)


@pytest.mark.parametrize("kind", [Dropout, DropPath])
def test_a_rate_can_be_changed_unless_there_is_no_seed(kind):
    layer, x = kind(0.5, seed=3), np.ones((64, 4), "float32")
    layer.rate = 0.75
    assert to_numpy(layer(x, training=True)).max() == 4
    layer.rate = 0.0
    assert_close(layer(x, training=True), x, 0)
    with pytest.raises(ValueError, match="`rate` must be 0, as when the layer was made"):
        kind(0.0).rate = 0.5
