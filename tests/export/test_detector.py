"""Claims about the SavedModel that finds boxes in encoded images."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.detection import best_answers
from keras_transformers.export import Detector
from keras_transformers.models import DETR, ResNet
from keras_transformers.tasks.object_detection import detector_program
from keras_transformers.vision import DetectionCorpus, Preprocessing, evaluation_boxes

RNG = np.random.default_rng(0)
CLASSES = ["cat", "dog"]
SHAPES = ((40, 60, 3), (50, 20, 3), (31, 31, 3), (13, 97, 3), (5, 7, 3))
PICTURES = [RNG.integers(0, 256, size, dtype="uint8") for size in SHAPES]
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
        pixels, mask, _ = PREPROCESSING.frame(tf.constant(image))
        images = PREPROCESSING.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        found = model({"images": images[None], "padding_mask": mask[None]}, training=False)
        answers = best_answers(found["logits"], found["boxes"], "focal")
        height, width = image.shape[:2]
        expected = answers["boxes"].numpy()[0] * [width, height, width, height]
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
    with pytest.raises(ValueError, match="must have 3 channels, .* Received: channels=1"):
        Detector(model, CLASSES, Preprocessing(32, channels=1))
    with pytest.raises(ValueError, match="`resized` only with `fit=True`. Received: .*resized=40"):
        Detector(model, CLASSES, Preprocessing(32, resized=40))
    with pytest.raises(ValueError, match="boxes_in='square'"):
        Detector(model, CLASSES, PREPROCESSING, boxes_in="square")
    with pytest.raises(ValueError, match="threshold=1.5"):
        Detector(model, CLASSES, PREPROCESSING, threshold=1.5)


class Knowing(DETR):
    """A detector that answers with the boxes that it is told, as fractions."""

    def call(self, images, training=None):
        boxes = tf.constant(self.answer, tf.float32)
        logits = tf.tile([[[9.0, -9.0]]], [*boxes.shape[:2], 1])
        return {"logits": logits, "boxes": boxes}


FRAMES = {
    "square": Preprocessing(64),
    "fit": Preprocessing(64, fit=True),
    "rectangle": Preprocessing((64, 96), fit=True),
    "shorter side": Preprocessing(96, fit=True, resized=64),
    "squeezed": Preprocessing((64, 96), crop=False),
}


@pytest.fixture(scope="module")
def knowing():
    backbone = ResNet(None, 32, 4, (1, 1), False, "convolutions", "group")
    model = Knowing(2, backbone, 16, 2, 24, 1, 2, 0.0, criterion={"classification": "focal"})
    model.build((None, 64, 64, 3))
    return model


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_model_that_knows_its_targets_finds_the_true_boxes(frame, shape, knowing):
    """So what is learned, what is served and what LiteRT and ONNX compute mean the same boxes."""
    height, width = shape[:2]
    boxes = np.array([[0, 0, width, height], [0.2, 0.4, 0.7, 0.8] * np.array([width, height] * 2)])
    image = np.zeros(shape, "uint8")
    corpus = DetectionCorpus.checked("mine", CLASSES, [image], [boxes], [[0, 0]])
    inputs, targets = next(iter(evaluation_boxes(corpus, FRAMES[frame], 1, max_boxes=2)))
    knowing.answer = targets["boxes"].numpy()
    file = tf.io.encode_png(image)
    served = Detector(knowing, CLASSES, FRAMES[frame])
    np.testing.assert_allclose(served(file[None])["boxes"][0], corpus.boxes[0], atol=1e-3)

    compute = detector_program(knowing, FRAMES[frame], 0.5, in_frame=False).function
    pixels, mask, inner = FRAMES[frame].frame(tf.constant(image))
    found = compute(pixels[None], inner[None])["boxes"][0] * ([width, height] * 2)
    np.testing.assert_allclose(found, corpus.boxes[0], atol=1e-3)
    np.testing.assert_array_equal(mask, inputs["padding_mask"][0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_boxes_of_version_0_2_are_fractions_of_the_frame(shape, knowing):
    inner = FRAMES["square"].frame(tf.zeros(shape, tf.uint8))[2].numpy()
    rows, columns = inner / 64
    knowing.answer = [[[columns / 2, rows / 2, columns, rows], [columns / 2, rows / 2, 0.1, 0.1]]]
    served = Detector(knowing, CLASSES, FRAMES["square"], boxes_in="frame")
    boxes = served(tf.io.encode_png(np.zeros(shape, "uint8"))[None])["boxes"][0].numpy()
    height, width = shape[:2]
    half = 0.05 / np.array([columns, rows])
    near = np.array([0.5 - half, 0.5 + half]).clip(0, 1) * [width, height]
    np.testing.assert_allclose(boxes, [[0, 0, width, height], near.reshape(-1)], atol=1e-3)
