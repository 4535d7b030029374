"""Claims about blocks of other parts, decoding, and what blocks refuse."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    CausalSelfAttention,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    FourierMixing,
    GatedFeedForward,
    LocalAttention,
    RotaryEmbedding,
    SelfAttention,
)
from tests.built_blocks import (
    BATCH,
    CONTEXT,
    CONTEXT_LENGTH,
    CONTEXT_MASK,
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
from tests.contract import assert_close, to_numpy

# ----------------------------------------------------------------------------------- other parts


def test_a_block_of_other_parts_computes_their_equation():
    """`x + SwiGLU(RMSNorm(x))` in float64, the attention being made to give zeros."""
    block = make(
        EncoderBlock,
        X.shape,
        mlp_dim=None,
        norm_first=True,
        feed_forward=GatedFeedForward(HIDDEN, use_bias=False),
        norm=keras.layers.RMSNormalization(epsilon=1e-5),
    )
    output = block.mixer.output_dense
    output.set_weights([0 * weight for weight in output.get_weights()])
    x = np.float64(X)
    scale = block.feed_forward_norm.get_weights()[0]
    y = x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-5) * scale
    gate, hidden, out = (
        np.float64(layer.kernel)
        for layer in (
            block.feed_forward.gate_dense,
            block.feed_forward.hidden_dense,
            block.feed_forward.output_dense,
        )
    )
    y = ((y @ gate) / (1 + np.exp(-(y @ gate))) * (y @ hidden)) @ out
    assert_close(block(X), x + y, 1e-5)


def test_a_dropped_path_leaves_the_sample_untouched():
    block = make(EncoderBlock, X.shape, norm_first=True, drop_path=0.5)
    keras.utils.set_random_seed(5)
    x = np.repeat(X[:1], 101, axis=0)
    unchanged = np.all(to_numpy(block(x, training=True)) == x, axis=(1, 2))
    assert 0.1 < unchanged.mean() < 0.4  # both branches: 0.25
    assert not np.any(np.all(to_numpy(block(x)) == x, axis=(1, 2)))


@pytest.mark.parametrize(
    "settings",
    [
        lambda rate: {"dropout": rate},
        lambda rate: {"num_heads": None, "mixer": SelfAttention(HEADS, dropout=rate)},
        lambda rate: {"mlp_dim": None, "feed_forward": FeedForward(HIDDEN, dropout=rate)},
        lambda rate: {"drop_path": rate},
    ],
    ids=["dropout", "of attention", "of the network", "drop_path"],
)
def test_dropout_acts_in_training_only(settings):
    block, plain = encoder(**settings(0.5)), encoder(**settings(0.0))
    assert_close(block(X), plain(X), 0)
    assert_close(block(X, training=False), plain(X), 0)
    assert np.any(to_numpy(block(X, training=True)) != to_numpy(plain(X)))


# ------------------------------------------------------------------------------ token by token


@NORM_FIRST
def test_step_by_step_decoding_is_the_whole_forward_pass(norm_first):
    beams, block = 2, decoder(norm_first=norm_first, layer_scale=0.7)
    x = RNG.normal(size=(BATCH, beams, LENGTH, WIDTH)).astype("float32")
    context, mask = (np.repeat(each, beams, axis=0) for each in (CONTEXT, CONTEXT_MASK))
    whole = block(x.reshape(-1, LENGTH, WIDTH), context, context_mask=mask)
    whole = to_numpy(whole).reshape(x.shape)
    cache = block.start_cache(BATCH, beams, max_length=CONTEXT_LENGTH)
    projected = block.cross_attention.project_context(ops.convert_to_tensor(CONTEXT))
    mask = ops.convert_to_tensor(CONTEXT_MASK)
    for index in range(LENGTH):
        token = ops.convert_to_tensor(x[:, :, index])
        y, cache, _ = block.step(token, cache, index, None, projected, mask)
        assert_close(y, whole[:, :, index], 1e-5)


@NORM_FIRST
def test_a_block_without_context_decodes_step_by_step_too(norm_first):
    block = make(DecoderBlock, X.shape, norm_first=norm_first)
    whole, cache = to_numpy(block(X)), block.start_cache(BATCH, 1, LENGTH)
    for index in range(LENGTH):
        y, cache, _ = block.step(ops.convert_to_tensor(X[:, index : index + 1]), cache, index)
        assert_close(to_numpy(y)[:, 0], whole[:, index], 1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "mixer",
    [
        None,
        CausalSelfAttention(HEADS, position=RotaryEmbedding(rotary_dim=6)),
        LocalAttention(HEADS, window_size=3, causal=True),
    ],
    ids=["attention", "rotary", "local"],
)
def test_tokens_taken_in_at_once_leave_what_steps_leave(mixer, beams):
    heads = HEADS if mixer is None else None
    block = make(DecoderBlock, X.shape, num_heads=heads, norm_first=True, mixer=mixer)
    x, length = ops.convert_to_tensor(X), LENGTH + 2
    cache = block.start_cache(BATCH, beams, length)
    together, filled = block.prefill(x, block.start_cache(BATCH, beams, length), beams)
    for index in range(LENGTH):
        token = ops.repeat(x[:, index : index + 1], beams, axis=1)
        y, cache, _ = block.step(token, cache, index)
        for beam in range(beams):
            assert_close(y[:, beam], to_numpy(together)[:, index], 1e-5)
    for name in cache:
        assert_close(filled[name], to_numpy(cache[name]), 1e-6)


# -------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("block_class", [EncoderBlock, DecoderBlock])
def test_errors_name_the_block_the_argument_and_what_was_received(block_class):
    name, block = block_class.__name__, block_class(HEADS, HIDDEN, name="third")
    with pytest.raises(ValueError, match=rf"{name} 'third': `x` must have shape.*\(5, 22\)"):
        block(X[0])
    block = block_class(3, HIDDEN, name="third")
    with pytest.raises(ValueError, match=f"{name} 'third': `num_heads` must divide.*22.*=3"):
        block(X)
    block = block_class(HEADS, HIDDEN, name="third")
    with pytest.raises(ValueError, match=r"'mixer': `attention_mask`.*\(4, 5, 5\)"):
        block(X, attention_mask=np.ones((4, LENGTH, LENGTH), bool))


def test_a_context_must_be_given_always_or_never():
    with pytest.raises(ValueError, match="`context` must be given.*Received: None"):
        decoder()(X)
    with pytest.raises(ValueError, match="`context` must be None.*Received: a tensor"):
        make(DecoderBlock, X.shape)(X, CONTEXT)


def test_a_padding_mask_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"Block 'encoder.*': `padding_mask` must be .*\(3, 6\)"):
        encoder()(X, padding_mask=np.ones((BATCH, LENGTH + 1), bool))


def test_a_mask_of_the_context_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"`context_mask` must be of shape \(batch, .*\(3, 4\)"):
        decoder()(X, CONTEXT, context_mask=CONTEXT_MASK[:, :4])


@pytest.mark.parametrize(
    "shape", [(LENGTH,), (LENGTH, 1), (LENGTH + 1, WIDTH), (2, LENGTH, WIDTH), (1, *X.shape)]
)
def test_positions_that_do_not_fit_are_refused(shape):
    message = rf"'mixer': `positions` must be of shape \(3, 5, 22\) or.*{shape[0]},"
    with pytest.raises(ValueError, match=message):
        encoder()(X, positions=np.ones(shape, "float32"))
    with pytest.raises(ValueError, match="'cross_attention': `context_positions` must be of shape"):
        decoder()(X, CONTEXT, context_positions=np.ones(shape, "float32"))


def test_what_knows_no_positions_refuses_them():
    block = EncoderBlock(mlp_dim=HIDDEN, mixer=FourierMixing(), name="third")
    message = "'third': `positions` must be left out, for FourierMixing"
    with pytest.raises(ValueError, match=message):
        block(X, positions=POSITIONS)


def test_a_block_of_a_set_cannot_decode_token_by_token():
    with pytest.raises(ValueError, match="must be able to decode token by token.*SelfAttention"):
        decoder(causal=False).start_cache(BATCH, 1, LENGTH)
