"""Claims about attention inside a window, and about attention without a softmax."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    ALiBi,
    CausalSelfAttention,
    GridRelativeBias,
    LinearAttention,
    LocalAttention,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
    ShawRelativePosition,
    segment_mask,
    window_mask,
)
from tests.contract import assert_close, check_layer, compiled, gradients, to_numpy
from tests.oracles import project

BATCH, LENGTH, HEADS, WIDTH = 3, 17, 2, 28
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
PADDING = np.arange(LENGTH) < np.array([[17], [9], [1]])
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
TERMS = {
    "none": lambda: None,
    "rotary": RotaryEmbedding,
    "alibi": ALiBi,
    "t5": lambda: RelativePositionBias(8, 6),
    "shaw": lambda: ShawRelativePosition(3),
}


def full(layer, x, mask=None):
    """What `layer` gives with all pairs and a mask in place of blocks."""
    config = layer.get_config()
    window, causal = config.pop("window_size"), config.pop("causal")
    kind = CausalSelfAttention if causal else SelfAttention
    twin = kind.from_config(config)
    twin.build(x.shape)
    twin.set_weights(layer.get_weights())
    near = window_mask(x.shape[1], window, causal)[None]
    return twin(x, attention_mask=near, x_mask=mask)


# -------------------------------------------------------------------------------- local


@pytest.mark.parametrize(
    "settings",
    [
        {"window_size": 6},
        {"window_size": 5, "causal": True, "position": RotaryEmbedding(), "dropout": 0.2},
        pytest.param(
            {"window_size": 4, "score": "additive", "num_key_value_heads": 1},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["both ways", "causal", "additive"],
)
def test_contract_of_local_attention(settings):
    check_layer(lambda **kwargs: LocalAttention(HEADS, **settings, **kwargs), (X,))


@CAUSAL
@given(st.integers(1, 40), st.integers(2, 23))
def test_local_attention_is_attention_under_a_window_mask(causal, length, window):
    x = np.random.default_rng(length).normal(size=(2, length, 6)).astype("float32")
    layer = LocalAttention(2, window, causal=causal)
    assert_close(layer(x), full(layer, x), 1e-5)


@CAUSAL
def test_local_attention_is_attention_under_a_window_mask_at_length_512(causal):
    x = RNG.normal(size=(1, 512, 64)).astype("float32")
    layer = LocalAttention(4, 128, causal=causal)
    assert_close(layer(x), full(layer, x), 1e-5)


@CAUSAL
@pytest.mark.parametrize("at_a_time", [4, 7, 12])
def test_a_long_sequence_is_cut_into_pieces_that_know_their_neighbours(
    causal, at_a_time, monkeypatch
):
    monkeypatch.setattr("keras_transformers.layers.attention.local.AT_A_TIME", at_a_time)
    layer = LocalAttention(HEADS, 6, causal=causal, position=RotaryEmbedding())
    assert_close(layer(X, mask=PADDING), full(layer, X, PADDING), 1e-5)


@CAUSAL
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("score", ["scaled_dot", "general", "additive"])
def test_scores_and_positions_hold_inside_the_window(score, name, causal):
    layer = LocalAttention(
        HEADS, 5, causal=causal, score=score, position=TERMS[name](), num_key_value_heads=1
    )
    assert_close(layer(X), full(layer, X), 1e-5)
    assert_close(layer(X, mask=PADDING), full(layer, X, PADDING), 1e-5)


def test_local_attentions_gradients_are_those_under_the_mask():
    layer = LocalAttention(HEADS, 5)
    layer(X)
    twin = SelfAttention(HEADS)
    twin.build(X.shape)
    twin.set_weights(layer.get_weights())
    mask = {"attention_mask": window_mask(LENGTH, 5)}
    for one, other in zip(gradients(layer, (X,)), gradients(twin, (X,), mask), strict=True):
        assert_close(one, other, 1e-4)


@CAUSAL
@pytest.mark.parametrize("name", ["none", "rotary", "t5"])
def test_sequences_of_a_packed_row_see_their_own_neighbours_only(name, causal):
    layer = LocalAttention(HEADS, 5, causal=causal, position=TERMS[name]())
    ends = (0, 7, 8, 15)  # of three sequences; two tokens of padding follow
    segments = np.zeros((1, LENGTH), "int32")
    for number, (start, end) in enumerate(itertools.pairwise(ends), 1):
        segments[0, start:end] = number
    packed = layer(X[:1], attention_mask=segment_mask(segments))
    for start, end in itertools.pairwise(ends):
        assert_close(packed[:, start:end], layer(X[:1, start:end]), 1e-5)
    both = layer(X, attention_mask=window_mask(LENGTH, 99), mask=PADDING)
    assert_close(both, layer(X, mask=PADDING), 1e-5)


@CAUSAL
def test_padding_changes_no_real_token(causal):
    layer = LocalAttention(HEADS, 6, causal=causal)
    changed = np.where(PADDING[..., None], X, 1e3)
    received = to_numpy(layer(changed, mask=PADDING))
    assert_close(received[PADDING], to_numpy(layer(X, mask=PADDING))[PADDING], 1e-6)
    assert np.isfinite(received).all()


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("window", [2, 5, 40])
@pytest.mark.parametrize("name", TERMS)
def test_token_by_token_local_attention_reads_its_window_only(name, window, beams):
    layer = LocalAttention(HEADS, window, causal=True, position=TERMS[name]())
    whole, cache = layer(X), layer.start_cache(BATCH, beams, LENGTH)
    for index in range(LENGTH):
        token = ops.tile(ops.convert_to_tensor(X[:, index : index + 1]), (1, beams, 1))
        y, cache = layer.step(token, cache, ops.convert_to_tensor(index))
        assert_close(y[:, -1], whole[:, index], 1e-5)


def test_no_matrix_of_all_pairs_is_formed():
    """Nothing in the compiled program is as large as one head's matrix of pairs."""
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("reads the program that TensorFlow hands to XLA")
    length = 2048
    layer = LocalAttention(2, 16)
    x = np.zeros((1, length, 8), "float32")
    layer(x)
    program = compiled(layer).experimental_get_compiler_ir(ops.convert_to_tensor(x))()
    sizes = [
        np.prod([int(side) for side in shape.split(",")])
        for shape in re.findall(r"[a-z]+\d*\[([\d,]+)\]", program)
    ]
    assert length * 8 <= max(sizes) < length * length / 8


# ------------------------------------------------------------------------------- linear


@CAUSAL
def test_contract_of_linear_attention(causal):
    check_layer(lambda **kwargs: LinearAttention(HEADS, causal=causal, **kwargs), (X,), None, ())


@CAUSAL
@pytest.mark.parametrize("length", [1, 17, 64, 131])
def test_linear_attention_is_the_paper_s_sum(length, causal):
    x = RNG.normal(size=(2, length, 6)).astype("float32")
    layer = LinearAttention(2, causal=causal, key_dim=5, value_dim=7)
    received = layer(x)
    denses = (layer.query_dense, layer.key_dense, layer.value_dense)
    query, key, value = (project(x, *dense.get_weights()) for dense in denses)

    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    weights = np.einsum("bhqd,bhkd->bhqk", phi(query), phi(key))
    if causal:
        weights = weights * np.tril(np.ones((length, length)))
    weights = weights / weights.sum(-1, keepdims=True)
    kernel, bias = layer.output_dense.get_weights()
    expected = np.einsum("bhqk,bhkd,hdw->bqw", weights, value, np.float64(kernel)) + bias
    assert_close(received, expected, 1e-5)


@CAUSAL
def test_padding_changes_no_real_token_of_linear_attention(causal):
    layer = LinearAttention(HEADS, causal=causal)
    changed = np.where(PADDING[..., None], X, 1e3)
    received, expected = (to_numpy(layer(x, mask=PADDING)) for x in (changed, X))
    assert_close(received[PADDING], expected[PADDING], 1e-6)
    assert_close(layer(X[1:2, :9])[0], expected[1, :9], 1e-6)
    nothing = layer(X, mask=np.zeros_like(PADDING))
    assert_close(nothing, np.broadcast_to(layer.output_dense.bias, nothing.shape), 1e-6)


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalAttention(2, 1), "`window_size` must be an integer of at least 2.*: 1"),
        (
            lambda: LocalAttention(2, 4, position=GridRelativeBias((2, 3))),
            "`position` must be a term of relative positions.*GridRelativeBias",
        ),
        (lambda: LinearAttention(2, score="dot"), "`score` cannot act.*'dot'"),
        (lambda: LinearAttention(2, dropout=0.1), "`dropout` cannot act.*0.1"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_decoding_with_a_window_in_both_directions_is_refused():
    layer = LocalAttention(HEADS, 4, name="near")
    layer.build(X.shape)
    with pytest.raises(ValueError, match="LocalAttention 'near': `causal` must be True"):
        layer.step(X[:, :1], layer.start_cache(BATCH, 1, 5), 0)
