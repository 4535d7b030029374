"""Claims about the SavedModel that finds boxes in encoded images."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.detection import best_answers
from keras_transformers.export import Detector
from keras_transformers.models import DETR, ResNet
from keras_transformers.vision import Preprocessing, fitted

RNG = np.random.default_rng(0)
CLASSES = ["cat", "dog"]
PICTURES = [RNG.integers(0, 256, size, dtype="uint8") for size in ((40, 60, 3), (50, 20, 3)) * 2]
FILES = [tf.io.encode_png(image).numpy() for image in PICTURES]
PREPROCESSING = Preprocessing(32, 3, (0.2, 0.3, 0.4), 0.3)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    backbone = ResNet(None, 32, 4, (1, 1), False, "convolutions", "group")
    model = DETR(2, backbone, 16, 2, 24, 1, 5, 0.0, criterion={"classification": "focal"})
    model.build((None, 32, 32, 3))
    model.set_weights([RNG.normal(size=w.shape) / 3 for w in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def served(model):
    return Detector(model, CLASSES, PREPROCESSING, threshold=0.4)


def test_boxes_are_the_models_in_pixels_of_each_image(model, served):
    result = {name: value.numpy() for name, value in served(tf.constant(FILES)).items()}
    for i, image in enumerate(PICTURES):
        pixels, mask, inner = fitted(tf.constant(image), 32)
        images = PREPROCESSING.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        found = model({"images": images[None], "padding_mask": mask[None]}, training=False)
        answers = best_answers(found["logits"], found["boxes"], "focal")
        height, width = image.shape[:2]
        scale = np.array([width, height] * 2) * 32 / np.tile(inner.numpy()[::-1], 2)
        expected = np.minimum(answers["boxes"].numpy()[0] * scale, [width, height] * 2)
        np.testing.assert_allclose(result["boxes"][i], expected, atol=1e-3)
        np.testing.assert_allclose(result["score"][i], answers["scores"][0], atol=1e-5)
        labels = [CLASSES[label].encode() for label in answers["labels"][0]]
        assert result["label"][i].tolist() == labels
        assert result["number"][i] == (result["score"][i] >= 0.4).sum()


def test_no_image_gives_no_answer(served):
    result = served(tf.constant([], tf.string))
    assert result["boxes"].shape == (0, 5, 4) and result["number"].shape == (0,)


@pytest.mark.parametrize("file", [b"", b"hello", FILES[0][:100]])
def test_a_broken_file_is_named_in_the_error(served, file):
    with pytest.raises(tf.errors.InvalidArgumentError, match="image number|PNG"):
        served(tf.constant([FILES[0], file]))


def test_what_does_not_fit_is_refused(model):
    with pytest.raises(ValueError, match="a name for each of the model's 2 classes. Received: 1"):
        Detector(model, ["cat"], PREPROCESSING)
    with pytest.raises(ValueError, match="square `image_size`.*Received: image_size=\\(32, 40\\)"):
        Detector(model, CLASSES, Preprocessing((32, 40)))
    with pytest.raises(ValueError, match="threshold=1.5"):
        Detector(model, CLASSES, PREPROCESSING, threshold=1.5)
