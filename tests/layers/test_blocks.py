"""Claims about encoder and decoder blocks."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    GatedFeedForward,
    PositionalEncoding,
    SelfAttention,
)
from tests.built_blocks import (
    BATCH,
    CONTEXT,
    CONTEXT_LENGTH,
    CONTEXT_MASK,
    CONTEXT_POSITIONS,
    CONTEXT_WIDTH,
    HEADS,
    HIDDEN,
    LENGTH,
    NORM_FIRST,
    POSITIONS,
    RNG,
    WIDTH,
    X,
    decoder,
    encoder,
    make,
)
from tests.contract import assert_close, check_layer, to_numpy
from tests.oracles import layer_norm, multi_head_attention

LAYER_NORM = keras.layers.LayerNormalization(epsilon=1e-5)


# ------------------------------------------------------------------- contract and oracle


@pytest.mark.parametrize(
    ("block_class", "inputs", "settings", "arguments"),
    [
        (
            EncoderBlock,
            (X,),
            {"dropout": 0.1, "num_heads": None, "mixer": SelfAttention(HEADS, dropout=0.2)},
            {},
        ),
        (
            EncoderBlock,
            (X,),
            {"norm_first": True, "layer_scale": 0.5, "drop_path": 0.3, "activation": "gelu"},
            {"return_attention_scores": True},
        ),
        (DecoderBlock, (X, CONTEXT), {"norm_first": True, "norm": LAYER_NORM}, {}),
        (
            DecoderBlock,
            (X, CONTEXT),
            {"cross_attention": CrossAttention(HEADS, key_dim=5, use_bias=False)},
            {},
        ),
        (DecoderBlock, (X,), {}, {}),
        (DecoderBlock, (X, CONTEXT), {"causal": False}, {}),
        (
            DecoderBlock,
            (X,),
            {
                "mlp_dim": None,
                "feed_forward": GatedFeedForward(HIDDEN, use_bias=False),
                "norm": keras.layers.RMSNormalization(epsilon=1e-5),
                "norm_first": True,
            },
            {},
        ),
    ],
    ids=[
        "encoder",
        "encoder, every setting",
        "decoder",
        "decoder, across",
        "decoder only",
        "set",
        "other parts",
    ],
)
def test_contract(block_class, inputs, settings, arguments):
    def make_block(**kwargs):
        return block_class(**{"num_heads": HEADS, "mlp_dim": HIDDEN, **settings}, **kwargs)

    check_layer(make_block, inputs, arguments)


class Equations:
    """The branches of a block in float64, from the weights of the block."""

    def __init__(self, block):
        self.norm_first = block.norm_first
        self.weights = {weight.path.split("/", 1)[1]: weight.numpy() for weight in block.weights}

    def part(self, name):
        return [value for path, value in self.weights.items() if path.startswith(f"{name}/")]

    def residual(self, x, name, branch):
        def norm(x):
            return layer_norm(x, *self.part(f"{name}_norm"))

        scale = self.part(f"{name}_scale") or [1.0]
        if self.norm_first:
            return x + scale[0] * branch(norm(x))
        return norm(x + scale[0] * branch(x))

    def attend(self, x, name, context=None, mask=True, positions=0.0, context_positions=0.0):
        def branch(x):
            to, there = (x, positions) if context is None else (context, context_positions)
            weights = self.part(name)
            return multi_head_attention(weights, x + positions, to, to + there, mask=mask)[0]

        return self.residual(x, name, branch)

    def feed(self, x):
        def branch(x):
            weights = self.weights
            hidden = x @ weights["feed_forward/hidden/kernel"] + weights["feed_forward/hidden/bias"]
            output = np.maximum(hidden, 0) @ weights["feed_forward/output/kernel"]
            return output + weights["feed_forward/output/bias"]

        return self.residual(x, "feed_forward", branch)


@pytest.mark.parametrize("layer_scale", [None, 0.1])
@NORM_FIRST
def test_an_encoder_block_is_its_two_equations(norm_first, layer_scale):
    block = encoder(norm_first=norm_first, layer_scale=layer_scale)
    equations = Equations(block)
    mask = RNG.random((BATCH, LENGTH, LENGTH)) < 0.7
    expected = equations.feed(equations.attend(np.float64(X), "mixer", mask=mask[:, None]))
    assert_close(block(X, attention_mask=mask), expected, 1e-5)


@NORM_FIRST
def test_a_decoder_block_is_its_three_equations(norm_first):
    block = decoder(norm_first=norm_first)
    equations, causal = Equations(block), np.tril(np.ones((LENGTH, LENGTH), bool))
    x = equations.attend(np.float64(X), "mixer", mask=causal)
    mask = CONTEXT_MASK[:, None, None]
    expected = equations.feed(equations.attend(x, "cross_attention", CONTEXT, mask))
    assert_close(block(X, CONTEXT, context_mask=CONTEXT_MASK), expected, 1e-5)
    by_query = np.broadcast_to(CONTEXT_MASK[:, None], (BATCH, LENGTH, CONTEXT_LENGTH))
    assert_close(block(X, CONTEXT, context_mask=by_query), expected, 1e-5)


@NORM_FIRST
def test_without_a_context_there_is_no_cross_attention(norm_first):
    block = make(DecoderBlock, X.shape, norm_first=norm_first)
    equations, causal = Equations(block), np.tril(np.ones((LENGTH, LENGTH), bool))
    expected = equations.feed(equations.attend(np.float64(X), "mixer", mask=causal))
    assert_close(block(X), expected, 1e-5)
    assert not equations.part("cross_attention")


@NORM_FIRST
@pytest.mark.parametrize("shared", [False, True], ids=["of each", "of all"])
def test_positions_go_to_queries_and_keys_of_an_encoder_block_and_to_no_value(norm_first, shared):
    block, positions = encoder(norm_first=norm_first), POSITIONS[1] if shared else POSITIONS
    equations = Equations(block)
    mask = CONTEXT_MASK[:, None, None, :LENGTH]
    x = equations.attend(np.float64(X), "mixer", mask=mask, positions=positions)
    found = block(X, padding_mask=CONTEXT_MASK[:, :LENGTH], positions=positions)
    real = CONTEXT_MASK[:, :LENGTH]  # what stands at padding is no concern of the equation
    assert_close(to_numpy(found)[real], equations.feed(x)[real], 1e-5)
    if shared:
        same = block(X, padding_mask=CONTEXT_MASK[:, :LENGTH], positions=positions[None])
        assert_close(same, found, 1e-6)


@NORM_FIRST
@pytest.mark.parametrize("causal", [False, True])
def test_positions_go_to_queries_and_keys_of_a_decoder_block_and_to_no_value(norm_first, causal):
    block = decoder(norm_first=norm_first, causal=causal)
    equations = Equations(block)
    mask = np.tril(np.ones((LENGTH, LENGTH), bool)) if causal else True
    x = equations.attend(np.float64(X), "mixer", mask=mask, positions=POSITIONS)
    for settings in ({}, {"context_positions": CONTEXT_POSITIONS}):
        expected = equations.attend(
            x, "cross_attention", CONTEXT, CONTEXT_MASK[:, None, None], POSITIONS, **settings
        )
        found = block(X, CONTEXT, context_mask=CONTEXT_MASK, positions=POSITIONS, **settings)
        assert_close(found, equations.feed(expected), 1e-5)


def test_positions_of_zero_are_none():
    zeros = np.zeros_like(X[0])
    assert_close(encoder()(X, positions=zeros), encoder()(X), 1e-6)
    found = decoder()(X, CONTEXT, positions=zeros, context_positions=0 * CONTEXT[:1])
    assert_close(found, decoder()(X, CONTEXT), 1e-6)


def test_positions_take_the_dtype_of_what_they_are_added_to():
    block = EncoderBlock(HEADS, HIDDEN, dtype="mixed_float16")
    assert block(ops.cast(X, "float16"), positions=POSITIONS).dtype == "float16"


def test_the_number_of_parameters_is_that_of_the_formula():
    attention, feed_forward = 4 * (WIDTH**2 + WIDTH), 2 * WIDTH * HIDDEN + HIDDEN + WIDTH
    across = 2 * (WIDTH**2 + CONTEXT_WIDTH * WIDTH) + 4 * WIDTH
    assert encoder().count_params() == attention + feed_forward + 2 * 2 * WIDTH
    assert decoder().count_params() == attention + across + feed_forward + 3 * 2 * WIDTH
    scaled = encoder(layer_scale=0.1).count_params()
    assert scaled == attention + feed_forward + 2 * 3 * WIDTH


# ---------------------------------------------------------------------------- properties


@NORM_FIRST
@given(order=st.permutations(range(LENGTH)))
def test_an_encoder_block_is_permutation_equivariant(norm_first, order):
    block = encoder(norm_first=norm_first)
    assert_close(block(X[:, order]), to_numpy(block(X))[:, order], 1e-5)


@NORM_FIRST
@given(order=st.permutations(range(LENGTH)))
def test_a_decoder_block_of_a_set_is_permutation_equivariant(norm_first, order):
    block = decoder(norm_first=norm_first, causal=False)
    found = block(X[:, order], CONTEXT, positions=POSITIONS[:, order])
    assert_close(found, to_numpy(block(X, CONTEXT, positions=POSITIONS))[:, order], 1e-5)


@NORM_FIRST
@given(cut=st.integers(1, LENGTH - 1))
def test_the_future_cannot_alter_the_past_by_a_single_bit(norm_first, cut):
    block, changed = decoder(norm_first=norm_first), X.copy()
    changed[:, cut:] = 1e3
    before, after = to_numpy((block(X, CONTEXT), block(changed, CONTEXT)))
    np.testing.assert_array_equal(after[:, :cut], before[:, :cut])


@NORM_FIRST
@given(length=st.integers(1, LENGTH), seed=st.integers(0, 99))
def test_padding_has_no_influence_whatever_it_holds(norm_first, length, seed):
    block, real = encoder(norm_first=norm_first), np.arange(LENGTH) < length
    noise = np.random.default_rng(seed).normal(0, 1e3, X.shape)
    padded = np.where(real[:, None], X, noise).astype("float32")
    mask = np.broadcast_to(real, (BATCH, LENGTH))
    expected = to_numpy(block(X, padding_mask=mask))[:, :length]
    assert_close(to_numpy(block(padded, padding_mask=mask))[:, :length], expected, 1e-6)
    assert_close(to_numpy(block(padded, mask=mask))[:, :length], expected, 1e-6)


@NORM_FIRST
def test_padding_of_the_context_has_no_influence(norm_first):
    block = decoder(norm_first=norm_first)
    noisy = np.where(CONTEXT_MASK[..., None], CONTEXT, 1e3).astype("float32")
    expected = block(X, CONTEXT, context_mask=CONTEXT_MASK)
    assert_close(block(X, noisy, context_mask=CONTEXT_MASK), expected, 1e-6)


@pytest.mark.filterwarnings("error")  # Keras warns where a mask gets lost
@NORM_FIRST
def test_an_implicit_mask_makes_padding_invisible_and_arrives_at_the_end(norm_first):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(13, WIDTH, mask_zero=True, embeddings_initializer="normal")(ids)
    x = PositionalEncoding()(x)
    for _ in range(2):
        x = EncoderBlock(HEADS, HIDDEN, norm_first=norm_first)(x)
    x = keras.layers.LayerNormalization()(x)  # as at the end of every pre-norm stack
    model = keras.Model(ids, x)
    short = np.array([[4, 7, 2], [9, 1, 0]])
    padded = np.pad(short, ((0, 0), (0, 4)))
    real = short != 0
    expected, y = model(short), model(padded)
    np.testing.assert_array_equal(ops.convert_to_numpy(y._keras_mask), padded != 0)
    assert_close(to_numpy(y)[:, :3][real], to_numpy(expected)[real], 1e-6)
    alone = model(short[1:, :2])  # the second row without any padding
    assert_close(to_numpy(y)[1:, :2], alone, 1e-6)


def test_implicit_masks_of_both_sides_reach_a_decoder_block():
    target, source = (keras.Input((None,), dtype="int32") for _ in range(2))
    embedding = keras.layers.Embedding(13, WIDTH, mask_zero=True, embeddings_initializer="normal")
    model = keras.Model(
        [target, source], DecoderBlock(HEADS, HIDDEN)(embedding(target), embedding(source))
    )
    targets, sources = np.array([[4, 7, 2]]), np.array([[9, 1, 8, 5]])
    padded = [np.pad(ids, ((0, 0), (0, 3))) for ids in (targets, sources)]
    expected, y = model([targets, sources]), model(padded)
    assert_close(to_numpy(y)[:, :3], expected, 1e-6)
    np.testing.assert_array_equal(ops.convert_to_numpy(y._keras_mask), padded[0] != 0)


def test_the_reported_weights_are_those_of_the_attention():
    weights = to_numpy(encoder()(X, return_attention_scores=True)[1])
    assert weights.shape == (BATCH, HEADS, LENGTH, LENGTH)
    weights = to_numpy(decoder()(X, CONTEXT, return_attention_scores=True)[1])
    assert weights.shape == (BATCH, HEADS, LENGTH, CONTEXT_LENGTH)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    weights = to_numpy(make(DecoderBlock, X.shape)(X, return_attention_scores=True)[1])
    assert not np.any(np.triu(weights, k=1))
