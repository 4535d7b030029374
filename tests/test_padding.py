"""Claims about padding: whatever stands there, NaN and infinity too, it changes nothing."""

import functools
import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers import models
from keras_transformers.layers import (
    ConditionalDecoderBlock,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FirstEncoderBlock,
    MultiHeadAttention,
    SandwichDecoderBlock,
)
from keras_transformers.layers.masks import hide_padding
from keras_transformers.layers.mixers import Mixer
from tests.contract import assert_close, gradients, to_numpy
from tests.every_layer import CONTEXT, EVERY, HEADS, LENGTH, TOKENS

CONTENTS = {"nan": np.nan, "infinity": np.inf, "the largest": np.finfo("float32").max}
SLOW = pytest.mark.slow
MIXERS = pytest.mark.parametrize("name", [name for name, case in EVERY.items() if case.mixes])
REAL = np.arange(LENGTH) < np.array([[6], [4], [1]])
REAL_CONTEXT = np.arange(CONTEXT.shape[1]) < np.array([[3], [5], [1]])


def padded(x, real, content):
    return np.where(real[..., None], x, np.float32(content))


class Padded(keras.layers.Layer):
    """A layer with the masks of its inputs; the gradient of what it gives is that of real rows."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        known = inspect.signature(layer.call).parameters
        self.masks = {
            name: real
            for name, real in (
                ("padding_mask" if "padding_mask" in known else "mask", REAL),
                ("context_mask", REAL_CONTEXT),
            )
            if name in known
        }

    def inputs(self, case, content):
        """The inputs of the case, with that at padding."""
        real = [REAL] if "context_mask" not in self.masks else [REAL, REAL_CONTEXT]
        if "context_mask" in self.masks and len(self.masks) == 1:
            real = [np.ones_like(REAL), REAL_CONTEXT]  # the queries' own padding is not its affair
        return [padded(x, mask, content) for x, mask in zip(case.inputs, real, strict=True)]

    def build(self, *shapes):
        self.layer.build(*shapes)

    def call(self, *inputs):
        masks = {name: ops.convert_to_tensor(mask) for name, mask in self.masks.items()}
        y = self.layer(*inputs, **masks)
        return y if len(y.shape) == 2 else hide_padding(y, ops.convert_to_tensor(REAL))


@MIXERS
def test_what_stands_at_padding_changes_no_output_and_no_gradient(name):
    case = EVERY[name]
    layer = Padded(case.make())
    layer.build(*(x.shape for x in case.inputs))
    expected = to_numpy(layer(*layer.inputs(case, 0.0)))
    assert np.isfinite(expected).all()
    for content in CONTENTS.values():
        assert_close(layer(*layer.inputs(case, content)), expected, 0)
    with_zeros, with_nan = (gradients(layer, layer.inputs(case, c)) for c in (0.0, np.nan))
    for one, other in zip(with_nan, with_zeros, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("axes", ["batch", "heads", "queries"])
def test_keys_that_an_attention_mask_hides_from_all_queries_change_nothing(axes, content):
    """One that it hides from some queries only must be finite: a weight of 0 times NaN is NaN."""
    mask = {"batch": REAL_CONTEXT[:, None], "heads": REAL_CONTEXT[:, None, None]}.get(axes)
    real = REAL_CONTEXT if mask is not None else REAL_CONTEXT[:1]
    mask = real if mask is None else mask  # of one query: for all
    context = padded(CONTEXT, real, CONTENTS[content])
    for layer in (CrossAttention(HEADS), MultiHeadAttention(HEADS, num_key_value_heads=1)):
        layer.build(TOKENS.shape, CONTEXT.shape)
        expected = layer(TOKENS, padded(CONTEXT, real, 0), attention_mask=mask)
        assert_close(layer(TOKENS, context, attention_mask=mask), expected, 0)


def test_a_context_is_projected_without_what_stands_at_its_padding():
    layer, x = CrossAttention(HEADS), ops.convert_to_tensor(TOKENS)
    layer.build(TOKENS.shape, CONTEXT.shape)
    mask = ops.convert_to_tensor(REAL_CONTEXT)
    expected = layer(x, padded(CONTEXT, REAL_CONTEXT, 0), context_mask=mask)
    context = ops.convert_to_tensor(padded(CONTEXT, REAL_CONTEXT, np.nan))
    cache = layer.project_context(context, mask)
    assert_close(layer.step(x, cache, mask)[0], expected, 1e-5)


# ---------------------------------------------------------------- parts that mix positions


def _rnn(kind):
    return lambda: kind(WIDTH, return_sequences=True)


def _both_ways():
    return keras.layers.Bidirectional(_rnn(keras.layers.LSTM)(), merge_mode="sum")


class Neighbours(keras.layers.Layer):
    """Adds the next token to each token; says nothing about masks."""

    def call(self, x):
        return x + ops.pad(x[:, 1:], [[0, 0], [0, 1], [0, 0]])


class Mean(keras.layers.Layer):
    """The mean of the real tokens, which takes a mask and says so."""

    takes_mask = True

    def call(self, x, mask=None):
        real = ops.ones_like(x[..., :1]) if mask is None else ops.cast(mask, x.dtype)[..., None]
        mean = ops.sum(x * real, axis=1, keepdims=True) / ops.sum(real, axis=1, keepdims=True)
        return x + mean


WIDTH = 8
NETWORKS = {
    "convolution": lambda: keras.layers.Conv1D(WIDTH, 3, padding="same"),
    "causal convolution": lambda: keras.layers.Conv1D(WIDTH, 2, padding="causal"),
    "separable convolution": lambda: keras.layers.SeparableConv1D(WIDTH, 3, padding="same"),
    "lstm": _rnn(keras.layers.LSTM),
    "gru": _rnn(keras.layers.GRU),
    "both ways": _both_ways,
    "dense": lambda: keras.layers.Dense(WIDTH, "relu"),
    "model": lambda: keras.Sequential([keras.layers.Dense(5, "relu"), keras.layers.Dense(WIDTH)]),
    "unknown": Neighbours,
    "with a mask": Mean,
}
UNHIDDEN = {
    "group norm": ("norm", lambda: keras.layers.GroupNormalization(2)),
    "norm over tokens": ("norm", lambda: keras.layers.LayerNormalization(axis=(1, 2))),
    "model of a convolution": (
        "feed_forward",
        lambda: keras.Sequential(
            [keras.layers.Dense(5), keras.layers.Conv1D(WIDTH, 3, padding="same")]
        ),
    ),
}
BLOCKS = {
    "encoder": EncoderBlock,
    "decoder": functools.partial(DecoderBlock, causal=False),
    "sandwich": functools.partial(SandwichDecoderBlock, causal=False),
    "first": FirstEncoderBlock,
    "conditional": ConditionalDecoderBlock,
}
SETTINGS = [  # which part of which block
    pytest.param(
        block, place, name, marks=[] if (block, place) == ("encoder", "feed_forward") else SLOW
    )
    for block in BLOCKS
    for place in ("feed_forward", "mixer", "norm")
    for name in (*NETWORKS, "batch norm")
    if (place == "norm") == (name == "batch norm")
    and not (place == "mixer" and (block == "conditional" or name in ("unknown", "model")))
]


def called(block, x, real, training):
    one = x[:, :1]  # the context, all real
    others = [one, x, x, one] if isinstance(block, ConditionalDecoderBlock) else []
    return to_numpy(block(x, *others, padding_mask=real, training=training))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("block", "place", "name"), SETTINGS)
def test_real_tokens_are_what_they_are_without_padding(block, place, name, norm_first):
    """Where the padding is left out; in training too, for a norm of the whole batch."""
    if block in ("sandwich", "first") and not norm_first:
        pytest.skip("the block has one order only")
    makers = {**NETWORKS, "batch norm": keras.layers.BatchNormalization}
    parts = {"mlp_dim": 13, place: makers[name]()}
    if place == "feed_forward":
        del parts["mlp_dim"]
    if place != "mixer":
        parts["num_heads"] = 2
    layer = BLOCKS[block](**parts, norm_first=norm_first)
    rng = np.random.default_rng(5)
    whole = rng.normal(size=(1, 4, WIDTH)).astype("float32")
    x = np.pad(whole, [(0, 0), (0, 3), (0, 0)], constant_values=7.0)
    real = np.arange(7)[None] < 4
    for training in (False, True):
        called(layer, whole, None, training)
        for weight in layer.trainable_variables:  # biases too, which fill padding
            weight.assign(rng.normal(size=weight.shape) / 3)
        expected = called(layer, whole, None, training)
        assert_close(called(layer, x, real, training)[:, :4], expected, 1e-5)


@pytest.mark.parametrize("name", UNHIDDEN)
def test_a_part_that_sums_over_positions_without_a_mask_is_refused_beside_one(name):
    place, make = UNHIDDEN[name]
    settings = {"mlp_dim": 13} if place == "norm" else {}
    block = EncoderBlock(2, **settings, **{place: make()})
    x = np.ones((1, 4, WIDTH), "float32")
    block(x)
    with pytest.raises(ValueError, match=f"`{place}` must be a layer that computes every token"):
        block(x, padding_mask=np.arange(4)[None] < 3)


def test_a_decoder_refuses_a_network_that_mixes_positions_token_by_token():
    network = keras.layers.Conv1D(WIDTH, 2, padding="causal")
    block = DecoderBlock(2, feed_forward=network)
    block(np.ones((1, 4, WIDTH), "float32"))
    with pytest.raises(ValueError, match="`feed_forward` must be position-wise"):
        block.start_cache(1, 1, 4)


@pytest.mark.parametrize("name", EVERY)
def test_layers_of_ours_that_take_a_padding_mask_say_so(name):
    layer = EVERY[name].make()
    takes = "mask" in inspect.signature(layer.call).parameters
    if hasattr(layer, "takes_mask") or isinstance(layer, Mixer):
        assert layer.takes_mask == takes
    assert not (takes and getattr(layer, "position_wise", False))


def test_a_model_whose_last_norm_mixes_positions_is_exact_or_refuses():
    ids = np.array([[5, 3, 4]])
    for norm, refused in (
        (keras.layers.GroupNormalization(2), True),
        (keras.layers.BatchNormalization(), False),
    ):
        block = EncoderBlock(2, 13, norm_first=True, norm=norm)
        model = models.TextEncoder(11, hidden_dim=WIDTH, num_layers=2, block=block)
        padded_ids = np.pad(ids, [(0, 0), (0, 2)])
        if refused:
            with pytest.raises(ValueError, match="`norm` must be a layer that computes every"):
                model(padded_ids)
        else:
            assert_close(to_numpy(model(padded_ids))[:, :3], model(ids), 1e-5)
