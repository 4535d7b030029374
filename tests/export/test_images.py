"""Claims about the SavedModel that takes encoded images."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.export import ImageClassifier, image_classifier
from keras_transformers.models import PVT, MViT, Swin, ViT
from keras_transformers.vision import ImageCorpus, Preprocessing

RNG = np.random.default_rng(0)
CLASSES = ["cat", "dog", "eel"]
PIXELS = RNG.integers(0, 256, (70, 8, 12, 3), dtype="uint8")
FILES = [tf.io.encode_png(pixels).numpy() for pixels in PIXELS]
PREPROCESSING = Preprocessing((8, 12), 3, (0.2, 0.3, 0.4), 0.3)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = ViT(3, (8, 12), 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=1)
    model.build((None, 8, 12, 3))
    model.set_weights([RNG.normal(size=w.shape) for w in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def served(model):
    return ImageClassifier(model, CLASSES, PREPROCESSING)


@pytest.mark.parametrize("batch", [1, 3, 64, 70])
def test_a_request_of_any_size_gives_the_models_probabilities(model, served, batch):
    result = served(tf.constant(FILES[:batch]))
    logits = model(PREPROCESSING.normalize(PIXELS[:batch]), training=False)
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    np.testing.assert_allclose(result["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(result["probability"], expected.max(1), atol=1e-5)
    labels = [CLASSES[i] for i in expected.argmax(1)]
    assert [label.decode() for label in result["label"].numpy()] == labels


def test_a_corpus_gets_the_same_probabilities(served):
    corpus = ImageCorpus.from_arrays("toy", PIXELS, np.zeros(70, int), CLASSES)
    expected = served(tf.constant(FILES))["probabilities"]
    np.testing.assert_allclose(served.probabilities(corpus), expected, atol=1e-6)


def test_no_image_gives_no_answer(served):
    result = served(tf.constant([], tf.string))
    assert result["label"].shape == (0,) and result["probabilities"].shape == (0, 3)


def test_every_kind_of_file_of_any_size_is_taken(served):
    grey = tf.constant(RNG.integers(0, 256, (31, 17, 1), dtype="uint8"))
    transparent = tf.constant(RNG.integers(0, 256, (9, 23, 4), dtype="uint8"))
    files = [
        tf.io.encode_png(grey),
        tf.io.encode_png(transparent),
        tf.io.encode_jpeg(grey),
        tf.io.encode_jpeg(transparent[..., :3]),
    ]
    together = served(tf.stack(files))["probabilities"]
    for i, file in enumerate(files):
        np.testing.assert_allclose(served(file[None])["probabilities"][0], together[i], atol=1e-5)


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (b"", r"image number\] \[2\].*is no JPEG.* or WebP; its size in bytes:\] \[0\]"),
        (b"hello", r"image number\] \[2\].*is no JPEG, PNG"),
        (FILES[0][:100], "PNG"),
        (tf.io.encode_jpeg(PIXELS[0]).numpy()[:200], "JPEG"),
    ],
)
def test_a_broken_file_is_named_in_the_error(served, file, complaint):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){complaint}"):
        served(tf.constant([*FILES[:2], file, *FILES[2:4]]))


def test_a_model_brings_its_own_preprocessing(model):
    classifier = ImageClassifier(model, CLASSES)
    expected = ImageClassifier(model, CLASSES, Preprocessing((8, 12)))
    one, other = (each(tf.constant(FILES[:3]))["probabilities"] for each in (classifier, expected))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "pyramid",
    [
        Swin(3, (8, 12), 2, 8, (1, 2, 1, 1), (1, 2, 4, 8), window_size=3, version=2),
        PVT(3, (8, 12), (4, 6, 9, 10), (1, 1, 1, 1), (1, 2, 3, 5)),
        pytest.param(MViT(3, (8, 12), 8, (1, 1, 1, 1)), marks=pytest.mark.slow),
    ],
    ids=["swin2", "pvt", "mvit"],
)
def test_pyramids_are_served_like_a_vit(pyramid, tmp_path):
    pyramid.build((None, 8, 12, 3))
    path = image_classifier(pyramid, tmp_path / "served", CLASSES, PREPROCESSING)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    logits = pyramid(PREPROCESSING.normalize(PIXELS[:3]), training=False)
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    found = serve(image=tf.constant(FILES[:3]))["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_does_not_fit_is_refused(model):
    with pytest.raises(ValueError, match="a name for each of the model's 3 logits. Received: 2"):
        ImageClassifier(model, CLASSES[:2])
    with pytest.raises(ValueError, match="`preprocessing` must be given for Sequential"):
        ImageClassifier(keras.Sequential([keras.layers.Dense(3)]), CLASSES)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_what_is_served_is_upright_as_in_training(kind, served, tmp_path):
    """The sideways file, its upright pixels, and a corpus of the file: one answer."""
    from PIL import Image, ImageOps

    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(file, kind, exif=exif, quality=90, lossless=True)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(file)).convert("RGB"))
    expected = served(tf.stack([tf.io.encode_png(upright)]))["probabilities"].numpy()
    encoded = file.getvalue()
    corpus = ImageCorpus.from_encoded("toy", [encoded], [0], CLASSES)
    for found in (
        served(tf.constant([encoded]))["probabilities"],
        served.portable([encoded])["probabilities"],
        served.probabilities(corpus),
        [list(served.predict(Image.open(file))["probabilities"].values())],
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
