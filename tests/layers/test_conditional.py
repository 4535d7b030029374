"""Claims about the attentions and blocks of Conditional DETR."""

import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    ConditionalCrossAttention,
    ConditionalDecoderBlock,
    ConditionalSelfAttention,
    FirstConditionalDecoderBlock,
    SelfAttention,
)
from tests.contract import assert_close, check_layer, to_numpy

RNG = np.random.default_rng(0)
HEADS, WIDTH = 3, 12


def random(*shape):
    return RNG.normal(size=shape).astype("float32")


X, POSITIONS, REFERENCE = random(2, 5, WIDTH), random(5, WIDTH), random(2, 5, WIDTH)
MAP, PLACES = random(2, 7, WIDTH), random(2, 7, WIDTH)
MASK = np.arange(7) < np.array([[7], [4]])


def made(layer, *shapes):
    layer.build(*shapes)
    layer.set_weights([RNG.normal(size=w.shape) / 2 for w in layer.weights])
    return layer


def projected(dense, x):
    """`(batch, heads, length, dim)`, float64."""
    y = np.einsum("abc,cde->abde", np.float64(x), np.float64(ops.convert_to_numpy(dense.kernel)))
    return (y + ops.convert_to_numpy(dense.bias)).swapaxes(1, 2)


def attended(layer, scores, value, mask=True):
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    kernel, bias = map(to_numpy, (layer.output_dense.kernel, layer.output_dense.bias))
    return np.einsum("bhqk,bhkd,hde->bqe", weights, value, np.float64(kernel)) + bias, weights


def test_self_attention_adds_projected_contents_and_positions():
    layer = made(ConditionalSelfAttention(HEADS), X.shape)
    query, key = (
        projected(dense, X) + projected(of_positions, POSITIONS[None])
        for dense, of_positions in (
            (layer.query_dense, layer.query_position_dense),
            (layer.key_dense, layer.key_position_dense),
        )
    )
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(WIDTH // HEADS)
    expected = attended(layer, scores, projected(layer.value_dense, X))
    found = layer(X, POSITIONS, return_attention_scores=True)
    assert_close(found, tuple(np.float32(x) for x in expected), 1e-5)


def test_with_one_projection_for_both_it_is_the_self_attention_of_detr():
    layer, plain = made(ConditionalSelfAttention(HEADS), X.shape), SelfAttention(HEADS)
    plain.build(X.shape)
    plain.set_weights(layer.get_weights()[:8])
    for of_positions, dense in (
        (layer.query_position_dense, layer.query_dense),
        (layer.key_position_dense, layer.key_dense),
    ):
        of_positions.kernel.assign(dense.kernel)
        of_positions.bias.assign(np.zeros(dense.bias.shape))
    assert_close(layer(X, POSITIONS), plain(X, positions=POSITIONS), 1e-5)


@pytest.mark.parametrize("first", [False, True])
def test_cross_attention_compares_contents_with_contents_and_positions_with_positions(first):
    positions = POSITIONS if first else None
    shapes = (X.shape, MAP.shape, X.shape, MAP.shape, X.shape if first else None)
    layer = made(ConditionalCrossAttention(HEADS), *shapes)
    content, place = projected(layer.key_dense, MAP), projected(layer.key_position_dense, PLACES)
    query, point = projected(layer.query_dense, X), projected(layer.reference_dense, REFERENCE)
    if first:
        query = query + projected(layer.query_position_dense, POSITIONS[None])
        content = content + place
    scores = np.einsum("bhqd,bhkd->bhqk", query, content)
    scores += np.einsum("bhqd,bhkd->bhqk", point, place)
    scores /= np.sqrt(2 * WIDTH // HEADS)
    value = projected(layer.value_dense, MAP)
    expected = attended(layer, scores, value, MASK[:, None, None])
    found = layer(X, MAP, REFERENCE, PLACES, positions, MASK, return_attention_scores=True)
    assert_close(found, tuple(np.float32(x) for x in expected), 1e-5)


def test_what_stands_at_padding_changes_nothing():
    block = made(ConditionalDecoderBlock(HEADS, 11), X.shape, MAP.shape)
    context = np.where(MASK[..., None], MAP, np.nan)
    found = (
        block(X, x, POSITIONS, REFERENCE, PLACES, context_mask=MASK) for x in (MAP * 1, context)
    )
    assert_close(*found, 0)


def test_only_the_first_block_adds_positions_to_contents_of_the_map():
    blocks = FirstConditionalDecoderBlock(HEADS, 11), ConditionalDecoderBlock(HEADS, 11)
    for block in blocks:
        block.build(X.shape, MAP.shape)
    first, other = ({w.path.split("/", 1)[1] for w in block.weights} for block in blocks)
    more = {f"cross_attention/query_position/{name}" for name in ("kernel", "bias")}
    assert first - other == more and other < first


def test_errors_say_what_was_expected():
    layer = made(ConditionalCrossAttention(HEADS), X.shape, MAP.shape)
    with pytest.raises(ValueError, match="`positions` must be None, as when it was built"):
        layer(X, MAP, REFERENCE, PLACES, POSITIONS)
    with pytest.raises(ValueError, match=r"`reference` must be of shape \(2, 5, 12\) or"):
        layer(X, MAP, REFERENCE[:, :4], PLACES)
    with pytest.raises(ValueError, match=r"`context_positions` .* shape \(2, 7, 11\)"):
        layer(X, MAP, REFERENCE, PLACES[..., :11])
    with pytest.raises(ValueError, match="`num_heads` must divide the width of `x`, 12"):
        ConditionalDecoderBlock(5, 11).build(X.shape, MAP.shape)


@pytest.mark.parametrize("kind", ["self", "cross", "first"])
def test_they_are_layers_like_others(kind):
    make, inputs = {
        "self": (lambda **kw: ConditionalSelfAttention(HEADS, **kw), (X, REFERENCE)),
        "cross": (lambda **kw: ConditionalCrossAttention(HEADS, **kw), (X, MAP, REFERENCE, PLACES)),
        "first": (
            lambda **kw: FirstConditionalDecoderBlock(HEADS, 11, **kw),
            (X, MAP, REFERENCE, REFERENCE, PLACES),
        ),
    }[kind]
    check_layer(make, inputs)
