"""Claims about attention that makes no weights: it is the plain one, and sooner done."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.core.backend import portable
from keras_transformers.inspection import attention_maps
from keras_transformers.layers import (
    AttentionPositionEncoding,
    CausalSelfAttention,
    GridRelativeBias,
    LinearAttention,
    RotaryEmbedding,
    SelfAttention,
    ShawRelativePosition,
)
from keras_transformers.layers.attention import kernels
from keras_transformers.layers.attention.kernels import Pairs, blockwise_attention
from tests.contract import assert_close, to_numpy
from tests.oracles import softmax
from tests.ways import CASES, LENGTH, X, apart, one_way, output_and_gradients

ROOT = pathlib.Path(__file__).parent.parent.parent
COMPILED = ("padding", "grouped, rotary", "dropout, grouped, T5")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradients_are_those_of_the_plain_way(name):
    assert apart(name, xla=name in COMPILED) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_they_are_on_every_backend_and_by_keras_s_operation(backend):
    process = subprocess.run(
        [sys.executable, "-m", "tests.ways"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    assert process.returncode == 0, process.stderr[-4000:]
    found = json.loads(process.stdout.splitlines()[-1])
    assert len(found) >= len(CASES)
    assert max(found.values()) < 1e-5, found


def test_half_precision_is_as_near_to_float32_as_the_plain_way_is():
    with one_way(plain=True):
        expected = output_and_gradients("causal")
    for dtype, tolerance in (("mixed_float16", 1e-2), ("mixed_bfloat16", 6e-2)):
        with one_way(plain=False):
            received = output_and_gradients("causal", dtype)
        for x, y in zip(expected, received, strict=True):
            np.testing.assert_allclose(y, x, atol=tolerance * max(1, np.abs(x).max()))


def test_the_output_is_that_of_the_equation_in_float64():
    query, key, value = (RNG.normal(size=(2, 4, n, 6)).astype("float32") for n in (31, 43, 43))
    mask = RNG.random((2, 1, 31, 43)) < 0.5
    mask[1, :, 7] = False
    bias = RNG.normal(size=(1, 4, 1, 43)).astype("float32")
    by_distance = RNG.normal(size=(4, 31 + 43 - 1)).astype("float32")
    with one_way(plain=False):
        received = blockwise_attention(
            *map(ops.convert_to_tensor, (query, key, value)),
            pairs=Pairs(*map(ops.convert_to_tensor, (mask, bias, by_distance))),
        )
    distance = np.arange(43)[None, :] - np.arange(31)[:, None]
    scores = np.einsum("bhqd,bhkd->bhqk", np.float64(query), key)
    weights = softmax(scores + bias + by_distance[:, distance + 30], mask)
    assert_close(received, np.einsum("bhqk,bhkd->bhqd", weights, value), 1e-5)
    np.testing.assert_array_equal(to_numpy(received)[1, :, 7], 0)


def test_queries_that_see_nothing_get_zeros_whatever_stands_at_padding():
    mask = np.arange(LENGTH) < np.array([[LENGTH], [0]])
    layer = SelfAttention(3, use_bias=False)
    with one_way(plain=False):
        x = X.copy()
        x[1] = np.nan
        np.testing.assert_array_equal(to_numpy(layer(x, mask=mask))[1], 0)


def test_no_query_sees_what_comes_later():
    later = X.copy()
    later[:, 20:] = 1e3
    layer = CausalSelfAttention(3, position=RotaryEmbedding())
    with one_way(plain=False):
        np.testing.assert_array_equal(to_numpy(layer(later))[:, :20], to_numpy(layer(X))[:, :20])


class Prefix(CausalSelfAttention):
    """The first eight tokens see one another both ways: a causal mask is not all of it."""

    def make_mask(self, query, key, attention_mask, padding, causal):
        mask = super().make_mask(query, key, attention_mask, padding, causal)
        prefix = ops.arange(ops.shape(key)[1]) < 8
        return ops.logical_or(mask, ops.logical_and(prefix[:, None], prefix))


def test_a_mask_of_ones_own_is_heeded():
    layer = Prefix(3)
    with one_way(plain=True):
        expected = layer(X)
    with one_way(plain=False):
        assert_close(layer(X), expected, 1e-5)


def test_a_prompt_is_taken_in_as_a_call_computes_it():
    layer = CausalSelfAttention(3)
    with one_way(plain=True):
        expected = layer(X)
    with one_way(plain=False):
        cache = layer.start_cache(len(X), 1, LENGTH)
        assert_close(layer.prefill(ops.convert_to_tensor(X), cache, 1)[0], expected, 1e-5)


def test_weights_are_made_for_those_who_ask():
    layer = SelfAttention(3)
    with one_way(plain=False):
        y, weights = layer(X, return_attention_scores=True)
        assert_close(layer(X), y, 1e-5)
        model = keras.Sequential([keras.Input(X.shape[1:]), layer])
        (seen,) = attention_maps(model, X).values()
    assert_close(seen, weights, 1e-6)
    assert_close(ops.sum(weights, axis=-1), np.ones(weights.shape[:-1]), 1e-5)


class Elsewhere(AttentionPositionEncoding):
    def bias(self, query, query_positions, key_positions):
        return -ops.cast(query_positions[:, None] != key_positions[None, :], "float32")


@pytest.mark.parametrize(
    "layer",
    [
        SelfAttention(3, score="additive"),
        SelfAttention(3, position=ShawRelativePosition(4)),
        SelfAttention(3, position=GridRelativeBias((3, 3))),
        SelfAttention(3, position=Elsewhere()),
    ],
    ids=["score", "values of positions", "grid", "a term of one's own"],
)
def test_what_is_more_than_products_goes_the_plain_way(layer):
    assert kernels.way_of(layer, np.zeros((1, 4096, 12)), np.zeros((1, 4096, 12)), False) == "plain"


def test_short_and_unknown_lengths_and_portable_programs_go_the_plain_way():
    def way(layer, queries, keys):
        return kernels.way_of(
            layer, keras.KerasTensor((1, queries, 12)), keras.KerasTensor((1, keys, 12)), False
        )

    layer = SelfAttention(3)
    assert way(layer, 1024, 1024) == way(layer, 512, 512) != "plain"
    assert way(layer, 511, 512) == way(layer, None, 1024) == "plain"
    with portable(object()):
        assert way(layer, 1024, 1024) == "plain"


def test_attention_of_another_kind_is_left_alone():
    layer = LinearAttention(3)
    with one_way(plain=True):
        expected = to_numpy(layer(X))
    with one_way(plain=False):
        np.testing.assert_array_equal(to_numpy(layer(X)), expected)
