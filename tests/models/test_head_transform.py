"""Claims about parts that some encoders have: transforms of heads, narrow tables, a first block."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import EncoderBlock, FirstEncoderBlock, SelfAttention
from keras_transformers.models import (
    ClassificationHead,
    HeadTransform,
    MaskedLanguageHead,
    TaggingHead,
    TextEmbedding,
    TextEncoder,
)
from tests.contract import assert_close, check_layer, to_numpy

IDS = np.array([[3, 5, 7, 2, 0], [4, 4, 9, 0, 0]])
X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
NORM = keras.layers.LayerNormalization(epsilon=1e-5, center=False)


def normed(x, scale=1.0):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def encoder(head, **options):
    embedding = TextEmbedding(11, 6, 9, **options)
    block = EncoderBlock(2, 8)
    return TextEncoder(num_layers=1, block=block, embedding=embedding, head=head)


@pytest.mark.parametrize("options", [{}, {"norm": NORM, "use_bias": False, "units": 7}])
def test_contract_of_a_transform(options):
    check_layer(lambda **kwargs: HeadTransform("tanh", **options, **kwargs), (X,))


def test_a_transform_computes_its_equation():
    layer = HeadTransform("tanh", NORM, use_bias=False, units=7)
    y = to_numpy(layer(X))
    (kernel, scale) = layer.get_weights()
    assert_close(y, normed(np.tanh(X @ kernel), scale), 1e-5)


@pytest.mark.parametrize(
    ("head", "shape"),
    [
        (ClassificationHead(3, transform=HeadTransform("relu", NORM, units=7)), (2, 3)),
        (TaggingHead(3, transform=HeadTransform("relu", NORM, units=7)), (2, 5, 3)),
        (MaskedLanguageHead(transform=HeadTransform("relu", NORM)), (2, 5, 11)),
    ],
)
def test_a_head_sees_what_its_transform_makes(head, shape):
    model = encoder(head)
    y = to_numpy(model(IDS))
    assert y.shape == shape == tuple(model.compute_output_shape(IDS.shape))
    x = to_numpy(model.encode(IDS))
    if len(shape) == 2:
        x = x[:, 0]
    layer = getattr(model.head, "pooler", None) or model.head.transform
    vectors = to_numpy(layer(x))
    if isinstance(head, MaskedLanguageHead):
        kernel, bias = to_numpy(model.token_embedding.table).T, to_numpy(model.head.bias)
    else:
        kernel, bias = (to_numpy(each) for each in model.head.classes.weights)
    assert_close(y, vectors @ kernel + bias, 1e-5)
    again = TextEncoder.from_config(model.get_config())
    again.build((None, None))
    again.set_weights(model.get_weights())
    assert_close(again(IDS), y, 1e-6)


def test_a_norm_beside_a_transform_is_refused():
    with pytest.raises(ValueError, match="`norm` must be left out beside `transform`"):
        MaskedLanguageHead(norm=NORM, transform=HeadTransform())
    with pytest.raises(ValueError, match="`transform` must be a HeadTransform"):
        TaggingHead(2, transform=keras.layers.Dense(3))


def test_tables_may_be_narrower_than_the_blocks():
    narrow = TextEncoder.from_variant(
        "tiny", 11, hidden_dim=6, num_heads=2, mlp_dim=8, max_length=9, num_layers=1,
        embedding_dim=4, head="masked_language",
    )  # fmt: skip
    assert tuple(narrow(IDS).shape) == (2, 5, 11)
    embedding = narrow.embedding
    assert [tuple(each.shape) for each in embedding.weights[:3]] == [(11, 4), (9, 4), (2, 4)]
    tokens, positions, types, scale, offset, kernel, bias = map(to_numpy, embedding.weights)
    x = tokens[IDS] + positions[: IDS.shape[1]] + types[0]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * scale + offset
    assert_close(embedding(IDS), x @ kernel + bias, 1e-5)


def test_the_first_block_has_one_norm():
    options = {"norm_first": True, "mlp_dim": 8, "mixer": SelfAttention(2), "norm": NORM}
    block = FirstEncoderBlock(**options)
    y = to_numpy(block(X))
    x = X + to_numpy(block.mixer(X))
    assert_close(y, x + to_numpy(block.feed_forward(normed(x))), 1e-5)
    with pytest.raises(ValueError, match="`norm_first` must be True"):
        FirstEncoderBlock(2, 8)(X)
