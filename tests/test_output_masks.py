"""Claims about the implicit Keras mask of what layers and models give: the real tokens, or none."""

import keras
import numpy as np
import pytest

from keras_transformers import models
from tests.contract import assert_close, to_numpy
from tests.every_layer import EVERY
from tests.every_model import IMAGES, MODELS, OF_PICTURES, OF_TOKENS
from tests.seen import mask_of

VOCAB = 31
SIZES = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 11, "num_layers": 1}
RIGHT = np.array([[3, 4, 9, 5, 7], [3, 4, 0, 0, 0], [6, 0, 0, 0, 0]], "int32")
LEFT = np.array([[3, 4, 9, 5, 7], [0, 0, 0, 3, 4], [0, 0, 0, 0, 6]], "int32")
SEGMENTS = np.array([[1, 1, 2, 2, 0], [1, 0, 0, 0, 0], [1, 2, 3, 0, 0]], "int32")


def text_encoder(**changes):
    return models.TextEncoder.from_variant("base", VOCAB, max_length=9, **{**SIZES, **changes})


def transformer(**changes):
    return models.Transformer.from_variant("base", VOCAB, **SIZES, **changes)


OF_ONE_TEXT = {
    "text_encoder": text_encoder,
    "modern encoder": lambda: text_encoder(style="modern"),
    "masked language": lambda: text_encoder(head="masked_language"),
    "tagging": lambda: text_encoder(head="tagging", num_classes=3),
    "language_model": lambda: models.LanguageModel(VOCAB, max_length=9, **SIZES),
    "modern writer": lambda: models.LanguageModel.from_variant(
        "small", VOCAB, style="modern", **SIZES
    ),
}
OF_PAIRS = {"transformer": transformer, "recurrent": lambda: models.RecurrentTranslator(VOCAB, 8)}


def test_no_model_of_ids_is_missing():
    assert set(OF_TOKENS) <= {*OF_ONE_TEXT, *OF_PAIRS}


@pytest.mark.parametrize("name", EVERY)
def test_a_layer_gives_the_mask_of_its_tokens_or_none(name):
    """One of the output's own shape: what pools tokens, or makes others of them, has none."""
    case = EVERY[name]
    x, *others = case.inputs
    if not np.issubdtype(x.dtype, np.floating):
        pytest.skip("of ids: see below")
    if name == "FourierMixing":
        pytest.skip("refuses masks")
    x = x.copy()
    x[:, -2:] = 0
    masked = keras.layers.Masking()(x)
    expected = mask_of(masked)
    assert not expected.all()
    layer = case.make()
    y = layer(masked, *others)
    found = mask_of(y)
    if found is not None:
        assert found.shape == y.shape[:-1]
    if case.of_tokens and len(y.shape) == 3 and y.shape[:2] == x.shape[:2]:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", OF_ONE_TEXT)
def test_a_model_of_texts_gives_the_mask_of_its_real_tokens(kind):
    model = OF_ONE_TEXT[kind]()
    for ids in (RIGHT, LEFT):
        np.testing.assert_array_equal(mask_of(model(ids)), ids != 0)
        np.testing.assert_array_equal(mask_of(model({"ids": ids})), ids != 0)
    packed = mask_of(model({"ids": LEFT, "segments": SEGMENTS}))
    np.testing.assert_array_equal(packed, SEGMENTS != 0)


@pytest.mark.parametrize("kind", OF_PAIRS)
def test_a_translator_gives_the_mask_of_its_target(kind):
    mask = mask_of(OF_PAIRS[kind]()({"source": LEFT[:, 1:], "target": RIGHT}))
    np.testing.assert_array_equal(mask, RIGHT != 0)


def test_packed_targets_have_the_mask_of_their_segments():
    ids = {"source": RIGHT, "target": RIGHT}
    segments = {"source_segments": SEGMENTS, "target_segments": SEGMENTS}
    np.testing.assert_array_equal(mask_of(transformer()({**ids, **segments})), SEGMENTS != 0)


@pytest.mark.parametrize("padding_id", [-1, 30])
def test_padding_is_what_the_model_says(padding_id):
    ids = np.where(RIGHT == 0, padding_id, RIGHT)
    model = models.LanguageModel.from_variant(
        "small", VOCAB, padding_id=padding_id, max_length=9, **SIZES
    )
    np.testing.assert_array_equal(mask_of(model(ids)), RIGHT != 0)


def test_a_start_that_is_the_padding_id_is_real():
    """Marian's targets begin so; a row of padding alone has no real token."""
    target = np.array([[30, 4, 9, 30], [30, 4, 30, 30], [30, 30, 30, 30]], "int32")
    mask = mask_of(transformer(padding_id=30)({"source": RIGHT, "target": target}))
    np.testing.assert_array_equal(mask, [[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])


def test_what_has_no_position_for_each_token_has_no_mask():
    classifier = text_encoder(head="classification", num_classes=5)  # as many as tokens
    assert mask_of(classifier(RIGHT)) is None
    filler = text_encoder(head="masked_language")
    positions = np.zeros((3, 5), "int32")
    assert mask_of(filler({"ids": RIGHT, "masked_positions": positions})) is None


@pytest.mark.parametrize("name", [name for name in MODELS if name not in OF_TOKENS])
def test_a_model_of_images_gives_no_mask(name):
    outputs = keras.tree.flatten(MODELS[name](0.0)(IMAGES[:1]))
    assert [mask_of(output) for output in outputs] == [None] * len(outputs)
    assert name not in OF_PICTURES or outputs[0].shape == (1, 5)


@pytest.mark.parametrize("kind", ["text_encoder", "language_model"])
def test_keras_pools_real_tokens_alone_however_long_the_padding(kind):
    model = OF_ONE_TEXT[kind]()
    ids = keras.Input((None,), dtype="int32")
    pooled = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(model(ids)))
    alone = to_numpy(model(np.array([[3, 4]]))).mean(axis=1)
    for row in ([3, 4], [3, 4, 0, 0], [0, 3, 4]):
        assert_close(pooled(np.array([row])), alone, 1e-5)


def test_keras_losses_and_metrics_leave_padding_out():
    model = OF_ONE_TEXT["tagging"]()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.ones(RIGHT.shape, "int32")
    logits = np.float64(to_numpy(model(RIGHT)))
    nats = np.log(np.exp(logits).sum(-1)) - logits[..., 1]
    loss = model.evaluate(RIGHT, labels, verbose=0)
    np.testing.assert_allclose(loss, nats[RIGHT != 0].mean(), rtol=1e-5)
