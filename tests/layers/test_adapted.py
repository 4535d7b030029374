"""Claims about layers with adapters: the formulas of LoRA, rsLoRA and DoRA."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import SelfAttention, TokenEmbedding
from keras_transformers.layers.attention.scores import project, project_token
from keras_transformers.training import add_lora, merge
from tests.adapters import fill
from tests.contract import to_numpy

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 13, (3, 5))
KINDS = {"lora": {}, "rslora": {"rslora": True}, "dora": {"dora": True}}


def dense():
    return keras.layers.Dense(11, "tanh"), RNG.normal(size=(3, 5, 7)).astype("float32")


def heads():
    layer = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 11), bias_axes="de")
    return layer, RNG.normal(size=(3, 5, 7)).astype("float32")


def from_heads():
    layer = keras.layers.EinsumDense("abcd,cde->abe", (None, 11), bias_axes="e", activation="tanh")
    return layer, RNG.normal(size=(3, 5, 2, 7)).astype("float32")


LAYERS = {"dense": dense, "heads": heads, "from_heads": from_heads}


def adapted(layer, x, size=0.3, **options):
    """A model of a layer with an adapter that has values, and these."""
    model = keras.Sequential([layer])
    model(x)
    for bias in (each for each in layer.weights if "bias" in each.path):
        bias.assign(RNG.normal(size=bias.shape))
    plain = [to_numpy(each).astype("float64") for each in layer.weights]
    add_lora(model, rank=3, alpha=5.0, targets=".*", **options)
    return model, plain, fill(model, size=size)[layer.name]


def changed(kernel, arrays, scale):
    """`g (W + s A B)` in float64."""
    a, b = (arrays[key].astype("float64") for key in ("lora_a", "lora_b"))
    whole = kernel.reshape(a.shape[0], b.shape[1]) + scale * a @ b
    if "magnitude" in arrays:
        whole = whole * arrays["magnitude"] / np.sqrt((whole**2).sum(0))
    return whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_product_is_that_with_the_changed_kernel(name, kind):
    layer, x = LAYERS[name]()
    model, (kernel, bias), arrays = adapted(layer, x, **KINDS[kind])
    scale = 5 / 3**0.5 if kind == "rslora" else 5 / 3
    y = x.reshape(15, -1) @ changed(kernel, arrays, scale) + bias.reshape(-1)
    y = y if layer.activation is keras.activations.linear else np.tanh(y)
    np.testing.assert_allclose(to_numpy(model(x)).reshape(15, -1), y, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_table_are_those_of_the_changed_table(kind):
    model, (table,), arrays = adapted(keras.layers.Embedding(13, 7), IDS, **KINDS[kind])
    scale = 5 / 3**0.5 if kind == "rslora" else 5 / 3
    expected = changed(table, arrays, scale)[IDS]
    np.testing.assert_allclose(to_numpy(model(IDS)), expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_table_is_changed_both_ways(tied, kind):
    layer = TokenEmbedding(13, 7, scale=False, logits_bias=True, tie_weights=tied)
    _, (table, *others, bias), arrays = adapted(layer, IDS, **KINDS[kind])
    table = changed(table, arrays, 5 / 3**0.5 if kind == "rslora" else 5 / 3)
    x = RNG.normal(size=(3, 5, 7)).astype("float32")
    logits = x @ (table if tied else others[0]).T + bias
    np.testing.assert_allclose(to_numpy(layer(IDS)), table[IDS], atol=2e-5)
    np.testing.assert_allclose(to_numpy(layer.logits(x)), logits, atol=2e-5)
    np.testing.assert_allclose(to_numpy(layer.step_logits(x)), logits, atol=2e-5)
    np.testing.assert_allclose(
        to_numpy(layer.output_table), table if tied else others[0], atol=2e-5
    )


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_products_side_by_side_and_of_a_single_token_are_the_layers_own(kind):
    x = RNG.normal(size=(1, 5, 8)).astype("float32")
    layers = [
        keras.layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de") for _ in "qkv"
    ]
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, [layer(inputs) for layer in layers])
    add_lora(model, rank=2, targets=[layer.name for layer in layers[:2]], **KINDS[kind])
    fill(model)
    for layer, y, part in zip(layers, model(x), project(x, *layers), strict=True):
        np.testing.assert_allclose(to_numpy(part), to_numpy(y), atol=1e-5)
        token = project_token(layer, ops.convert_to_tensor(x[:, :1]))
        np.testing.assert_allclose(to_numpy(token), to_numpy(y)[:, :1], atol=1e-5)


def test_dropout_acts_on_what_a_is_multiplied_with_in_training_alone():
    layer, x = keras.layers.Dense(11), np.ones((5, 8), "float32")
    model, (kernel, bias), arrays = adapted(layer, x, dropout=0.5)
    base, change = x @ kernel + bias, arrays["lora_a"].astype("float64")
    y = to_numpy(model(x, training=True)).astype("float64") - base
    # Each row is `s (2 d A) B` with zeros and ones `d`, which are found again.
    low = y @ np.linalg.pinv(arrays["lora_b"].astype("float64")) * 3 / 5
    kept = 2 * (np.arange(256)[:, None] >> np.arange(8) & 1) @ change
    assert np.abs(low[:, None] - kept).max(-1).min(1).max() < 1e-4
    np.testing.assert_allclose(
        to_numpy(model(x)), base + 5 / 3 * x @ change @ arrays["lora_b"], atol=1e-5
    )


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantised_base_passes_gradients_on(mode):
    layer, x = keras.layers.Dense(11), RNG.normal(size=(5, 8)).astype("float32")
    model = keras.Sequential([layer])
    model(x)
    model.quantize(mode)
    base = to_numpy(model(x))
    kernel = to_numpy(model(np.eye(8, dtype="float32"))).astype("float64")  # one-hot rows are exact
    add_lora(model, rank=2, alpha=2, targets=".*", dora=True)
    np.testing.assert_allclose(to_numpy(model(x)), base, atol=1e-5)
    arrays = fill(model)[layer.name]
    whole = changed(kernel, arrays, 1)
    gain = arrays["magnitude"] / np.linalg.norm(
        kernel + arrays["lora_a"] @ arrays["lora_b"], axis=0
    )
    expected = (base + x @ arrays["lora_a"] @ arrays["lora_b"]) * gain
    np.testing.assert_allclose(to_numpy(model(x)), expected, atol=2e-5)
    gradient = gradient_of(lambda x: ops.sum(model(x)), x)
    np.testing.assert_allclose(gradient, np.tile(whole.sum(1), (5, 1)), atol=2e-5)


def test_logits_of_a_quantised_table_pass_gradients_on():
    layer = TokenEmbedding(13, 7, scale=False)
    layer.build()
    x = RNG.normal(size=(5, 7)).astype("float32")
    layer.quantize("int8")
    table = to_numpy(layer(np.arange(13)[None]))[0]
    gradient = gradient_of(lambda x: ops.sum(layer.logits(x)), x)
    np.testing.assert_allclose(gradient, np.tile(table.sum(0), (5, 1)), atol=1e-5)


def gradient_of(function, x):
    """Of a function that gives a scalar, on the backend at hand."""
    x, backend = ops.convert_to_tensor(x), keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return to_numpy(tape.gradient(value, x))
    if backend == "jax":
        import jax

        return to_numpy(jax.grad(function)(x))
    x.requires_grad_(True)
    function(x).backward()
    return to_numpy(x.grad)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads TensorFlow's graph")
@pytest.mark.parametrize("kernels", ["trained", "frozen", "adapted"])
def test_frozen_kernels_are_not_copied_side_by_side(kernels):
    """A copy would be kept for the gradient of the input, as large as the kernels."""
    import tensorflow as tf

    x = RNG.normal(size=(2, 5, 12)).astype("float32")
    layer = SelfAttention(2)
    model = keras.Sequential([layer])
    model(x)
    layer.trainable = kernels == "trained"
    if kernels == "adapted":
        add_lora(model, rank=2, targets="attention")
    graph = tf.function(lambda x: layer(x, training=True)).get_concrete_function(x).graph
    joined = [each for each in graph.get_operations() if each.type == "ConcatV2"]
    wide = [each for each in joined if each.outputs[0].shape.as_list() == [12, 36]]
    assert len(wide) == (kernels == "trained")


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_in_half_precision_it_is_the_same_roughly(policy):
    x = RNG.normal(size=(2, 5, 8)).astype("float32")
    model = keras.Sequential([SelfAttention(2, dtype=policy)])
    model(x)
    add_lora(model, rank=2, targets="attention", dora=True)
    fill(model, size=0.1)
    assert {str(each.dtype) for each in model.trainable_variables} == {"float32"}
    y = to_numpy(model(x)).astype("float32")
    merge(model)
    np.testing.assert_allclose(to_numpy(model(x)).astype("float32"), y, atol=5e-2)


def test_kerass_own_lora_stays_as_it_is():
    x = RNG.normal(size=(2, 5, 8)).astype("float32")
    layer = SelfAttention(2)
    layer(x)
    query = layer.query_dense
    query.enable_lora(2)
    query.lora_kernel_b.assign(RNG.normal(size=query.lora_kernel_b.shape))
    assert np.abs(to_numpy(project(x, query)[0]) - to_numpy(query(x))).max() < 1e-5
    with pytest.raises(ValueError, match="Keras's own LoRA"):
        add_lora(keras.Sequential([keras.Input((5, 8)), layer]), targets="query")
