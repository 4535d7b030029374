"""Claims about layers in few bits on which something else is trained."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import EncoderBlock, TokenEmbedding
from tests.contract import ON_JAX, assert_close, to_numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 12)).astype("float32")
BACKEND = keras.backend.backend()


def gradient_of_inputs(function, x, upstream):
    """Of the sum of the outputs times `upstream`, in the inputs."""
    if ON_JAX:
        import jax

        return jax.grad(lambda x: ops.sum(function(x) * upstream))(x)
    if BACKEND == "torch":
        x = ops.convert_to_tensor(x).requires_grad_()
        ops.sum(function(x) * ops.convert_to_tensor(upstream)).backward()
        return x.grad
    import tensorflow as tf

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) * upstream)
    return tape.gradient(y, x)


def in_floats(layer, size):
    """The numbers that the 4-bit integers of a layer stand for, in groups of `size` inputs."""
    kernel, scale = to_numpy(layer.kernel), to_numpy(layer.kernel_scale)
    integers = np.reshape(kernel, (-1, scale.shape[-1])).astype("float64")
    if size is None:
        return np.reshape(integers / scale, kernel.shape)
    group = np.arange(len(integers)) // size
    zero = to_numpy(layer.kernel_zero).astype("float64")
    return np.reshape((integers - zero[group]) * scale[group], kernel.shape)


@pytest.mark.filterwarnings("ignore:.*quantize.*")
@pytest.mark.parametrize("size", [None, 5])
def test_gradients_pass_through_a_block_of_four_bits(size):
    """As through the same numbers in floats: what an adapter in an earlier layer needs."""
    block, twin = EncoderBlock(2, 13, norm_first=True), EncoderBlock(2, 13, norm_first=True)
    block.build(X.shape)
    twin.build(X.shape)
    twin.set_weights(block.get_weights())
    model = keras.Sequential([block])
    model.build(X.shape)
    model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=size))
    pairs = zip(block._flatten_layers(), twin._flatten_layers(), strict=True)
    quantised = [(one, other) for one, other in pairs if one.quantization_mode]
    assert len(quantised) == 6
    for one, other in quantised:
        other.kernel.assign(in_floats(one, size))
    upstream = RNG.normal(size=X.shape).astype("float32")
    expected = gradient_of_inputs(twin, X, upstream)
    assert_close(model(X), to_numpy(twin(X)), 1e-5)
    assert_close(gradient_of_inputs(model, X, upstream), to_numpy(expected), 1e-5)


@pytest.mark.parametrize("rows", [(1, 1), (3, 5)])
def test_gradients_pass_through_a_table_of_eight_bits(rows):
    layer = TokenEmbedding(13, 12)
    layer.build()
    layer.quantize("int8")
    table = to_numpy(layer.table)[:13] / to_numpy(layer.table_scale)[:13, None]
    x, upstream = (RNG.normal(size=(*rows, n)).astype("float32") for n in (12, 13))
    for logits in (layer.logits, layer.step_logits):
        assert_close(gradient_of_inputs(logits, x, upstream), upstream @ table, 1e-5)
