"""Claims about predictors of images: what they take, and what they give."""

import json

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_transformers.predictors import DetectorPredictor, ImageClassifierPredictor, Refused
from tests.animations import animated_webp

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def mean(image):
    """The share of white in each image, for a class."""
    pixels = [tf.io.decode_image(each, 3, expand_animations=False) for each in image]
    white = tf.stack([tf.reduce_mean(tf.cast(each, tf.float32)) / 255 for each in pixels])
    return {
        "label": tf.where(white > 0.5, "white", "black"),
        "probability": tf.maximum(white, 1 - white),
        "probabilities": tf.stack([1 - white, white], axis=1),
    }


@pytest.fixture(scope="module")
def classifier():
    return ImageClassifierPredictor(mean, ["black", "white"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A grey image in every form, and one in colour."""
    path = tmp_path_factory.mktemp("images") / "grey.png"
    grey, colour = PIL.Image.fromarray(GREY), PIL.Image.fromarray(COLOUR)
    grey.save(path)
    encoded = path.read_bytes()
    forms = [
        path,
        str(path),
        encoded,
        bytearray(encoded),
        GREY,
        GREY[..., None],
        grey,
        grey.convert("RGB"),
        grey.convert("RGBA"),
        tf.constant(GREY),
    ]
    return forms, [COLOUR, colour, colour.convert("RGBA")]


def test_every_form_of_a_image_gives_the_same(files, classifier):
    for forms in files:
        answers = [classifier.predict(form) for form in forms]
        assert answers == classifier.predict(forms) == [answers[0]] * len(forms)
        assert answers[0]["probability"] == max(answers[0]["probabilities"].values())
    assert json.loads(json.dumps(answers)) == answers


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I"])
def test_pillow_images_of_every_mode_are_taken(mode, classifier):
    image = PIL.Image.new("RGB", (3, 2), "white").convert(mode)
    assert classifier.predict(image)["label"] == "white"


def test_an_array_of_four_axes_is_many_images(classifier):
    images = np.stack([np.zeros((4, 6, 3), np.uint8), np.full((4, 6, 3), 255, np.uint8)])
    assert [answer["label"] for answer in classifier.predict(images)] == ["black", "white"]
    assert classifier.predict(images[:0]) == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "must be an image: .*None"),
        (3.5, "must be an image: .*3.5"),
        ("nowhere.png", "No such file or directory. Received: 'nowhere.png'"),
        (".", "Is a directory"),
        (b"", "cannot be decoded"),
        (b"\x89PNG\r\n", "cannot be decoded"),
        (b"plain text", "cannot be decoded.*Received: b'plain text'"),
        (animated_webp(), "must be a still image; animated WebP files are not read"),
        (GREY / 1.0, r"must lie in \[0, 1\] where they are floats"),
        (GREY * np.uint16(257), "Received: uint16; divide by the largest value"),
        (np.zeros((2, 5, 7), np.uint8), r"1, 3 or 4 channels. Received: uint8 \(2, 5, 7\)"),
        (GREY[:0], "must be an array"),
    ],
)
def test_what_is_no_image_is_named_with_its_number(bad, reason, classifier):
    with pytest.raises(ValueError, match=f"item 1 .*{reason}"):
        classifier.predict([COLOUR, bad, GREY])
    first, second, third = classifier.each([COLOUR, bad, GREY])
    assert isinstance(second, Refused) and [first, third] == classifier.predict([COLOUR, GREY])


def test_a_detector_gives_the_sure_boxes_and_with_details_all():
    boxes = tf.constant([[[0.0, 1, 2, 3], [4, 5, 6, 7]]])
    found = {
        "boxes": boxes,
        "label": tf.constant([["cat", "dog"]]),
        "score": tf.constant([[0.75, 0.25]]),
        "number": tf.constant([1]),
    }
    detector = DetectorPredictor(lambda image: found)
    sure = {"label": "cat", "score": 0.75, "box": [0.0, 1.0, 2.0, 3.0]}
    unsure = {"label": "dog", "score": 0.25, "box": [4.0, 5.0, 6.0, 7.0]}
    assert detector.predict(GREY) == [sure]
    assert detector.predict([GREY], details=True) == [[sure, unsure]]
