"""Claims about the kernels of portable programs, against NumPy in float64 and decoding by XLA."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformers.core.backend import portable
from keras_transformers.generation import BeamSearch, Constraints, Greedy, Request, decode, generate
from keras_transformers.layers import LocalAttention, TokenEmbedding
from keras_transformers.layers.attention.scores import project, project_token
from keras_transformers.models import LanguageModel, Transformer
from keras_transformers.tasks.rounds import FEW, SPLIT, TensorFlowKernels
from keras_transformers.training import add_lora
from tests.adapters import fill
from tests.writers import writer_of_all_parts

ROWS = [1, 2, FEW, FEW + 1]
END = 2  # banned below, so that texts are as long as they may be
ENDLESS = Constraints(banned=(END,))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def traced(function, *arrays, unknown):
    """`function` in a graph that knows all sizes but, on request, that of the first axis."""
    shapes = [[None, *x.shape[1:]] if unknown else list(x.shape) for x in arrays]
    signature = [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, arrays, strict=True)]
    return tf.function(function, input_signature=signature)(*arrays).numpy()


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("rows", ROWS)
def test_products_are_those_of_numpy(rows, unknown):
    width = 512
    x, kernel = normal(rows, width), tf.constant(normal(width, SPLIT // width, seed=1))
    exact = x.astype("float64") @ kernel.numpy()
    kernels = TensorFlowKernels()
    close(traced(lambda x: kernels.product(x, kernel), x, unknown=unknown), exact)
    table = tf.transpose(kernel)
    close(traced(lambda x: kernels.table_product(x, table), x, unknown=unknown), exact)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("queries", ROWS)
def test_attention_is_that_of_numpy(queries, batch, unknown):
    query, key, value = normal(batch, 2, queries, 4), normal(batch, 2, 6, 4), normal(batch, 2, 6, 5)
    mask = np.random.default_rng(1).random((batch, 1, queries, 6)) < 0.6
    mask[0, :, 0] = False  # this one may attend to nothing
    kernels = TensorFlowKernels()

    def attend(query, key, value, mask):
        scores = kernels.batch_product(query, key, transposed=True)
        return kernels.batch_product(kernels.softmax(scores, mask), value)

    scores = query.astype("float64") @ np.swapaxes(key, 2, 3)
    weights = np.where(mask, np.exp(scores), 0)
    total = weights.sum(-1, keepdims=True)
    expected = np.divide(weights, total, where=total > 0, out=np.zeros_like(weights)) @ value
    found = traced(attend, query, key, value, mask, unknown=unknown)
    close(found, expected)
    assert not found[0, :, 0].any()


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("shape", [(2, 1, 3, 4), (2, 9, 3, 4), (2, 3, 9, 4), (1, 9, 10, 4)])
def test_swapped_axes_are_those_of_numpy(shape, unknown):
    x = normal(*shape)
    found = traced(TensorFlowKernels().swap, x, unknown=unknown)
    np.testing.assert_array_equal(found, np.swapaxes(x, 1, 2))


def test_a_slice_is_written_where_it_should_be():
    x, new = normal(2, 3, 6, 4), normal(2, 3, 2, 4, seed=1)
    found = TensorFlowKernels().update_slice(tf.constant(x), tf.constant(3), tf.constant(new))
    expected = np.concatenate([x[:, :, :3], new, x[:, :, 5:]], axis=2)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("positions", [3, 4, 9])
def test_a_window_over_a_cache_of_any_size_is_that_of_the_whole_pass(positions, beams):
    layer, x = LocalAttention(2, window_size=4, causal=True), normal(2, positions, 8)
    expected, steps = layer(x), range(positions)  # builds it

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8]), tf.TensorSpec([], "int32")])
    def run(x, positions):
        cache, found = layer.start_cache(ops.shape(x)[0], beams, positions), []
        for index in steps:
            token = tf.repeat(x[:, index, None], beams, axis=1)
            y, cache = layer.step(token, cache, index)
            found.append(y[:, -1])
        return tf.stack(found, axis=1)

    with portable(TensorFlowKernels()):
        close(run(x, positions).numpy(), expected)


# A beam over several rows has all parts of a step; the other ways are slow.
EVERY_WAY = [
    pytest.param(
        kind,
        rows,
        search,
        marks=[] if (kind, rows, beams) == ("translator", None, None) else [pytest.mark.slow],
    )
    for kind in ("translator", "writer")
    for rows in (1, None)
    for beams, search in ((1, Greedy(ENDLESS)), (None, BeamSearch(3, constraints=ENDLESS)))
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "search"),
    [*EVERY_WAY, ("writer of all parts", None, BeamSearch(3, constraints=ENDLESS))],
)
def test_caches_that_grow_change_no_token(kind, rows, search):
    keras.utils.set_random_seed(1)
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 2}
    prompt, most = 5, 77  # twice the first growth, and not a multiple of it
    ids = np.random.default_rng(2).integers(3, 31, (rows or 3, prompt)).astype("int32")
    writes = kind != "translator"
    if writes:
        model = LanguageModel(31, **sizes) if kind == "writer" else writer_of_all_parts()
        model.build((None, None))
        prompts = ids
    else:
        model, prompts = Transformer(31, **sizes), None
        model.build({"source": (None, None), "target": (None, None)})
    given = {"prompt": prompts, "search": search, "max_length": most, "end_id": END}
    expected = generate(model, None if writes else ids, **given)["tokens"]

    signature = [tf.TensorSpec([rows, None], "int32"), tf.TensorSpec([], "int32")]

    @tf.function(input_signature=signature)
    def run(ids, most):
        batch = ops.shape(ids)[0]
        forced = tf.zeros([batch, most], tf.int32)
        if writes:
            forced = tf.concat([ids, forced[:, prompt:]], axis=1)
        request = Request(forced, 1, END, prompt_length=prompt if writes else 0)
        with portable(TensorFlowKernels()):
            return decode(model, ids, search, request, stages=None)["tokens"]

    np.testing.assert_array_equal(run(ids, most).numpy(), expected)


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_products_are_those_with_the_kernels_that_adapters_change(dora):
    ids = keras.Input((None,), dtype="int32")
    embedding = TokenEmbedding(13, 8, name="table")
    dense = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", name="query")
    model = keras.Model(ids, dense(embedding(ids)))
    add_lora(model, rank=2, targets=("table", "query"), dora=dora)
    fill(model)
    x = normal(3, 1, 8)
    with portable(TensorFlowKernels()):
        rows = traced(lambda x: project(x, dense)[0], x, unknown=True)
        token = traced(lambda x: project_token(dense, x), x, unknown=False)
        logits = traced(embedding.step_logits, x, unknown=False)
    close(rows, dense(x).numpy())
    close(token, dense(x).numpy())
    close(logits, embedding.logits(x).numpy())
