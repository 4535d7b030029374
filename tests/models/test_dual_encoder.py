"""Claims about models of images and texts: their vectors, logits, losses and heads."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    CausalSelfAttention,
    EncoderBlock,
    PatchEmbedding,
    SelfAttention,
    gelu_sigmoid,
)
from keras_transformers.models import (
    DualEncoder,
    EndPooling,
    ImageEmbedding,
    LastPooling,
    TextEmbedding,
    TextEncoder,
    ViT,
)
from tests.contract import assert_close, check_layer, to_numpy

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(3, 20, 20, 2)).astype("float32")
X = RNG.normal(size=(3, 5, 7)).astype("float32")
END = 4
IDS = np.array([[9, 6, 4, -1, -1], [8, 4, 4, 4, 4], [5, 10, 7, 6, 4]])


def texts(head, mixer=None):
    block = EncoderBlock(mlp_dim=11, norm_first=True, mixer=mixer or CausalSelfAttention(2))
    embedding = TextEmbedding(13, 6, max_length=8, padding_id=-1)
    return TextEncoder(num_layers=1, block=block, embedding=embedding, head=head)


def images(**options):
    embedding = ImageEmbedding(
        PatchEmbedding(5, 10, use_bias=False), norm=keras.layers.LayerNormalization()
    )
    block = EncoderBlock(2, 11, activation=gelu_sigmoid, norm_first=True)
    return ViT(None, 20, num_layers=1, block=block, embedding=embedding, **options)


def by_softmax(**options):
    model = DualEncoder(images(), texts(EndPooling(END)), projection_dim=7, **options)
    model.build({"images": (None, 20, 20, 2), "ids": (None, None)})
    return model


def by_sigmoid(**options):
    model = DualEncoder(images(), texts(LastPooling(10), SelfAttention(2)), sigmoid=True, **options)
    model.build({"images": (None, 20, 20, 2), "ids": (None, None)})
    return model


def test_contract_of_the_heads():
    check_layer(lambda **kwargs: LastPooling(11, **kwargs), (X,))
    layer = EndPooling(END)
    assert_close(layer(X, IDS), X[np.arange(3), [2, 1, 4]], 0)
    assert_close(EndPooling()(X, IDS), X[np.arange(3), [0, 0, 1]], 0)  # the greatest ids
    assert EndPooling.from_config(layer.get_config()).end_id == END
    with pytest.raises(ValueError, match="`end_id` must be an integer of at least 0"):
        EndPooling(-1)
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        LastPooling(0)


def test_the_sigmoid_is_nearly_the_gaussian_one():
    x = np.linspace(-4, 4, 101)
    assert_close(gelu_sigmoid(keras.ops.convert_to_tensor(x)), x / (1 + np.exp(-1.702 * x)), 1e-6)
    assert_close(gelu_sigmoid(keras.ops.convert_to_tensor(x)), keras.ops.gelu(x, False), 0.03)


def test_images_and_texts_become_vectors_whose_products_are_the_logits():
    model = by_softmax()
    u, v = to_numpy(model.encode_images(IMAGES)), to_numpy(model.encode_texts(IDS))
    assert u.shape == v.shape == (3, 7)
    for vectors in (u, v):
        assert_close(np.linalg.norm(vectors, axis=1), np.ones(3), 1e-6)
    x = to_numpy(model.image_encoder(IMAGES)) @ to_numpy(model.image_projection.kernel)
    assert_close(u, x / np.linalg.norm(x, axis=1, keepdims=True), 1e-5)
    logits = to_numpy(model({"images": IMAGES, "ids": IDS[:2]}))
    assert_close(logits, u @ v[:2].T / 0.07, 1e-4)
    shape = model.compute_output_shape({"images": IMAGES.shape, "ids": (2, 5)})
    assert tuple(shape) == logits.shape == (3, 2)
    assert_close(np.sum(to_numpy(model.probabilities(logits)), axis=1), np.ones(3), 1e-6)


def test_what_follows_the_end_of_a_text_changes_nothing():
    model = by_softmax()
    expected = to_numpy(model.encode_texts(IDS))
    assert_close(model.encode_texts(np.where(IDS == -1, END, IDS)), expected, 1e-6)
    assert_close(model.encode_texts(np.where(IDS == -1, 11, IDS)), expected, 1e-6)
    assert_close(model.encode_texts(IDS[1:2, :2]), expected[1:2], 1e-6)


def test_texts_are_filled_with_a_token_that_is_seen():
    model = by_sigmoid(fill_id=1)
    filled = np.full((3, 8), 1)
    filled[:, :5] = np.where(IDS == -1, 1, IDS)
    expected = to_numpy(model.encode_texts(filled))
    assert_close(model.encode_texts(IDS), expected, 1e-6)
    assert_close(model.encode_texts(IDS[:1, :3]), expected[:1], 1e-6)
    others = to_numpy(by_sigmoid(fill_id=2).text_encoder(np.where(filled == 1, 2, filled)))
    assert np.abs(others - expected).max() > 1e-3
    with pytest.raises(ValueError, match="at most max_length=8 long"):
        model.encode_texts(np.ones((1, 9), "int32"))


def test_losses_are_those_of_the_papers():
    z = RNG.normal(size=(3, 3))
    log = np.log(np.exp(z) / np.exp(z).sum(1, keepdims=True)), np.log(np.exp(z) / np.exp(z).sum(0))
    expected = -sum(np.diag(each).mean() for each in log) / 2
    assert_close(by_softmax().compute_loss(y_pred=keras.ops.convert_to_tensor(z)), expected, 1e-6)
    signs = 2 * np.eye(3) - 1
    expected = np.log1p(np.exp(-signs * z)).sum() / 3
    model = by_sigmoid()
    assert_close(model.compute_loss(y_pred=keras.ops.convert_to_tensor(z)), expected, 1e-6)
    assert_close(model.probabilities(z), 1 / (1 + np.exp(-z)), 1e-6)
    assert float(model.logit_bias) == -10


@pytest.mark.slow
def test_pairs_are_learned_and_the_model_comes_back_from_its_file(tmp_path):
    keras.utils.set_random_seed(4)
    model = by_softmax()
    pairs = {"images": IMAGES, "ids": np.where(IDS == -1, END, IDS).astype("int32")}
    model.compile(keras.optimizers.Adam(0.01))
    losses = model.fit(pairs, epochs=20, batch_size=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 3
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_close(again(pairs), to_numpy(model(pairs)), 1e-6)
    twin = DualEncoder.from_config(model.get_config())
    assert twin.get_config() == again.get_config()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_vectors_are_made_one_long_in_float32(policy):
    model = by_softmax(dtype=policy)
    assert model.image_encoder.compute_dtype == model.text_projection.compute_dtype == policy[6:]
    for vectors in (model.encode_images(IMAGES), model.encode_texts(IDS)):
        assert keras.backend.standardize_dtype(vectors.dtype) == "float32"
        assert_close(np.linalg.norm(to_numpy(vectors), axis=1), np.ones(3), 1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DualEncoder(ViT(3), texts(EndPooling(4))), "without classes. Received: num_cla"),
        (lambda: DualEncoder(images(), texts(None)), "`text_encoder` must be with a head that giv"),
        (lambda: DualEncoder(texts(None), images()), "`image_encoder` must be an ImageModel"),
    ],
)
def test_other_encoders_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_vectors_of_different_widths_need_a_projection():
    model = DualEncoder(images(), texts(EndPooling(4)))
    with pytest.raises(ValueError, match="`projection_dim` must be given.*None, with 10 and 6"):
        model.build({"images": (None, 20, 20, 2), "ids": (None, None)})
    with pytest.raises(ValueError, match="must be a dict with the keys 'images' and 'ids'"):
        DualEncoder(images(), texts(EndPooling(4))).build((None, 20, 20, 2))
