"""Claims about positions inside attention: rotary, linear and learned biases, relative keys."""

import math
import pathlib

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    ALiBi,
    CausalSelfAttention,
    CrossAttention,
    GridRelativeBias,
    LogGridBias,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
    ShawRelativePosition,
    relative_position_index,
)
from tests.contract import assert_close, check_layer, randomised, to_numpy
from tests.oracles import project, softmax

BATCH, LENGTH, HEADS, WIDTH = 3, 7, 2, 28  # heads of width 14
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "attention.npz")
TERMS = {
    "rotary": RotaryEmbedding,
    "part of rotary": lambda: RotaryEmbedding(rotary_dim=6, interleaved=True),
    "yarn": lambda: RotaryEmbedding(scaling="yarn", scaling_factor=4.0, original_length=64),
    "alibi": ALiBi,
    "t5": lambda: RelativePositionBias(num_buckets=8, max_distance=6),
    "t5, causal": lambda: RelativePositionBias(8, 6, bidirectional=False),
    "shaw": lambda: ShawRelativePosition(max_distance=3),
    "shaw, keys only": lambda: ShawRelativePosition(max_distance=3, use_values=False),
    "grid": lambda: GridRelativeBias((2, 3), prefix_tokens=1),
    "logarithmic grid": lambda: LogGridBias((1, 7), pretrained_grid=5),
}
EVERY = pytest.mark.parametrize("name", TERMS)
SHIFTABLE = pytest.mark.parametrize("name", [name for name in TERMS if "grid" not in name])


# A contract compiles a dozen programs: of terms that differ in their numbers alone, one is quick.
LIKE_ANOTHER = ["part of rotary", "yarn", "t5, causal", "shaw, keys only", "logarithmic grid"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LIKE_ANOTHER else [])
        for name in TERMS
    ],
)
@pytest.mark.parametrize("kind", [SelfAttention, CausalSelfAttention])
def test_contract(name, kind):
    check_layer(lambda **kwargs: kind(HEADS, position=TERMS[name](), **kwargs), (X,))


@EVERY
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("beams", [1, 3])
def test_token_by_token_it_is_what_it_is_at_once(name, beams, shared):
    layer = CausalSelfAttention(HEADS, position=TERMS[name](), num_key_value_heads=shared)
    randomised(layer, X.shape, seed=1)
    whole, cache = layer(X), layer.start_cache(BATCH, beams, LENGTH)
    for index in range(LENGTH):
        token = ops.tile(ops.convert_to_tensor(X[:, index : index + 1]), (1, beams, 1))
        y, cache = layer.step(token, cache, ops.convert_to_tensor(index))
        assert_close(y[:, -1], whole[:, index], 3e-5)  # of numbers up to 6


@SHIFTABLE
@given(st.integers(1, 400))
def test_scores_depend_on_the_difference_of_positions_alone(name, offset):
    """Queries and keys moved along together keep their scores."""
    layer = randomised(SelfAttention(HEADS, position=TERMS[name]()), X.shape, seed=1)
    query = RNG.normal(size=(1, HEADS, LENGTH, 14)).astype("float32")
    key = RNG.normal(size=(1, HEADS, LENGTH, 14)).astype("float32")

    def scores(start):
        positions = ops.arange(LENGTH, dtype="int32") + start
        turned, keys = (layer.position.transform(ops.array(x), positions) for x in (query, key))
        bias = layer.position.bias(turned, positions, positions)
        products = ops.matmul(turned, ops.swapaxes(keys, 2, 3))
        return to_numpy(products if bias is None else products + bias)

    # An angle of 400 has an error of 2e-5 in float32.
    tolerance = 1e-5 if offset < 100 else 1e-4
    assert_close(scores(offset), scores(0), tolerance * np.abs(scores(0)).max())


# -------------------------------------------------------------------------------- rotary


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("default", {}),
        ("linear", {"scaling": "linear", "scaling_factor": 4.0}),
        ("yarn", {"scaling": "yarn", "scaling_factor": 4.0, "original_length": 128}),
        ("interleaved", {"rotary_dim": 8, "interleaved": True}),
    ],
)
def test_rotary_is_that_of_transformers(name, settings):
    layer = RotaryEmbedding(**settings)
    assert_close(layer(GOLDEN["heads"]), GOLDEN[f"rotary_{name}"], 1e-5)


def test_rotary_turns_each_pair_by_its_angle():
    """Equation 15 of the paper, with complex numbers."""
    x = GOLDEN["heads"]
    pairs = np.float64(x[..., 0::2]) + 1j * x[..., 1::2]
    angles = np.arange(3, 3 + x.shape[2])[:, None] * 100.0 ** (-np.arange(0, 14, 2) / 14)
    turned = pairs * np.exp(1j * angles)
    received = to_numpy(RotaryEmbedding(100.0, interleaved=True)(x, start=3))
    assert_close(received[..., 0::2], turned.real, 1e-5)
    assert_close(received[..., 1::2], turned.imag, 1e-5)


def test_rotary_keeps_lengths():
    x = GOLDEN["heads"]
    norms = np.linalg.norm(to_numpy(RotaryEmbedding()(x)), axis=-1)
    assert_close(norms, np.linalg.norm(x, axis=-1), 1e-5)


def test_ntk_stretches_the_longest_wavelength_by_the_factor_and_keeps_the_shortest():
    plain, scaled = RotaryEmbedding(), RotaryEmbedding(scaling="ntk", scaling_factor=8.0)
    for layer in (plain, scaled):
        layer.build((None, 2, None, 64))
    ratio = plain._rates / scaled._rates
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8.0, rel=1e-5)
    assert np.all(np.diff(ratio) > 0)


# ------------------------------------------------------------------------- linear biases


def test_alibi_is_that_of_bloom_up_to_a_constant_of_the_row():
    """Bloom adds `slope * j`; the softmax does not see the difference, `slope * i`."""
    heads, _, length = GOLDEN["alibi"].shape
    term, positions = ALiBi(), ops.arange(length, dtype="int32")
    term.build((None, heads, None, 8))
    bias = to_numpy(term.bias(None, positions, positions))
    expected = GOLDEN["alibi"] - GOLDEN["alibi"][:, 0, :, None]
    below = np.tril(np.ones((length, length), bool))
    assert_close(np.where(below, bias, 0), np.where(below, expected, 0), 1e-6)


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_alibis_slopes_halve_evenly(heads):
    term = ALiBi()
    term.build((None, heads, None, 8))
    expected = [-(2.0 ** (-8 * h / heads)) for h in range(1, heads + 1)]
    positions = ops.arange(2, dtype="int32")
    received = to_numpy(term.bias(None, positions, positions))
    np.testing.assert_allclose(received[:, 0, 1], expected, rtol=1e-6)
    np.testing.assert_array_equal(received[:, 1, 0], received[:, 0, 1])


# ------------------------------------------------------------------------ learned biases


@pytest.mark.parametrize("name", ["both", "causal"])
def test_buckets_are_those_of_transformers(name):
    term = RelativePositionBias(bidirectional=name == "both")
    term.build((None, 1, None, 8))
    term.set_weights([np.arange(32.0)[:, None]])
    far = ops.arange(601, dtype="int32") - 300  # keys from 300 before to 300 after
    received = to_numpy(term.bias(None, ops.zeros((1,), "int32"), far))[0, 0]
    np.testing.assert_array_equal(received, GOLDEN[f"t5_{name}"])


def test_a_grids_index_is_beits():
    index = relative_position_index((3, 5), prefix_tokens=1)
    np.testing.assert_array_equal(index, GOLDEN["beit_index"])


def test_a_grids_bias_is_that_of_the_offset_in_rows_and_columns():
    rows, columns = 3, 2
    term = GridRelativeBias((rows, columns))
    term.build((None, HEADS, None, 8))
    table = RNG.normal(size=(2 * rows - 1, 2 * columns - 1, HEADS))
    term.set_weights([table.reshape(-1, HEADS)])
    positions = ops.arange(rows * columns, dtype="int32")
    received = to_numpy(term.bias(None, positions, positions))
    for query, key in np.ndindex(6, 6):
        down, across = query // 2 - key // 2, query % 2 - key % 2
        assert_close(received[:, query, key], table[down + 2, across + 1], 1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_shaws_are_equations_3_and_4(causal):
    kind = CausalSelfAttention if causal else SelfAttention
    clip = 2
    layer = randomised(kind(HEADS, position=ShawRelativePosition(clip)), X.shape, seed=1)
    dense = {
        name: [np.float64(value) for value in getattr(layer, f"{name}_dense").get_weights()]
        for name in ("query", "key", "value", "output")
    }
    query, key, value = (project(X, *dense[name]) for name in ("query", "key", "value"))
    of_keys, of_values = map(np.float64, layer.position.get_weights())
    scores = np.zeros((BATCH, HEADS, LENGTH, LENGTH))
    for i, j in np.ndindex(LENGTH, LENGTH):
        distance = np.clip(j - i, -clip, clip) + clip
        keys = key[:, :, j] + of_keys[distance]
        scores[:, :, i, j] = np.sum(query[:, :, i] * keys, -1) / math.sqrt(14)
    weights = softmax(scores, np.tril(np.ones((LENGTH, LENGTH), bool)) if causal else True)
    heads = np.zeros((BATCH, HEADS, LENGTH, 14))
    for i, j in np.ndindex(LENGTH, LENGTH):
        distance = np.clip(j - i, -clip, clip) + clip
        heads[:, :, i] += weights[:, :, i, j, None] * (value[:, :, j] + of_values[distance])
    expected = np.einsum("bhld,hdw->blw", heads, dense["output"][0]) + dense["output"][1]
    assert_close(layer(X), expected, 1e-5)


# -------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RotaryEmbedding(scaling="cubic"), "`scaling` must be None, 'linear'.*'cubic'"),
        (lambda: RotaryEmbedding(scaling="ntk", scaling_factor=0.5), "`scaling_factor` .*0.5"),
        (lambda: RotaryEmbedding(scaling="yarn"), "`original_length` must be given.*None"),
        (lambda: RotaryEmbedding(rotary_dim=3)(GOLDEN["heads"]), "`rotary_dim` must be even.*3"),
        (lambda: RotaryEmbedding(rotary_dim=16)(GOLDEN["heads"]), "`rotary_dim` .* at most 14.*16"),
        (lambda: RelativePositionBias(num_buckets=6), "`num_buckets` must be a positive .* 4.*6"),
        (lambda: RelativePositionBias(max_distance=8), "`max_distance` must be more than 8.*8"),
        (lambda: ShawRelativePosition(max_distance=-1), "`max_distance` must be .* least 0.*-1"),
        (lambda: GridRelativeBias((0, 3)), r"`grid` must hold positive.*grid=\(0, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_cross_attention_takes_no_positions():
    layer = CrossAttention(HEADS, position=ALiBi(), name="across")
    with pytest.raises(ValueError, match="CrossAttention 'across': `position` must be None.*ALiBi"):
        layer(X, X)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["alibi", "shaw", "t5"])
def test_a_bias_of_the_call_is_added_to_that_of_the_positions(name, policy):
    layer = randomised(SelfAttention(HEADS, position=TERMS[name](), dtype=policy), X.shape, seed=1)
    hidden = np.where(np.arange(LENGTH) < 4, 0, -np.inf).astype("float32")
    bias = np.broadcast_to(hidden, (LENGTH, LENGTH))
    mask = np.broadcast_to(hidden == 0, (LENGTH, LENGTH))
    assert_close(layer(X, attention_bias=bias), layer(X, attention_mask=mask), 1e-2)


@pytest.mark.parametrize("term", [RelativePositionBias, ShawRelativePosition])
def test_a_row_of_a_table_has_one_gradient_for_all_positions_that_share_it(term):
    """Else Adam, whose first step is the sign of the gradient, would take a smaller one."""
    layer = SelfAttention(2, position=term())
    x = np.random.default_rng(1).normal(size=(2, 9, 8)).astype("float32")
    model = keras.Sequential([keras.Input((9, 8)), layer])
    before = [np.array(w) for w in layer.get_weights()]
    model.compile(keras.optimizers.Adam(0.25, epsilon=1e-20), "mse", jit_compile=False)
    model.fit(x, np.flip(x), verbose=0)
    tables = [w.path for w in layer.weights if "position" in w.path]
    assert tables
    for weight, old in zip(layer.weights, before, strict=True):
        if weight.path in tables:
            change = np.abs(keras.ops.convert_to_numpy(weight) - old)
            np.testing.assert_allclose(change[change > 0], 0.25, atol=1e-4)
