"""Claims about convolutions with norms, and residual blocks of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.layers import ConvolutionNorm, ResidualBlock
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, randomised, to_numpy

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 5, 7, 12)).astype("float32")
NORMS = ("batch", "frozen", "group")
LAYERS = {
    "batch": lambda **kw: ConvolutionNorm(5, **kw),
    "frozen": lambda **kw: ConvolutionNorm(5, 1, norm="frozen", activation=None, **kw),
    "group": lambda **kw: ConvolutionNorm(6, 5, 2, "group", "gelu", **kw),
    "block": lambda **kw: ResidualBlock(12, **kw),
    "strided block": lambda **kw: ResidualBlock(10, 2, norm="group", **kw),
    "bottleneck": lambda **kw: ResidualBlock(3, bottleneck=True, norm="group", **kw),
    "strided bottleneck": lambda **kw: ResidualBlock(5, 2, True, "frozen", **kw),
}


@pytest.mark.parametrize("name", LAYERS)
def test_contract(name):
    policies = POLICIES if not ON_JAX or name == "bottleneck" else {}
    check_layer(LAYERS[name], (X,), policies=policies)


class Equations:
    """The layers in float64, from their weights."""

    def __init__(self, layer):
        self.weights = {w.path.split("/", 1)[1]: np.float64(to_numpy(w)) for w in layer.weights}

    def convolution(self, x, name, stride):
        """With zeros around, position by position."""
        kernel = self.weights[f"{name}convolution/kernel"]
        side = kernel.shape[0]
        padded = np.pad(x, ((0, 0), *2 * ((side // 2, side // 2),), (0, 0)))
        rows, columns = (len(range(0, n, stride)) for n in x.shape[1:3])
        y = np.zeros((len(x), rows, columns, kernel.shape[-1]))
        for row, column in np.ndindex(rows, columns):
            top, left = row * stride, column * stride
            patch = padded[:, top : top + side, left : left + side]
            y[:, row, column] = np.einsum("brci,rcio->bo", patch, kernel)
        return y

    def norm(self, x, name):
        gamma, beta, *measured = (
            self.weights.get(f"{name}norm/{part}")
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if measured[0] is None:  # in groups of channels, over all positions
            groups = next(n for n in range(8, 0, -1) if x.shape[-1] % n == 0)
            parts = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
            measured = [f(parts, axis=(1, 3), keepdims=True) for f in (np.mean, np.var)]
            x = ((parts - measured[0]) / np.sqrt(measured[1] + 1e-5)).reshape(x.shape)
            return x * gamma + beta
        return (x - measured[0]) / np.sqrt(measured[1] + 1e-5) * gamma + beta

    def both(self, x, name="", stride=1):
        return self.norm(self.convolution(x, name, stride), name)


def random(layer):
    """Built, with random weights and positive variances."""
    randomised(layer, X.shape)
    for weight in layer.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(0.5 + np.abs(to_numpy(weight)))
    return layer


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("kernel_size", "stride"), [(1, 1), (3, 2), (5, 3), (1, 2)])
def test_a_convolution_has_as_many_zeros_before_the_grid_as_after(kernel_size, stride, norm):
    layer = random(ConvolutionNorm(6, kernel_size, stride, norm))
    expected = np.maximum(Equations(layer).both(np.float64(X), stride=stride), 0)
    assert_close(layer(X), np.float32(expected), 1e-4)
    assert layer.compute_output_shape(X.shape) == expected.shape


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_residual_block_is_its_equation(bottleneck, stride, norm):
    layer = random(ResidualBlock(12 // (4 if bottleneck else 1), stride, bottleneck, norm))
    equations, y = Equations(layer), np.float64(X)
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    for i, step in enumerate(strides):
        y = equations.both(y, f"convolution_{i}/", step)
        y = y if i == len(strides) - 1 else np.maximum(y, 0)
    x = equations.both(np.float64(X), "short_cut/", 2) if stride == 2 else np.float64(X)
    assert (layer.short_cut is None) == (stride == 1)  # the width stays what it is
    assert_close(layer(X), np.float32(np.maximum(x + y, 0)), 2e-4)


def test_a_block_of_another_width_has_a_short_cut():
    layer = ResidualBlock(5)
    assert tuple(layer(X).shape) == (3, 5, 7, 5)
    assert layer.short_cut is not None


def test_a_frozen_norm_neither_learns_nor_measures():
    layer = random(ConvolutionNorm(5, norm="frozen", activation=None))
    assert [w.path.split("/")[-1] for w in layer.trainable_weights] == ["kernel"]
    before = [to_numpy(weight) for weight in layer.weights]
    assert_close(layer(X, training=True), layer(X, training=False), 0)
    for weight, old in zip(layer.weights, before, strict=True):
        assert_close(weight.value, old, 0)


def test_a_batch_norm_measures_in_training_only():
    layer = random(ConvolutionNorm(5, activation=None))
    mean = layer.norm_layer.moving_mean
    before = to_numpy(mean)
    layer(X, training=False)
    assert_close(mean.value, before, 0)
    y = to_numpy(layer(X, training=True))
    gamma, beta = (to_numpy(w) for w in (layer.norm_layer.gamma, layer.norm_layer.beta))
    assert_close(y.mean(axis=(0, 1, 2)), beta, 1e-4)
    assert_close(y.std(axis=(0, 1, 2)), np.abs(gamma), 1e-3)
    now = to_numpy(layer.convolution(np.pad(X, ((0, 0), (1, 1), (1, 1), (0, 0)))))
    assert_close(mean.value, 0.9 * before + 0.1 * now.mean(axis=(0, 1, 2)), 1e-4)


@given(image=st.integers(0, 2))
def test_a_group_norm_sees_one_image_alone(image):
    layer = randomised(ResidualBlock(5, norm="group"), X.shape)
    alone = layer(X[image : image + 1], training=True)
    assert_close(to_numpy(layer(X, training=True))[image : image + 1], alone, 1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConvolutionNorm(0), "must be positive.*filters=0"),
        (lambda: ConvolutionNorm(3, 4), "`kernel_size` odd.*kernel_size=4"),
        (lambda: ConvolutionNorm(3, stride=0), "stride=0"),
        (lambda: ConvolutionNorm(3, norm="layer"), "one of batch, frozen, group.*'layer'"),
        (lambda: ResidualBlock(-1), "filters=-1"),
        (lambda: ConvolutionNorm(3, name="stem")(X[0]), r"'stem': `x` must have shape.*\(5, 7, 12"),
        (lambda: ResidualBlock(3, name="first")(X[0]), r"'first': `x` must have shape.*\(5, 7, 12"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
