"""Claims about the position-wise networks."""

import re

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.layers import FeedForward, GatedFeedForward
from keras_transformers.training import add_lora
from tests.contract import assert_close, check_layer, to_numpy

BATCH, LENGTH, WIDTH, HIDDEN = 3, 5, 7, 13
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
LAYERS = pytest.mark.parametrize("layer_class", [FeedForward, GatedFeedForward])


def random_weights(layer, seed=0):
    """Builds a layer and gives it weights, biases included, that are not zero."""
    layer.build((None, None, WIDTH))
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.get_weights()])
    return {weight.path.split("/", 1)[1]: np.float64(weight) for weight in layer.weights}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def affine(x, weights, name):
    return np.float64(x) @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


@pytest.mark.parametrize("settings", [{}, {"activation": "gelu", "use_bias": False}])
@LAYERS
def test_contract(layer_class, settings):
    check_layer(lambda **kwargs: layer_class(HIDDEN, dropout=0.1, **settings, **kwargs), (X,))


def test_it_is_two_linear_maps_with_a_relu_between():
    layer = FeedForward(HIDDEN)
    weights = random_weights(layer)
    hidden = np.maximum(affine(X, weights, "hidden"), 0)
    expected = affine(hidden, weights, "output")
    assert_close(layer(X), expected, 1e-6 * np.abs(expected).max())


def test_the_gated_one_is_swiglu():
    layer = GatedFeedForward(HIDDEN)
    weights = random_weights(layer)
    gate = affine(X, weights, "gate")
    expected = affine(gate * sigmoid(gate) * affine(X, weights, "hidden"), weights, "output")
    assert_close(layer(X), expected, 1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("use_bias", [True, False])
def test_the_number_of_parameters_is_that_of_the_formula(use_bias):
    plain, gated = (layer(HIDDEN, use_bias=use_bias) for layer in (FeedForward, GatedFeedForward))
    plain.build((None, WIDTH))
    gated.build((None, WIDTH))
    assert plain.count_params() == 2 * WIDTH * HIDDEN + use_bias * (HIDDEN + WIDTH)
    assert gated.count_params() == 3 * WIDTH * HIDDEN + use_bias * (2 * HIDDEN + WIDTH)


@LAYERS
@given(order=st.permutations(range(LENGTH)))
def test_every_token_is_treated_alike(layer_class, order):
    layer = layer_class(HIDDEN)
    assert_close(layer(X[:, order]), to_numpy(layer(X))[:, order], 2e-6)


@pytest.mark.parametrize("shape", [(WIDTH,), (2, WIDTH), (2, 3, 5, WIDTH)])
@LAYERS
def test_any_number_of_axes_may_stand_before_the_width(layer_class, shape):
    layer = layer_class(HIDDEN)
    x = np.ones((BATCH, *shape), "float32")
    flat = layer(x.reshape(-1, WIDTH))
    assert_close(layer(x), to_numpy(flat).reshape(x.shape), 1e-6)


@pytest.mark.parametrize("rows", [(1, 1), (1, 4), (3, 1)])
@pytest.mark.parametrize("use_bias", [True, False])
@LAYERS
def test_a_step_is_a_call_without_dropout(layer_class, use_bias, rows):
    """One row goes another way, see `project_token`."""
    x = np.random.default_rng(1).normal(size=(*rows, 12)).astype("float32")
    layer = layer_class(20, dropout=0.5, use_bias=use_bias)
    layer.build((None, None, 12))
    assert_close(layer.step(x), layer(x, training=False), 1e-6)


@LAYERS
def test_dropout_acts_in_training_only(layer_class):
    layer = layer_class(HIDDEN, dropout=0.5, seed=3)
    assert_close(layer(X, training=False), layer(X), 0)
    assert np.any(to_numpy(layer(X, training=True)) != to_numpy(layer(X)))


def network_in_training(adapted=False):
    """A function of the input, that gives the output and gradients; and the layer's weights."""
    import tensorflow as tf

    layer = FeedForward(HIDDEN)
    weights = random_weights(layer)
    model = keras.Sequential([layer])
    model(X)
    if adapted:
        add_lora(model, rank=2, targets=".*")

    @tf.function(jit_compile=True, autograph=False)
    def run(x):
        trained = [weight.value for weight in layer.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            total = tf.reduce_sum(y * y)
        return y, tape.gradient(total, [x, *trained])

    return run, weights


TENSORFLOW = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its gradients")


@TENSORFLOW
def test_gradients_through_the_relu_are_those_of_the_formula():
    run, weights = network_in_training()
    y, (of_x, *of_weights) = run(keras.ops.convert_to_tensor(X))
    x = np.float64(X).reshape(-1, WIDTH)
    hidden = np.maximum(affine(x, weights, "hidden"), 0)
    expected = affine(hidden, weights, "output")
    of_hidden = 2 * expected @ weights["output/kernel"].T * (hidden > 0)
    assert_close(to_numpy(y).reshape(expected.shape), expected, 1e-5 * np.abs(expected).max())
    gradients = {
        "hidden/kernel": x.T @ of_hidden,
        "hidden/bias": of_hidden.sum(0),
        "output/kernel": hidden.T @ (2 * expected),
        "output/bias": 2 * expected.sum(0),
    }
    of_weights = dict(zip(weights, of_weights, strict=True))
    for name, right in gradients.items():
        assert_close(of_weights[name], right, 1e-5 * np.abs(right).max())
    right = of_hidden @ weights["hidden/kernel"].T
    assert_close(to_numpy(of_x).reshape(right.shape), right, 1e-5 * np.abs(right).max())


@TENSORFLOW
@pytest.mark.parametrize("adapted", [False, True])
def test_the_gradient_of_the_relu_keeps_its_output_alone(adapted):
    """Of the compiled program: products that the ReLU is computed from are read for it only."""
    run, _ = network_in_training(adapted)
    program = run.experimental_get_compiler_ir(keras.ops.convert_to_tensor(X))("optimized_hlo")
    program = program[program.index("ENTRY") :]
    wide = rf"(%[\w.\-]+) = f32\[{BATCH * LENGTH},{HIDDEN}\]\S* "
    products = re.findall(wide + r"(?:dot|custom-call)\(", program)
    assert len(products) >= (4 if adapted else 2)  # of the input, and in the gradient
    uses = [len(re.findall(re.escape(name) + r"[,)]", program)) for name in products]
    assert uses == [1] * len(products)


def test_what_is_no_number_stays_none_in_training():
    layer = FeedForward(HIDDEN)
    layer.build(X.shape)
    assert np.isnan(to_numpy(layer(np.full_like(X, np.nan), training=True))).all()


@LAYERS
def test_any_keras_activation_will_do(layer_class):
    by_name, by_function = (
        layer_class(HIDDEN, activation) for activation in ("tanh", keras.activations.tanh)
    )
    by_name.build(X.shape)
    by_function.build(X.shape)
    by_function.set_weights(by_name.get_weights())
    assert_close(by_name(X), by_function(X), 0)
    assert by_function.get_config()["activation"] == "tanh"


@LAYERS
def test_errors_name_the_layer_the_argument_and_what_was_received(layer_class):
    name = layer_class.__name__
    with pytest.raises(ValueError, match=f"{name} .*: `mlp_dim` must be a positive integer.*: 0"):
        layer_class(0)
    with pytest.raises(ValueError, match=rf"{name} 'net': `x` must.*known width.*\(7,\)"):
        layer_class(HIDDEN, name="net").build((7,))
