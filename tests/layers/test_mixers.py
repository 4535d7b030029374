"""Claims about what can stand in attention's place."""

import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    AdditiveScore,
    CausalSelfAttention,
    ConvolutionMixing,
    DecoderBlock,
    EncoderBlock,
    FourierMixing,
    LinearAttention,
    LocalAttention,
    LSTMMixing,
    MLPMixing,
    RandomSynthesizer,
    RotaryEmbedding,
    SelfAttention,
)
from tests.contract import ON_JAX, assert_close, check_layer, randomised, to_numpy
from tests.oracles import softmax
from tests.slow import slow_except

BATCH, LENGTH, HEADS, WIDTH = 3, 6, 2, 14
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
PADDING = np.arange(LENGTH) < np.array([[6], [4], [1]])
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "attention.npz")
MIXERS = {
    "fourier": FourierMixing,
    "mlp": lambda **kwargs: MLPMixing(mlp_dim=11, **kwargs),
    "longer mlp": lambda **kwargs: MLPMixing(11, max_length=9, dropout=0.1, seed=3, **kwargs),
    "synthesizer": lambda **kwargs: RandomSynthesizer(HEADS, **kwargs),
    "factorised": lambda **kwargs: RandomSynthesizer(HEADS, 9, rank=2, dropout=0.1, **kwargs),
    "causal synthesizer": lambda **kwargs: RandomSynthesizer(HEADS, causal=True, **kwargs),
    "convolution": lambda **kwargs: ConvolutionMixing(3, HEADS, **kwargs),
    "dynamic": lambda **kwargs: ConvolutionMixing(5, HEADS, dynamic=True, dropout=0.1, **kwargs),
    "causal convolution": lambda **kwargs: ConvolutionMixing(4, HEADS, causal=True, **kwargs),
    "lstm": LSTMMixing,
    "causal lstm": lambda **kwargs: LSTMMixing(units=5, causal=True, **kwargs),
    "lstm on a grid": lambda **kwargs: LSTMMixing(grid=(2, 3), **kwargs),
}
EVERY = pytest.mark.parametrize("name", MIXERS)
NO_MASK = ("fourier", "lstm on a grid")
MASKED = pytest.mark.parametrize("name", [name for name in MIXERS if name not in NO_MASK])
CAUSAL = pytest.mark.parametrize("name", [name for name in MIXERS if "causal" in name])


@pytest.mark.skipif(ON_JAX, reason="they are in a block below, and compiled operation by operation")
@EVERY
def test_contract(name):
    if name == "longer mlp":
        # Positions beyond the sequence have no gradient, those of it have.
        assert LENGTH < 9
    check_layer(MIXERS[name], (X,))


@pytest.mark.parametrize("name", slow_except(MIXERS.keys(), "mlp", "dynamic", "causal lstm"))
def test_contract_in_a_block(name):
    check_layer(
        lambda **kwargs: EncoderBlock(None, 13, norm_first=True, mixer=MIXERS[name](), **kwargs),
        (X,),
    )


# ------------------------------------------------------------------------------- oracles


def test_fourier_mixing_is_that_of_transformers():
    assert_close(FourierMixing()(GOLDEN["x"]), GOLDEN["fourier"], 1e-4)


def test_fourier_mixing_is_two_sums_of_cosines():
    """The definition of the transform in float64: `cos(a + b)` of the angles of both axes."""
    length, width = np.arange(LENGTH), np.arange(WIDTH)
    along = 2 * np.pi * np.outer(length, length) / LENGTH
    across = 2 * np.pi * np.outer(width, width) / WIDTH
    angles = along[:, None, :, None] + across[None, :, None, :]  # (k, j, n, m)
    expected = np.einsum("bnm,kjnm->bkj", np.float64(X), np.cos(angles))
    assert_close(FourierMixing()(X), expected, 1e-4)


def test_mlp_mixing_is_its_equation():
    layer = randomised(MLPMixing(mlp_dim=11, activation="relu"), X.shape, seed=2)
    into, inner, out, outer = map(np.float64, layer.get_weights())
    hidden = np.maximum(np.swapaxes(np.float64(X), 1, 2) @ into + inner, 0)
    assert_close(layer(X), np.swapaxes(hidden @ out + outer, 1, 2), 1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_synthesizer_mixes_by_the_softmax_of_its_weights(rank):
    layer = randomised(RandomSynthesizer(HEADS, rank=rank), X.shape, seed=2)
    factors = [np.float64(ops.convert_to_numpy(factor)) for factor in layer.factors]
    scores = factors[0] if rank is None else factors[0] @ np.swapaxes(factors[1], 1, 2)
    value, bias = map(np.float64, layer.value_dense.get_weights())
    heads = (X @ value + bias).reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS)
    mixed = np.einsum("hqk,bkhd->bqhd", softmax(scores), heads).reshape(X.shape)
    kernel, bias = map(np.float64, layer.output_dense.get_weights())
    received, weights = layer(X, return_attention_scores=True)
    assert_close(received, mixed @ kernel + bias, 1e-5)
    assert_close(weights[0], softmax(scores), 1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_convolutions_are_their_equations(dynamic, causal):
    size = 3
    layer = ConvolutionMixing(size, HEADS, dynamic=dynamic, causal=causal)
    randomised(layer, X.shape, seed=2)
    kernel, bias = map(np.float64, layer.input_dense.get_weights())
    value, gate = np.split(X @ kernel + bias, 2, axis=-1)
    gated = value / (1 + np.exp(-gate))
    expected = np.zeros_like(gated)
    for b, t, feature in np.ndindex(*gated.shape):
        head = feature // (WIDTH // HEADS)
        if dynamic:
            (choice,) = map(np.float64, layer.kernel_dense.get_weights())
            scores = (gated[b, t] @ choice).reshape(HEADS, size)[head]
        else:
            scores = np.float64(ops.convert_to_numpy(layer.kernel))[head]
        for position, weight in enumerate(softmax(scores)):
            other = t + position - (size - 1 if causal else size // 2)
            if 0 <= other < LENGTH:
                expected[b, t, feature] += weight * gated[b, other, feature]
    kernel, bias = map(np.float64, layer.output_dense.get_weights())
    assert_close(layer(X), expected @ kernel + bias, 1e-5)


def test_lstms_are_those_of_torch():
    layer = LSTMMixing(units=5)
    x = GOLDEN["x"]
    layer.build(x.shape)
    weights = []
    for suffix in ("", "_reverse"):
        into, past = (GOLDEN[f"lstm_weight_{kind}_l0{suffix}"].T for kind in ("ih", "hh"))
        bias = sum(GOLDEN[f"lstm_bias_{kind}_l0{suffix}"] for kind in ("ih", "hh"))
        weights += [into, past, bias]
    layer.lstms[0].set_weights(weights)
    kernel = RNG.normal(size=(10, x.shape[2])).astype("float32")
    layer.output_dense.set_weights([kernel, np.zeros(x.shape[2])])
    assert_close(layer(x), GOLDEN["lstm"] @ kernel, 1e-5)


def test_on_a_grid_an_lstm_runs_along_each_row_and_each_column():
    layer = randomised(LSTMMixing(grid=(2, 3)), X.shape, seed=2)
    grid = X.reshape(BATCH, 2, 3, WIDTH)
    vertical, horizontal = layer.lstms
    down = np.stack([to_numpy(vertical(grid[:, :, column])[0]) for column in range(3)], axis=2)
    across = np.stack([to_numpy(horizontal(grid[:, row])[0]) for row in range(2)], axis=1)
    both = np.concatenate([down, across], axis=-1).reshape(BATCH, LENGTH, -1)
    kernel, bias = layer.output_dense.get_weights()
    assert_close(layer(X), both @ kernel + bias, 1e-5)


# ------------------------------------------------------------------------------- masks


@MASKED
def test_padding_changes_no_real_token(name):
    layer = randomised(MIXERS[name](), X.shape, seed=2)
    changed = np.where(PADDING[..., None], X, 1e3)
    received, expected = (to_numpy(layer(x, mask=ops.array(PADDING))) for x in (changed, X))
    assert_close(received[PADDING], expected[PADDING], 1e-6)


@pytest.mark.parametrize("name", ["longer mlp", "factorised", "convolution", "dynamic", "lstm"])
def test_more_padding_changes_no_real_token(name):
    layer = randomised(MIXERS[name](), X.shape, seed=2)
    more = np.concatenate([X, np.full((BATCH, 2, WIDTH), 9.0, "float32")], axis=1)
    mask = np.pad(PADDING, ((0, 0), (0, 2)))
    received = to_numpy(layer(more, mask=ops.array(mask)))[:, :LENGTH]
    expected = to_numpy(layer(X, mask=ops.array(PADDING)))
    assert_close(received[PADDING], expected[PADDING], 1e-5)


@CAUSAL
def test_a_causal_mixer_sees_no_later_token(name):
    layer = randomised(MIXERS[name](), X.shape, seed=2)
    changed = X.copy()
    changed[:, 4:] += 1
    np.testing.assert_array_equal(to_numpy(layer(changed))[:, :4], to_numpy(layer(X))[:, :4])


def test_an_implicit_mask_reaches_the_mixer():
    ids = np.where(PADDING, 3, 0)
    embedding = keras.layers.Embedding(5, WIDTH, mask_zero=True)
    block = EncoderBlock(None, 13, mixer=MLPMixing(11))
    expected = block(ops.stop_gradient(embedding(ids)), padding_mask=ops.array(PADDING))
    assert_close(block(embedding(ids)), expected, 0)
    with pytest.raises(ValueError, match="FourierMixing 'mixer': `mask` must be None"):
        EncoderBlock(None, 13, mixer=FourierMixing())(embedding(ids))
    EncoderBlock(None, 13, mixer=FourierMixing(ignore_mask=True))(embedding(ids))


# ------------------------------------------------------------------------------ in blocks


def test_a_block_is_its_equations_with_any_layer_that_mixes():
    class Half(keras.layers.Layer):
        """Not of this library, and without a mask."""

        def call(self, x):
            return x / 2

    block = EncoderBlock(None, 13, mixer=Half())
    y = block(X)
    middle = block.mixer_norm(X + X / 2)
    expected = block.feed_forward_norm(middle + block.feed_forward(middle))
    assert_close(y, expected, 1e-6)
    with pytest.raises(ValueError, match="`padding_mask` must be left out, for Half 'mixer'"):
        block(X, padding_mask=PADDING)
    with pytest.raises(ValueError, match="`return_attention_scores` must be left out"):
        block(X, return_attention_scores=True)


def test_an_attention_with_settings_of_its_own_is_a_mixer():
    mixer = SelfAttention(7, score=AdditiveScore(), position=RotaryEmbedding())
    first, second = (EncoderBlock(None, 13, mixer=mixer) for _ in range(2))
    _, weights = first(X, return_attention_scores=True, padding_mask=ops.array(PADDING))
    assert weights.shape == (BATCH, 7, LENGTH, LENGTH)
    second(X)
    assert not mixer.built
    assert first.mixer.score.vector is not second.mixer.score.vector


@pytest.mark.parametrize(
    "mixer",
    [
        CausalSelfAttention(7, position=RotaryEmbedding(), num_key_value_heads=1),
        LocalAttention(2, 3, causal=True),
    ],
    ids=["grouped queries", "local"],
)
def test_a_decoder_block_with_a_causal_mixer_decodes_token_by_token(mixer):
    block = DecoderBlock(None, 13, mixer=mixer)
    whole, cache = block(X), block.start_cache(BATCH, 1, LENGTH)
    for index in range(LENGTH):
        token = ops.convert_to_tensor(X[:, index : index + 1])
        y, cache, _ = block.step(token, cache, index)
        assert_close(y[:, 0], whole[:, index], 1e-5)


@pytest.mark.parametrize(
    "mixer",
    [ConvolutionMixing(3, 2, causal=True), LSTMMixing(causal=True), LinearAttention(2, True)],
    ids=["convolution", "lstm", "linear"],
)
def test_a_decoder_block_trains_with_other_causal_mixers_but_says_that_it_cannot_step(mixer):
    block = DecoderBlock(None, 13, mixer=mixer)
    changed = X.copy()
    changed[:, 4:] += 1
    assert_close(block(changed)[:, :4], block(X)[:, :4], 1e-6)
    with pytest.raises(ValueError, match="must be able to decode token by token"):
        block.start_cache(BATCH, 1, LENGTH)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecoderBlock(2, 13, mixer=FourierMixing()), "`mixer` must be causal.*Fourier"),
        (lambda: EncoderBlock(None, 13, mixer="fourier"), "`mixer` must be a Layer.*'fourier'"),
        (lambda: MLPMixing(0), "`mlp_dim` must be a positive integer.*: 0"),
        (lambda: MLPMixing(3).build((None, None, 4)), "`max_length` must be given.*None"),
        (lambda: MLPMixing(3, max_length=5)(X), r"`x` must be at most 5 long.*\(3, 6, 14\)"),
        (lambda: RandomSynthesizer(3)(X), "`num_heads` must be a divisor of .* 14.*: 3"),
        (lambda: ConvolutionMixing(4, 2), "`kernel_size` must be positive, and odd.*: 4"),
        (lambda: ConvolutionMixing(3, 3)(X), "`num_heads` must be a divisor of .* 14.*: 3"),
        (lambda: LSTMMixing(grid=(2, 3), causal=True), "`causal` must be False on a grid"),
        (lambda: LSTMMixing(grid=(2, 2))(X), r"`x` must be 2 x 2 tokens long.*\(3, 6, 14\)"),
        (lambda: LSTMMixing(grid=(2, 3))(X, mask=PADDING), "`mask` must be None on a grid"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
