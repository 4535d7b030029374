"""Claims about classifiers of images of other than 1 or 3 channels: arrays in, the same answers."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import ImageClassifier
from keras_transformers.models import ViT
from keras_transformers.vision import ImageCorpus, Preprocessing

RNG = np.random.default_rng(0)
CLASSES = ["sea", "land"]


@pytest.fixture(scope="module", params=[2, 4, 13])
def served(request, tmp_path_factory):
    """Channels, the object that answers, and the folder that it was saved to."""
    keras.utils.set_random_seed(3)
    channels = request.param
    model = ViT(2, 8, 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=1)
    model.build((None, 8, 8, channels))
    model.set_weights([RNG.normal(size=w.shape) for w in model.get_weights()])
    preprocessing = Preprocessing(8, channels, np.linspace(0.2, 0.6, channels), 0.3)
    classifier = ImageClassifier(model, CLASSES, preprocessing)
    return channels, classifier, classifier.save(tmp_path_factory.mktemp("served"))


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_saved_model_of_arrays_answers_as_the_model_was_scored(served, tmp_path):
    channels, classifier, path = served
    pixels = RNG.integers(0, 256, (5, 11, 9, channels), dtype="uint8")
    corpus = ImageCorpus.from_arrays("toy", pixels, np.zeros(5, int), CLASSES)
    expected = classifier.probabilities(corpus)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    spec = signature.structured_input_signature[1]["image"]
    assert spec.dtype == tf.uint8 and spec.shape.as_list() == [None, None, None, channels]
    found = signature(image=tf.constant(pixels))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    portable = classifier.portable(pixels)["probability"]
    np.testing.assert_allclose(portable, expected.max(1), atol=1e-5)
    # In every form, and of several sizes in one request.
    np.save(tmp_path / "one.npy", pixels[1])
    predictor = keras_transformers.load(path)
    assert predictor.kind == "array_classifier" and predictor.labels == CLASSES
    other = RNG.integers(0, 256, (8, 8, channels), dtype="uint8")
    forms = [pixels[0], other, tmp_path / "one.npy", npy(pixels[2]), pixels[3] / 255]
    answers = predictor.predict(forms)
    for answer, row in zip([answers[i] for i in (0, 2, 3, 4)], expected, strict=False):
        named = dict(zip(CLASSES, row, strict=True))
        assert answer["probabilities"] == pytest.approx(named, abs=1e-5)
    alone = predictor.predict(other)["probability"]
    assert alone == pytest.approx(answers[1]["probability"], abs=1e-5)
    assert len(predictor.predict(pixels)) == 5


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "must be an array"),
        ("nowhere.npy", "No such file"),
        (b"hello", "is no array of pixels"),
        (np.zeros((8, 8, 5), "uint8"), "must have as many channels as the model"),
        (np.zeros((8, 8, 3), "uint16"), "unsigned bytes, or floats"),
        (np.zeros((0, 8, 2), "uint8"), "must be an array"),
    ],
)
def test_what_is_no_such_array_is_named_with_its_number(served, bad, reason):
    channels, classifier, path = served
    good = np.zeros((8, 8, channels), "uint8")
    for predictor in (keras_transformers.load(path), classifier):
        with pytest.raises(ValueError, match=f"item 1 .*{reason}"):
            predictor.predict([good, bad, good])
