"""Claims about what happens to an image on its way to the model."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_transformers.vision import Preprocessing

RNG = np.random.default_rng(0)


def encoded(pixels, kind="PNG", mode=None):
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, kind)
    return file.getvalue()


def smooth(height, width, channels=3):
    """An image without sharp edges, which every resizing treats alike."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin(rows / 9 + c) + np.cos(columns / (7 + c)) for c in range(channels)]
    return np.uint8(127 + 60 * np.stack(waves, axis=-1))


def test_a_image_of_the_right_size_keeps_its_pixels():
    pixels = RNG.integers(0, 256, (8, 12, 3), dtype="uint8")
    image = Preprocessing((8, 12)).decode(encoded(pixels))
    np.testing.assert_array_equal(image, pixels)


def test_pixels_are_normalized_channel_by_channel():
    pixels = RNG.integers(0, 256, (2, 8, 8, 3), dtype="uint8")
    mean, std = np.array([0.2, 0.3, 0.4]), np.array([0.5, 0.25, 0.125])
    preprocessing = Preprocessing(8, 3, mean, std)
    normalized = preprocessing.normalize(pixels)
    np.testing.assert_allclose(normalized, (pixels / 255 - mean) / std, atol=1e-5)
    np.testing.assert_allclose(preprocessing.denormalize(normalized), pixels / 255, atol=1e-5)


def test_measured_statistics_make_mean_zero_and_deviation_one():
    pixels = RNG.integers(30, 200, (50, 8, 8, 3), dtype="uint8")
    normalized = Preprocessing.measured(pixels, 8).normalize(pixels).numpy()
    np.testing.assert_allclose(normalized.mean((0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(normalized.std((0, 1, 2)), 1, atol=1e-4)


@pytest.mark.parametrize(("crop", "box"), [(True, (16, 0, 48, 32)), (False, None)])
def test_resizing_is_pillows(crop, box):
    pixels = smooth(32, 64)
    image = Preprocessing(16, crop=crop).decode(encoded(pixels))
    expected = Image.fromarray(pixels).resize((16, 16), Image.Resampling.BILINEAR, box=box)
    assert np.abs(np.int32(image) - np.asarray(expected, np.int32)).max() <= 2


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("resized", "expected"), [((24, 20), (24, 20)), (20, (20, 41)), ((16, 16), (16, 16))]
)
def test_the_middle_of_a_resized_image_is_cut_out(resized, expected, method):
    """As published classifiers have it; the longer side is rounded down."""
    pixels = smooth(31, 64)
    found = Preprocessing(16, resized=resized, method=method).decode(encoded(pixels))
    kind = Image.Resampling[method.upper()]
    whole = Image.fromarray(pixels).resize(expected[::-1], kind)
    top, left = (expected[0] - 16) // 2, (expected[1] - 16) // 2
    whole = np.asarray(whole, np.int32)[top : top + 16, left : left + 16]
    assert np.abs(np.int32(found) - whole).max() <= 1


WAYS = [{}, {"crop": False}, {"resized": 20}, {"resized": (24, 20)}, {"method": "bicubic"}]


@pytest.mark.parametrize("extents", [(300, 1), (1, 300), (3, 700), (300, 5)])
def test_an_image_many_times_longer_than_wide_is_resized_the_same(extents):
    """Its middle alone is resized, which must not be seen but by rounding."""
    image = tf.constant(RNG.integers(0, 256, (*extents, 3), dtype="uint8"))
    for way in WAYS:
        preprocessing = Preprocessing(16, **way)
        inner = preprocessing._inner(tf.constant(extents, tf.float32))
        whole = tf.image.resize(image, inner, preprocessing.method, antialias=True)
        top, left = ((int(side) - 16) // 2 for side in inner)
        expected = np.clip(whole[top : top + 16, left : left + 16], 0, 255)
        assert np.abs(np.float32(preprocessing.resize(image)) - expected).max() < 0.51


def test_the_memory_that_resizing_takes_is_bounded_by_the_image_and_the_result(monkeypatch):
    """An image of 30,000 x 1 took 394 MiB at 32 pixels, and 18 GB at 224."""
    resize, scale = tf.image.resize, tf.raw_ops.ScaleAndTranslate
    sizes = []

    def resized(image, size, *arguments, **named):
        sizes.append((image.shape[1], *np.array(size)))
        return resize(image, size, *arguments, **named)

    def scaled(images, size, **named):
        sizes.append((images.shape[2], *np.array(size)))
        return scale(images=images, size=size, **named)

    monkeypatch.setattr(tf.image, "resize", resized)
    monkeypatch.setattr(tf.raw_ops, "ScaleAndTranslate", scaled)
    for extents in [(30_000, 1), (1, 30_000), (224, 7_000), (7_000, 200), (65_535, 1000), (2, 2)]:
        image = tf.zeros((*extents, 1), tf.uint8)
        for way in (*WAYS, {"fit": True}, {"fit": True, "resized": 200}):
            if "resized" in way and not way.get("fit"):
                way = {"resized": 256 if way["resized"] == 20 else (240, 256)}
            Preprocessing(224, channels=1, **way).resize(image)
    bounds = 16 * 256 * 256 + 65_535 * 1000
    assert max(height * max(before, width) for before, height, width in sizes) <= bounds


def test_ordinary_images_are_resized_as_a_whole(monkeypatch):
    monkeypatch.delattr(tf.raw_ops, "ScaleAndTranslate")
    for extents in [(20, 30), (480, 640), (100, 1600), (16, 1), (3000, 40)]:
        for way in WAYS:
            Preprocessing(16, **way).resize(tf.zeros((*extents, 3), tf.uint8))


def test_a_smaller_image_is_enlarged():
    image = Preprocessing(32).decode(encoded(smooth(9, 13)))
    assert image.shape == (32, 32, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_coloured_and_transparent_files_are_taken(kind, mode, channels):
    if kind == "JPEG" and mode in ("RGBA", "P"):
        pytest.skip("JPEG has no such mode")
    pixels = smooth(16, 16)
    image = Preprocessing(16, channels).decode(encoded(pixels, kind, mode))
    assert image.shape == (16, 16, channels) and image.dtype == tf.uint8
    target = Image.fromarray(pixels).convert("L")
    if channels == 3 and mode != "L":
        target = Image.fromarray(pixels)
    expected = np.asarray(target, np.int32).reshape(16, 16, -1)
    limit = 40 if mode == "P" else 8  # a palette has few colours
    assert np.abs(np.int32(image) - expected).mean() < limit


@pytest.mark.parametrize(
    "file", [b"", b"no image", encoded(smooth(16, 16))[:90], encoded(smooth(64, 64), "JPEG")[:300]]
)
def test_what_is_no_whole_image_is_refused(file):
    with pytest.raises(tf.errors.InvalidArgumentError):
        Preprocessing(16).decode(file)


def test_errors_say_what_was_expected_and_what_was_received():
    with pytest.raises(ValueError, match="`image_size` must be .*image_size=0"):
        Preprocessing(0)
    with pytest.raises(ValueError, match="`mean` must be a number or 3, one a channel.*0.1, 0.2"):
        Preprocessing(8, mean=(0.1, 0.2))
    with pytest.raises(ValueError, match="`std` .* positive. Received: 0"):
        Preprocessing(8, std=0)
    with pytest.raises(ValueError, match="`method` must be .* Received: 'nearest'"):
        Preprocessing(8, method="nearest")
    with pytest.raises(ValueError, match=r"`resized` must be at least .*\(8, 8\). Received: 7"):
        Preprocessing(8, resized=7)
    with pytest.raises(ValueError, match="`channels` of 1 or 3. Received: 5"):
        Preprocessing(8, channels=5).decode(b"")
