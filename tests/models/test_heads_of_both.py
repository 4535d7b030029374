"""Claims about heads that encoders and decoders have alike: spans, and a last token's classes."""

import keras
import numpy as np
import pytest

from keras_transformers.generation import generate
from keras_transformers.models import (
    ClassificationHead,
    HeadTransform,
    LanguageModel,
    SpanHead,
    TaggingHead,
    TextEncoder,
)
from tests.contract import assert_close, to_numpy

IDS = np.array([[4, 5, 6, 7, 8], [9, 3, 2, 0, 0]])
SIZES = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1}


def made(kind, head):
    name = "base" if kind is TextEncoder else "small"
    model = kind.from_variant(name, 31, **SIZES, head=head)
    model.build((None, None))
    return model


def hidden(model, ids):
    """What the head is given."""
    blocks = getattr(model, "encoder_blocks", None) or model.decoder_blocks
    return to_numpy(model._run(blocks, model.as_inputs(ids)))


@pytest.mark.parametrize("kind", [TextEncoder, LanguageModel])
@pytest.mark.parametrize("transform", [None, HeadTransform("relu")])
def test_a_span_has_two_products_with_every_real_token(kind, transform):
    model = made(kind, SpanHead(transform=transform))
    x = hidden(model, IDS)
    if transform is not None:
        dense = model.head.transform.dense
        x = np.maximum(x @ to_numpy(dense.kernel) + to_numpy(dense.bias), 0)
    expected = x @ to_numpy(model.head.ends.kernel) + to_numpy(model.head.ends.bias)
    result = to_numpy(model(IDS))
    assert result.shape == (2, 2, 5) == model.compute_output_shape((2, 5))
    real = IDS != 0
    assert_close(result.swapaxes(1, 2)[real], expected[real], 1e-5)
    assert (result.swapaxes(1, 2)[~real] < -1000).all()
    assert model.compute_mask(IDS) is None


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_real_token_is_classified_on_either_side_of_padding(side):
    head = ClassificationHead(3, "last", transform=keras.layers.Identity(), use_bias=False)
    model = made(LanguageModel, head)
    expected = hidden(model, IDS[1:, :3])[0, -1] @ to_numpy(model.head.classes.kernel)
    padded = [[0, 0], [2, 0] if side == "left" else [0, 2]]
    result = to_numpy(model(np.pad(IDS[1:, :3], padded)))
    assert_close(result[0], expected, 1e-5)
    assert len(model.head.weights) == 1


def test_a_span_is_learnt_from_positions_of_its_ends():
    """Of the token 7: where it stands is where the answer starts and ends."""
    keras.utils.set_random_seed(1)
    ids = np.random.default_rng(0).permuted(np.tile([3, 4, 5, 6, 7, 8], (64, 1)), axis=1)
    where = np.argmax(ids == 7, axis=1)
    model = made(TextEncoder, SpanHead())
    model.compile(
        keras.optimizers.Adam(3e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(ids, np.stack([where, where], axis=1), epochs=12, verbose=0)
    assert (to_numpy(model(ids)).argmax(-1) == where[:, None]).mean() > 0.95


def test_heads_are_saved_and_taken_over(tmp_path):
    model = made(LanguageModel, None)
    tagger = model.transferred(head=TaggingHead(4))
    assert tuple(tagger(IDS).shape) == (2, 5, 4)
    assert tuple(tagger.transferred(num_classes=2)(IDS).shape) == (2, 5, 2)
    assert_close(hidden(tagger, IDS), hidden(model, IDS), 0)
    tagger.save(tmp_path / "x.keras")
    assert_close(keras.models.load_model(tmp_path / "x.keras")(IDS), tagger(IDS), 0)


def test_a_model_of_classes_writes_no_text():
    with pytest.raises(ValueError, match="`head` must make logits of the vocabulary .* a SpanHead"):
        generate(made(LanguageModel, SpanHead()), prompt=IDS, max_length=7, end_id=2)
