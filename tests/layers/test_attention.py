"""Claims about attention."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    MultiHeadAttention,
    SelfAttention,
    dot_product_attention,
    masked_softmax,
)
from keras_transformers.layers.attention.cached import cache_in, visible_slots
from tests.contract import POLICIES, assert_close, call, check_layer, to_numpy
from tests.oracles import multi_head_attention, softmax

BATCH, QUERIES, KEYS, HEADS, WIDTH = 3, 5, 7, 2, 22  # heads of width 11
QUERY_WIDTH, VALUE_WIDTH, KEY_WIDTH, KEY_DIM, VALUE_DIM, OUTPUT = 31, 13, 17, 19, 23, 29
DTYPES = ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"]
RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape).astype("float32")


X = random(BATCH, QUERIES, WIDTH)
CONTEXT = random(BATCH, KEYS, WIDTH)
QUERY, VALUE = random(BATCH, QUERIES, QUERY_WIDTH), random(BATCH, KEYS, VALUE_WIDTH)
KEY = random(BATCH, KEYS, KEY_WIDTH)
MASK = RNG.random((BATCH, QUERIES, KEYS)) < 0.6
MASK[..., 0] = True  # nobody is left without a key, causal or not
PADDING = np.arange(KEYS) < np.array([[7], [4], [1]])


def randomise(layer, seed=0):
    """Gives a built layer weights, biases included, of about unit gain."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=weight.shape) / 5 for weight in layer.get_weights()]
    layer.set_weights(weights)
    return layer


def make(layer_class=MultiHeadAttention, shapes=(X.shape, CONTEXT.shape), **settings):
    layer = layer_class(HEADS, **settings)
    layer.build(*shapes)
    return randomise(layer)


# ---------------------------------------------------------------------------- contract


WIDE = {"key_dim": KEY_DIM, "value_dim": VALUE_DIM, "output_shape": OUTPUT}
SCORES = {"return_attention_scores": True}


@pytest.mark.parametrize(
    ("layer_class", "settings", "inputs", "arguments"),
    [
        (MultiHeadAttention, {}, (X,), {}),
        (MultiHeadAttention, {**WIDE, "use_bias": False}, (QUERY, VALUE, KEY), SCORES),
        (SelfAttention, {"kernel_initializer": "he_normal"}, (X,), {}),
        (CausalSelfAttention, {"dropout": 0.3, "seed": 5}, (X,), SCORES),
        (CrossAttention, {"kernel_regularizer": "l2"}, (X, VALUE), {}),
    ],
    ids=["self", "all widths", "SelfAttention", "CausalSelfAttention", "CrossAttention"],
)
def test_contract(layer_class, settings, inputs, arguments):
    policies = {} if inputs[0] is QUERY else POLICIES  # checking them once more takes long
    check_layer(
        lambda **kwargs: layer_class(HEADS, **settings, **kwargs),
        inputs,
        arguments,
        policies=policies,
    )


# ----------------------------------------------------------------------------- oracles


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, MASK[0], MASK, MASK[:, None], MASK[:, None, :, :1]])
def test_output_and_weights_are_those_of_the_equation(mask, causal):
    layer = make(shapes=(QUERY.shape, VALUE.shape, KEY.shape), **WIDE)
    mask = None if mask is None else np.broadcast_to(mask, (*mask.shape[:-1], KEYS))
    visible = np.ones((1, 1, QUERIES, KEYS), bool)
    if mask is not None:
        visible = mask[:, None] if mask.ndim == 3 else mask
    if causal:
        visible = visible & np.tril(np.ones((QUERIES, KEYS), bool))
    expected = multi_head_attention(layer.get_weights(), QUERY, VALUE, KEY, visible)
    received = layer(
        QUERY, VALUE, KEY, attention_mask=mask, use_causal_mask=causal, return_attention_scores=True
    )
    assert_close(received, expected, 2e-6)


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_bias_is_added_to_the_scores(use_bias):
    layer, bias = make(use_bias=use_bias), random(HEADS, QUERIES, KEYS)
    expected = multi_head_attention(layer.get_weights(), X, CONTEXT, bias=bias)
    received = layer(X, CONTEXT, attention_bias=bias[None], return_attention_scores=True)
    assert_close(received, expected, 2e-6)


@pytest.mark.parametrize(
    ("settings", "inputs", "arguments"),
    [
        ({"key_dim": 11}, (X, CONTEXT), {}),
        ({"key_dim": 11}, (X, CONTEXT), {"attention_mask": MASK}),
        ({"key_dim": 11}, (X, CONTEXT), {"attention_mask": MASK.astype("int32")}),
        ({"key_dim": 11}, (X, X), {"use_causal_mask": True}),
        ({"key_dim": 11}, (X, CONTEXT), {"attention_mask": MASK, "use_causal_mask": True}),
        ({"key_dim": KEY_DIM, "use_bias": False}, (QUERY, VALUE), {}),
        ({"key_dim": KEY_DIM, "value_dim": VALUE_DIM}, (QUERY, VALUE, KEY), SCORES),
        (WIDE, (QUERY, VALUE, KEY), {**SCORES, "attention_mask": MASK}),
    ],
    ids=["plain", "mask", "integer mask", "causal", "both", "no bias", "value_dim", "output_shape"],
)
def test_with_kerass_weights_it_gives_kerass_output(settings, inputs, arguments):
    theirs = keras.layers.MultiHeadAttention(HEADS, **settings)
    theirs(*inputs, **arguments)
    randomise(theirs)
    ours = MultiHeadAttention(HEADS, **settings)
    ours(*inputs)
    ours.set_weights(theirs.get_weights())
    names = [[weight.path.split("/", 1)[1] for weight in each.weights] for each in (ours, theirs)]
    assert names[0] == names[1]
    assert_close(ours(*inputs, **arguments), theirs(*inputs, **arguments), 1e-6)


def test_implicit_masks_hide_keys_as_in_keras():
    theirs = keras.layers.MultiHeadAttention(HEADS, 11)
    theirs(X, CONTEXT)
    ours = make()
    theirs.set_weights(ours.get_weights())
    masks = {"query_mask": np.ones((BATCH, QUERIES), bool), "value_mask": PADDING}
    assert_close(ours(X, CONTEXT, **masks), theirs(X, CONTEXT, **masks), 1e-6)
    expected = ours(X, CONTEXT, attention_mask=PADDING[:, None])
    assert_close(ours(X, CONTEXT, value_mask=PADDING), expected, 0)
    assert_close(ours(X, CONTEXT, key_mask=PADDING), expected, 0)


@given(seed=st.integers(0, 99))
def test_masked_softmax_is_a_softmax_over_what_is_left(seed):
    rng = np.random.default_rng(seed)
    scores, mask = rng.normal(0, 30, (5, 3, 7)), rng.random((5, 1, 7)) < 0.5
    weights = to_numpy(masked_softmax(scores.astype("float32"), mask))
    np.testing.assert_allclose(weights, softmax(scores, mask), atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), np.repeat(mask.any(-1), 3, -1), atol=1e-6)
    assert not np.any(weights[np.broadcast_to(~mask, weights.shape)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_lowest_finite_score_still_beats_a_masked_one(dtype):
    scores = ops.cast([[-6e4, -6e4, 6e4]], dtype)
    weights = masked_softmax(scores, np.array([[True, True, False]]))
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    assert to_numpy(weights).tolist() == [[0.5, 0.5, 0.0]]


def test_a_single_key_gets_all_the_weight_unless_it_is_masked():
    weights = masked_softmax(np.full((2, 1), 3, "float32"), np.array([[True], [False]]))
    assert to_numpy(weights).tolist() == [[1.0], [0.0]]


# -------------------------------------------------------------------------- properties


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_query_without_keys_is_finite_with_and_without_scores(how, dtype):
    layer, mask = make(dtype=dtype), MASK.copy()
    mask[1, 3] = False
    argument = (
        {"attention_mask": mask}
        if how == "mask"
        else {"attention_bias": np.where(mask, 0, -np.inf).astype("float32")}
    )
    alone = layer(X, CONTEXT, **argument)
    output, weights = layer(X, CONTEXT, return_attention_scores=True, **argument)
    assert_close(alone, output, 0)
    output, weights = to_numpy((output, weights))
    assert np.isfinite(output).all()
    assert not np.any(weights[1, :, 3])
    bias = to_numpy(ops.cast(layer.output_dense.bias, layer.compute_dtype))
    np.testing.assert_array_equal(output[1, 3], bias)  # zeros before the output projection


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_of_minus_infinity_is_a_mask(dtype):
    layer, bias = make(dtype=dtype), np.where(MASK, 0, -np.inf).astype("float32")
    masked = layer(X, CONTEXT, attention_mask=MASK, return_attention_scores=True)
    biased = layer(X, CONTEXT, attention_bias=bias, return_attention_scores=True)
    assert_close(biased, masked, 0)


@given(order=st.permutations(range(KEYS)))
def test_the_order_of_keys_and_values_does_not_matter(order):
    layer = make(shapes=(QUERY.shape, VALUE.shape, KEY.shape), **WIDE)
    expected = layer(QUERY, VALUE, KEY, attention_mask=MASK)
    received = layer(QUERY, VALUE[:, order], KEY[:, order], attention_mask=MASK[..., order])
    assert_close(received, expected, 2e-6)


@given(order=st.permutations(range(QUERIES)))
def test_self_attention_is_permutation_equivariant(order):
    layer = make(SelfAttention, (X.shape,))
    assert_close(layer(X[:, order]), to_numpy(layer(X))[:, order], 2e-6)


@given(cut=st.integers(1, QUERIES - 1), seed=st.integers(0, 99))
def test_the_future_cannot_alter_the_past_by_a_single_bit(cut, seed):
    changed = X.copy()
    changed[:, cut:] = np.random.default_rng(seed).normal(0, 100, changed[:, cut:].shape)
    causal = make(CausalSelfAttention, (X.shape,))
    before, after = to_numpy((causal(X), causal(changed)))
    np.testing.assert_array_equal(after[:, :cut], before[:, :cut])
    assert np.any(after[:, cut:] != before[:, cut:])
    general = make(shapes=(X.shape,))
    assert_close(general(X, use_causal_mask=True), before, 0)


@given(seed=st.integers(0, 99))
def test_masked_keys_have_no_influence(seed):
    rng, layer = np.random.default_rng(seed), make()
    noise = rng.normal(0, 1e3, CONTEXT.shape).astype("float32")
    changed = np.where(PADDING[..., None], CONTEXT, noise)
    for mask in ({"attention_mask": PADDING[:, None]}, {"value_mask": PADDING}):
        assert_close(layer(X, changed, **mask), layer(X, CONTEXT, **mask), 1e-6)


@given(length=st.integers(1, KEYS))
def test_padding_adds_nothing(length):
    layer = make()
    padded = np.where((np.arange(KEYS) < length)[:, None], CONTEXT, 1e3).astype("float32")
    mask = np.broadcast_to(np.arange(KEYS) < length, (BATCH, KEYS))
    expected = layer(X, CONTEXT[:, :length])
    assert_close(layer(X, padded, value_mask=mask), expected, 1e-6)


@given(wanted=st.lists(st.integers(0, KEYS - 1), min_size=11, max_size=11))
def test_far_apart_keys_make_a_dictionary(wanted):
    keys = 60 * np.eye(KEYS, dtype="float32")  # a difference of scores of 1361
    values = random(KEYS, 3)
    output, weights = dot_product_attention(
        *(ops.convert_to_tensor(each[None, :, None]) for each in (keys[wanted], keys, values))
    )
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], values[wanted], rtol=2e-7)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], np.eye(KEYS)[wanted], rtol=2e-7)


def test_the_heads_are_made_by_projections_that_differ():
    layer = MultiHeadAttention(HEADS)
    layer.build(X.shape)
    kernels = [weight for weight in layer.get_weights() if weight.ndim == 3][:3]
    assert np.any(kernels[0] != kernels[1])
    assert np.any(kernels[1] != kernels[2])


def test_the_number_of_parameters_is_that_of_the_formula():
    layer = make(shapes=(X.shape,))
    assert layer.count_params() == 4 * WIDTH**2 + 4 * WIDTH
    wide = make(shapes=(QUERY.shape, VALUE.shape, KEY.shape), use_bias=False, **WIDE)
    projections = KEY_DIM * (QUERY_WIDTH + KEY_WIDTH) + VALUE_DIM * (VALUE_WIDTH + OUTPUT)
    assert wide.count_params() == HEADS * projections


def test_nothing_depends_on_the_lengths():
    layer = make()
    for queries, keys in [(1, 1), (2, KEYS), (QUERIES, 3)]:
        expected = multi_head_attention(layer.get_weights(), X[:, :queries], CONTEXT[:, :keys])[0]
        assert_close(layer(X[:, :queries], CONTEXT[:, :keys]), expected, 2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-3), ("bfloat16", 2e-2)])
def test_low_precision_stays_near_float64(dtype, tolerance):
    layer = make(dtype=f"mixed_{dtype}")
    expected = multi_head_attention(layer.get_weights(), X, CONTEXT, mask=MASK[:, None])[0]
    tolerance *= max(1, np.abs(expected).max())
    assert_close(layer(X, CONTEXT, attention_mask=MASK), expected, tolerance)


def test_dropout_acts_in_training_only_and_leaves_the_reported_weights_whole():
    layer = make(dropout=0.5, seed=3)
    assert_close(layer(X, CONTEXT, training=False), layer(X, CONTEXT), 0)
    output, weights = layer(X, CONTEXT, training=True, return_attention_scores=True)
    assert np.any(to_numpy(output) != to_numpy(layer(X, CONTEXT)))
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1, atol=1e-6)


def test_the_regulariser_acts_on_the_four_kernels():
    layer = make(kernel_regularizer="l2")
    layer(X, CONTEXT)
    assert len(layer.losses) == 4


# ---------------------------------------------------------------------------- decoding


def test_step_by_step_decoding_is_the_whole_forward_pass():
    beams, layer = 2, make(CausalSelfAttention, (X.shape,), key_dim=KEY_DIM, value_dim=VALUE_DIM)
    x = random(BATCH, beams, QUERIES, WIDTH)
    whole = to_numpy(layer(x.reshape(-1, QUERIES, WIDTH))).reshape(x.shape)
    cache = layer.start_cache(BATCH, beams, max_length=KEYS)
    for index in range(QUERIES):
        position = ops.convert_to_tensor(index, "int32") if index % 2 else index
        y, cache = layer.step(ops.convert_to_tensor(x[:, :, index]), cache, position)
        assert_close(y, whole[:, :, index], 1e-5)


def test_decoding_projects_the_context_once_for_all_beams():
    layer = make(CrossAttention)
    cache = layer.project_context(ops.convert_to_tensor(CONTEXT))
    x = ops.convert_to_tensor(X)  # the queries stand for beams
    assert_close(layer.step(x, cache)[0], layer(x, CONTEXT), 1e-5)
    expected = layer(x, CONTEXT, context_mask=PADDING, return_attention_scores=True)
    received = layer.step(x, cache, ops.convert_to_tensor(PADDING))
    for mine, theirs in zip(received, expected, strict=True):  # the output and the weights
        assert_close(mine, theirs, 1e-5)


def test_beams_that_moved_find_their_own_past_where_it_was_written():
    beams, layer = 3, make(CausalSelfAttention, (X.shape,), key_dim=KEY_DIM, value_dim=VALUE_DIM)
    x = random(BATCH, beams, QUERIES, WIDTH)
    cache = layer.start_cache(BATCH, beams, max_length=KEYS)
    slots = np.tile(np.arange(beams)[:, None], (BATCH, 1, KEYS))
    past = x.copy()  # what each beam has seen
    rng = np.random.default_rng(3)
    for index in range(QUERIES):
        if index:
            parents = rng.integers(0, beams, (BATCH, beams))[..., None]
            slots = np.take_along_axis(slots, parents, axis=1)
            slots[..., index] = np.arange(beams)
            past[:, :, :index] = np.take_along_axis(past, parents[..., None], axis=1)[:, :, :index]
        visible = visible_slots(index, cache, beams, ops.convert_to_tensor(slots))
        y, cache = layer.step(ops.convert_to_tensor(x[:, :, index]), cache, index, visible)
        whole = to_numpy(layer(past[:, :, : index + 1].reshape(-1, index + 1, WIDTH)))
        assert_close(y, whole[:, -1].reshape(BATCH, beams, -1), 1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("dtype, error", [("float16", 2e-3), ("bfloat16", 2e-2), ("int8", 4e-2)])
def test_a_cache_in_fewer_bits_rounds_and_nothing_else(dtype, error, beams):
    layer = make(CausalSelfAttention, (X.shape,), key_dim=KEY_DIM, value_dim=VALUE_DIM)
    x = random(BATCH, QUERIES, WIDTH)
    cache = cache_in(layer.start_cache(BATCH, beams, KEYS), beams, dtype)
    _, cache = layer.prefill(ops.convert_to_tensor(x[:, :2]), cache, beams)
    for index in range(2, QUERIES):
        token = ops.convert_to_tensor(np.repeat(x[:, index : index + 1], beams, axis=1))
        y, cache = layer.step(token, cache, index)
        whole = to_numpy(layer(x[:, : index + 1]))[:, -1:]
        assert_close(y, np.repeat(whole, beams, axis=1), error)
    assert {keras.backend.standardize_dtype(cache[name].dtype) for name in ("key", "value")} == {
        dtype
    }


def test_one_sequence_alone_gives_what_it_gives_in_a_batch():
    """A single row goes another way, see `project_token`."""
    layer = make(CausalSelfAttention, (X.shape,))
    token = ops.convert_to_tensor(X[:, :1])
    together, _ = layer.step(token, layer.start_cache(BATCH, 1, 2), 0)
    for row in range(BATCH):
        alone, _ = layer.step(token[row : row + 1], layer.start_cache(1, 1, 2), 0)
        assert_close(alone, together[row : row + 1], 1e-6)


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("settings", "inputs", "arguments", "message"),
    [
        ({}, (X[0],), {}, r"`query` must be of shape \(batch, length, width\).*\(5, 22\)"),
        ({}, (X, CONTEXT[0]), {}, r"`value` must be of shape .*Received: shape \(7, 22\)"),
        ({}, (QUERY,), {}, "`num_heads` must be a divisor of the width of `query`, 31.*: 2"),
        ({}, (X, CONTEXT, X), {}, "`key` must be as long as `value`, 7. Received: length 5"),
        ({}, (X, CONTEXT), {"attention_mask": PADDING}, r"`attention_mask`.*\(3, 7\)"),
        ({}, (X, CONTEXT), {"attention_mask": MASK[:2]}, r"`attention_mask`.*\(2, 5, 7\)"),
        ({}, (X, CONTEXT), {"attention_mask": MASK[0, 0]}, r"`attention_mask`.*\(7,\)"),
        ({}, (X, CONTEXT), {"attention_bias": MASK[:, :4] * 1.0}, r"`attention_bias`.*\(3, 4, 7\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(settings, inputs, arguments, message):
    layer = MultiHeadAttention(HEADS, name="heads", **settings)
    with pytest.raises(ValueError, match=f"MultiHeadAttention 'heads': {message}"):
        call(layer, inputs, arguments)


def test_a_mask_that_does_not_fit_is_refused_in_a_functional_model_too():
    x, mask = keras.Input((QUERIES, WIDTH)), keras.Input((QUERIES, KEYS), dtype="bool")
    with pytest.raises(ValueError, match="SelfAttention 'heads': `attention_mask` must be"):
        SelfAttention(HEADS, name="heads")(x, attention_mask=mask)


@pytest.mark.parametrize(
    ("layer", "inputs", "message"),
    [
        (MultiHeadAttention, (X[0], CONTEXT), r"`query` must be .*, 22\). .*shape \(5, 22\)"),
        (MultiHeadAttention, (X, CONTEXT[..., :9]), r"`value` must be .*, 22\). .*\(3, 7, 9\)"),
        (SelfAttention, (X[0],), r"`x` must be of shape \(batch, length, 22\)"),
        (CrossAttention, (X, CONTEXT[0]), r"`context` must be of shape .*Received: shape \(7, 22"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_after_building_too(layer, inputs, message):
    built = layer(HEADS, name="heads")
    built(*(X, CONTEXT)[: len(inputs)])
    with pytest.raises(ValueError, match=f"{layer.__name__} 'heads': {message}"):
        built(*inputs)


@pytest.mark.parametrize("argument", ["num_heads", "key_dim", "value_dim", "output_shape"])
@pytest.mark.parametrize("size", [0, -3, 1.5])
def test_sizes_that_are_not_positive_are_refused(argument, size):
    settings = {"num_heads": HEADS, argument: size}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*: {size}"):
        MultiHeadAttention(**settings)
