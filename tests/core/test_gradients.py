"""Claims about functions that have a gradient of their own: all derivatives are right."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.core.backend import custom_gradient
from keras_transformers.layers import FeedForward, SelfAttention
from keras_transformers.layers.attention.scores import _additive_scores
from keras_transformers.layers.feed_forward import _lean_relu
from keras_transformers.training import linear_cross_entropy, token_cross_entropy
from tests import derivatives
from tests.contract import assert_close
from tests.slow import slow_except
from tests.ways import CASES, function_of, one_way

RNG = np.random.default_rng(0)
LABELS = np.array([[3, 1, 0], [2, 4, 4]])  # 0 is padding
BOTH = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="the backends on which people ask for these"
)


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


def smoothed(logits, eps=0.1):
    """The losses by their equation."""
    chosen = ops.one_hot(LABELS, 7, dtype="float32") * (1 - eps) + eps / 7
    return ops.where(LABELS != 0, -ops.sum(chosen * ops.log_softmax(logits), axis=-1), 0.0)


def of_states(x, table, bias):
    return smoothed(ops.matmul(x, ops.transpose(table)) + bias)


def linear(x, table, bias, weights=None):
    return linear_cross_entropy(x, table, LABELS, bias, 0.1, weights=weights).losses


# Name -> function, the same by its equation, arrays.
FUNCTIONS = {
    "relu": (_lean_relu, ops.relu, (numbers(4, 3),)),
    "additive scores": (
        _additive_scores,
        lambda q, k, v: ops.sum(
            v[:, :, None, None] * ops.tanh(q[..., None, :] + k[..., None, :, :]), axis=-1
        ),
        (numbers(2, 1, 2, 3, 5), numbers(2, 1, 1, 4, 5), numbers(1, 2, 5)),
    ),
    "token cross-entropy": (
        lambda z: token_cross_entropy(LABELS, z, 0.1)[0],
        smoothed,
        (numbers(2, 3, 7),),
    ),
    "linear cross-entropy": (linear, of_states, (numbers(2, 3, 4), numbers(7, 4), numbers(7))),
    "linear cross-entropy, known weights": (
        # Its gradient is that of the weighted sum, and of nothing else.
        lambda *x: ops.sum(linear(*x, weights=np.ones(LABELS.shape, "float32")))[None],
        lambda *x: ops.sum(of_states(*x))[None],
        (numbers(2, 3, 4), numbers(7, 4), numbers(7)),
    ),
}
SLOW = pytest.mark.slow
WAYS = ["xla"]
if keras.backend.backend() == "tensorflow":
    WAYS += [pytest.param(way, marks=SLOW) for way in ("eager", "graph")]
QUICK = ("padding", "dropout, grouped, T5")


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert max(np.abs(x).max() for x in expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-4 * max(1, np.abs(other).max()))


@BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", derivatives.KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_the_equation(name, kind, way):
    function, equation, arrays = FUNCTIONS[name]
    derive = derivatives.KINDS[kind]
    assert_same(derive(function, arrays, way), derive(equation, arrays, way))


@BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", derivatives.KINDS)
@pytest.mark.parametrize("name", slow_except(CASES.keys(), *QUICK))
def test_derivatives_of_blockwise_attention_are_those_of_all_pairs(name, kind, way):
    if (kind, way, keras.backend.backend()) == ("forward_of_gradient", "xla", "tensorflow"):
        way = "graph"  # under XLA TensorFlow itself cannot differentiate `tf.concat` so
    found = []
    for plain in (False, True):
        with one_way(plain):
            found.append(derivatives.KINDS[kind](*function_of(name), way))
    assert_same(*found)


@BOTH
def test_long_inputs_have_every_derivative():
    """Norms are not tried: that of Keras 3.15 on TensorFlow has no exact second derivative."""
    keras.utils.set_random_seed(0)
    attention, network = SelfAttention(2), FeedForward(16, activation="gelu")
    x = numbers(1, 520, 8)
    attention.build(x.shape)
    network.build(x.shape)

    def model(x):
        return network(attention(x))

    def gradient(x):
        return derivatives.gradients(model, [x])[0]

    step = 1e-2 * derivatives.factors(x.shape)
    slope = (np.array(model(x + step)) - np.array(model(x - step))) / 2e-2
    (derivative,) = derivatives.forward(model, [x])
    assert_close(derivative, slope, 5e-3 * np.abs(slope).max())
    slope = (gradient(x + step) - gradient(x - step)) / 2e-2
    for derive in (derivatives.second, derivatives.forward_of_gradient):
        assert_close(derive(model, [x])[0], slope, 5e-3 * np.abs(slope).max())


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX's transformations")
def test_every_transformation_of_jax_composes():
    import jax

    function, arrays = function_of("padding")
    x, *weights = arrays

    def total(x):
        return (function(x, *weights) ** 2).sum()

    with one_way(plain=False):
        rows = jax.vmap(jax.grad(lambda x: total(x)))(np.stack([x, 2 * x]))
        hessian = jax.jit(jax.hessian(lambda x: total(x)))(x)
        _, along = jax.linearize(function, *arrays)
        tangent = along(*(derivatives.factors(x.shape) for x in arrays))
        twice = jax.jvp(lambda x: jax.jvp(total, (x,), (x,))[1], (x,), (x,))[1]
        kept = jax.grad(jax.checkpoint(total))(x)
    with one_way(plain=True):
        expected = jax.grad(total)(2 * x)
        assert_close(rows[1], expected, 1e-5 * np.abs(expected).max())
        expected = jax.grad(total)(x)
        assert_close(kept, expected, 1e-5 * np.abs(expected).max())
        expected = jax.jit(jax.hessian(lambda x: total(x)))(x)
        assert_close(hessian, expected, 1e-4 * np.abs(expected).max())
        assert_close(tangent, derivatives.forward(function, arrays)[0], 1e-4)
        expected = jax.jvp(lambda x: jax.jvp(total, (x,), (x,))[1], (x,), (x,))[1]
        assert_close(twice, expected, 1e-4 * abs(float(expected)))


def test_training_and_inference_compute_a_relu_the_same_way():
    layer, x = FeedForward(8), numbers(2, 3, 4)
    assert_close(layer(x, training=True), layer(x), 1e-6)


@BOTH
def test_a_gradient_may_be_absent():
    from keras_transformers.core.backend import gradient

    scaled = custom_gradient(
        lambda x, factor: (x * factor,),
        lambda tensors, found, upstream: [upstream * tensors[1], None],
        lambda x, factor: x * factor,
    )
    factor = ops.convert_to_tensor(3.0)
    found = gradient(lambda x: ops.sum(scaled(x, factor)), ops.ones(2))
    assert ops.convert_to_numpy(found).tolist() == [3.0, 3.0]
