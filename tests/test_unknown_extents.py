"""Extents that only the call knows: a graph answers, and refuses, as an eager call does."""

import keras
import numpy as np
import pytest

from keras_transformers import layers
from tests.contract import ON_JAX, assert_close, to_numpy
from tests.every_layer import EVERY
from tests.every_model import IDS, IMAGES, MODELS, OF_TOKENS

if ON_JAX:
    pytest.skip("JAX knows every extent when it compiles", allow_module_level=True)
tf = pytest.importorskip("tensorflow")

SIGNAL = np.arange(48, dtype="float32").reshape(4, 12, 1)
GRID = np.arange(96, dtype="float32").reshape(2, 4, 12, 1)
WINDOWS = np.arange(192, dtype="float32").reshape(6, 16, 2)
PARTS = ("SelfAttention", "DeformableAttention")  # which refuse what their blocks are given
FUNCTIONS = {
    "patchify a signal": (lambda x: layers.patchify(x, 4), SIGNAL),
    "patchify": (lambda x: layers.patchify(x, (2, 4)), GRID),
    "unpatchify": (lambda x: layers.unpatchify(x, 4, (4,)), WINDOWS[..., :1].reshape(6, 4, 4)),
    "partition_windows": (lambda x: layers.partition_windows(x, (2, 4)), GRID),
    "merge_windows": (lambda x: layers.merge_windows(x, 4, (8, 12)), WINDOWS),
}


def unknown(x):
    """What a graph is traced for: only the width of floating inputs is known."""
    width = x.shape[-1] if x.dtype == "float32" else None
    return tf.TensorSpec([None] * (x.ndim - 1) + [width], x.dtype)


def others(x):
    """`x`, and with an extent more or less along each axis that a graph does not know."""
    yield x
    axes = range(1, x.ndim - (x.dtype == "float32"))
    for axis in axes:
        yield np.concatenate([x, x], axis)
        for more in (1, -1):
            yield np.take(x, np.arange(x.shape[axis] + more) % x.shape[axis], axis)


def outcome(function, *inputs):
    """The outputs, or the error's text."""
    try:
        return to_numpy(function(*map(tf.convert_to_tensor, inputs)))
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        return str(error)


def assert_as_eagerly(function, inputs, names, graph=None, tolerance=1e-5, first=others):
    """The graph gives what eager calls give, and refuses in a sentence what they refuse."""
    graph = graph or tf.function(function, input_signature=list(map(unknown, inputs)))
    refused = 0
    for x in first(inputs[0]):
        expected, found = (outcome(run, x, *inputs[1:]) for run in (function, graph))
        if isinstance(expected, str):
            assert isinstance(found, str), f"shape {x.shape} is answered"
            assert any(name in found for name in names), found
            refused += 1
        else:
            assert not isinstance(found, str), found
            assert_close(found, expected, tolerance)
    return refused


@pytest.mark.parametrize("name", EVERY)
def test_layers(name):
    case = EVERY[name]
    layer = case.make()
    layer(*case.inputs)
    assert_as_eagerly(layer, case.inputs, (type(layer).__name__, name, *PARTS))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, x = FUNCTIONS[name]
    assert assert_as_eagerly(function, (x,), (name.split()[0],)) >= 2


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model = MODELS[name](0.0)
    if name in OF_TOKENS:
        if name in ("transformer", "recurrent"):
            model({"source": IDS, "target": IDS})

            def run(ids):
                return model({"source": ids, "target": ids})
        else:
            run = model
        assert_as_eagerly(run, (IDS[:2],), (type(model).__name__,))
        return
    model(IMAGES[:1])

    def sizes(images):  # another grid, a side that patches do not fill, and a side of one patch
        yield from (images, np.concatenate([images, images], 2), images[:, :30], images[:, :, :8])

    def draw(images):  # the noise, which a call draws, given
        patches = images.shape[1] // 8 * (images.shape[2] // 8) if images.shape[1] else None
        count = patches or tf.shape(images)[1] // 8 * (tf.shape(images)[2] // 8)
        noise = tf.sin(tf.range(2 * count, dtype="float32") * 7)
        return model.reconstruct(images, tf.reshape(noise, (2, count)))

    run = draw if name == "mae" else model
    refused = assert_as_eagerly(run, (IMAGES[:2],), ("ViT", "Patch"), first=sizes)
    assert refused == (1 if name in ("vit", "mae") else 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_xla_refuses_too(name):
    """It leaves assertions out, so that no more than a failure can be asked of it."""
    function, x = FUNCTIONS[name]
    compiled = tf.function(function, input_signature=[unknown(x)], jit_compile=True)
    assert_close(compiled(x), function(x), 0)
    wrong = x[:, 2:] if "signal" in name else x[:, 1:]  # whose values would fill patches of others
    with pytest.raises(tf.errors.InvalidArgumentError):
        compiled(wrong)


def test_xla_refuses_texts_longer_than_the_table():
    layer = layers.PositionEmbedding(5)
    layer.build((None, None, 2))
    compiled = tf.function(
        layer, input_signature=[tf.TensorSpec((None, None, 2))], jit_compile=True
    )
    x = np.zeros((2, 6, 2), "float32")
    assert_close(compiled(x[:, :5]), layer(x[:, :5]), 0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        compiled(x)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_of_a_vit_follow_the_shape_in_the_call(positions):
    """Against a model that is made for that size."""
    from keras_transformers.models import ViT

    sizes = {"patch_size": 4, "hidden_dim": 8, "num_heads": 2, "mlp_dim": 16, "num_layers": 1}
    model = ViT.from_variant("B/16", 3, image_size=8, positions=positions, **sizes)
    i = keras.Input((None, None, 3))
    served = keras.Model(i, model(i))
    images = np.random.default_rng(3).normal(size=(2, 4, 16, 3)).astype("float32")
    fixed = model.transferred(image_size=(4, 16))
    run = tf.function(served, input_signature=[tf.TensorSpec((None, None, None, 3))])
    assert_close(run(images), fixed(images), 1e-5)
    square = images.reshape(2, 8, 8, 3)
    assert_close(run(square), model(square), 1e-5)
