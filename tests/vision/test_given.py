"""Claims about images as people hold them: one reader, and classes of usable images alone."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_transformers.predictors import ArrayClassifierPredictor, ImageEncoderPredictor
from keras_transformers.vision import Preprocessing, read_images
from keras_transformers.vision.decoding import decoded
from tests.animations import animated_webp

RNG = np.random.default_rng(0)
SIDE = 16
PIXELS = RNG.integers(0, 256, (11, 17, 3), dtype="uint8")
DEEP = RNG.integers(0, 65536, (11, 17), dtype="uint16")
PHOTOGRAPH = Image.fromarray(PIXELS)
IMAGES = {
    "colour": PHOTOGRAPH,
    "grey": PHOTOGRAPH.convert("L"),
    "grey with alpha": PHOTOGRAPH.convert("LA"),
    "alpha": Image.fromarray(np.dstack([PIXELS, PIXELS[..., 0]])),
    "palette": PHOTOGRAPH.quantize(50),
    "black and white": PHOTOGRAPH.convert("1"),
    "16 bits": Image.fromarray(DEEP),
}
ENCODER = ImageEncoderPredictor(
    lambda image: {"embedding": tf.stack([tf.reshape(seen(file), [-1]) for file in image])}
)


def seen(file):
    """The pixels of an encoded image that a model of `SIDE` sees."""
    return Preprocessing(SIDE).resize(decoded(file, 3))


def png(image, orientation=1):
    """A PNG file of a Pillow image, which is to be turned as EXIF says."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    return file.getvalue()


CASES = [
    *((kind, 1) for kind in IMAGES),
    *(("colour", orientation) for orientation in range(2, 9)),
    ("16 bits", 6),
    ("palette", 3),
]


@pytest.mark.parametrize(("kind", "orientation"), CASES)
def test_fit_evaluate_and_predict_see_the_same_pixels_in_whatever_holds_an_image(
    kind, orientation, tmp_path
):
    file = png(IMAGES[kind], orientation)
    (tmp_path / "a.png").write_bytes(file)
    pillow = Image.open(tmp_path / "a.png")
    expected = seen(file).numpy()
    holders = [file, bytearray(file), str(tmp_path / "a.png"), tmp_path / "a.png", pillow]
    for image in holders:
        assert ENCODER.predict(image) == expected.reshape(-1).tolist()
    for image in [*holders, {"bytes": file, "path": None}, {"bytes": None, "path": holders[2]}]:
        corpus = read_images([(image, "cat"), (image, "dog")]).decoded(Preprocessing(SIDE))
        np.testing.assert_array_equal(corpus.images, [expected] * 2)


def test_arrays_are_read_alike_by_fit_and_predict():
    expected = seen(png(PHOTOGRAPH)).numpy()
    npy = io.BytesIO()
    np.save(npy, PIXELS)
    tiff = io.BytesIO()
    PHOTOGRAPH.save(tiff, "TIFF")
    alpha = np.dstack([PIXELS, PIXELS[..., 0]])
    for image in (PIXELS, PIXELS / 255, alpha, npy.getvalue(), tiff.getvalue()):
        assert ENCODER.predict(image) == expected.reshape(-1).tolist()
        corpus = read_images([(image, "cat")]).decoded(Preprocessing(SIDE))
        np.testing.assert_array_equal(corpus.images, [expected])


def of_format(kind, image):
    """A Pillow image that comes from a file of a kind."""
    file = io.BytesIO()
    image.save(file, kind)
    return Image.open(file)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (DEEP, "uint16; divide by the largest"),
        (PIXELS.astype("float32"), r"must lie in \[0, 1\]"),
        (Image.fromarray(DEEP.astype("float32")), r"other pixels than bytes \(mode F\)"),
        (Image.fromarray(DEEP.astype("int32")), r"other pixels than bytes \(mode I\)"),
        (of_format("TIFF", Image.fromarray(DEEP)), r"other pixels than bytes \(mode I;16\)"),
        (Image.open(io.BytesIO(png(PHOTOGRAPH)[:200])), "cannot be read whole"),
        (PIXELS[..., :2], r"1, 3 or 4 channels. Received: uint8 \(11, 17, 2\)"),
    ],
)
def test_pixels_of_an_unknown_range_are_refused_everywhere_and_never_become_white(image, reason):
    with pytest.raises(ValueError, match=f"item 0 .*{reason}"):
        ENCODER.predict([image])
    with pytest.raises(ValueError, match=f"1 that are no images.*nothing to learn.*{reason}"):
        read_images([(image, "cat")])
    found = read_images([(image, "cat"), (PIXELS, "dog")])
    assert found.left_out == {"that are no images": 1} and found.classes == ["dog"]


def test_bytes_in_a_mode_of_32_bits_stay_bytes():
    image = PHOTOGRAPH.convert("L").convert("I")
    assert ENCODER.predict(image) == ENCODER.predict(PHOTOGRAPH.convert("L"))


def test_an_array_classifier_takes_pillow_images_upright():
    shapes = []

    def classify(image):
        shapes.append(tuple(image.shape))
        share = tf.ones((len(image), 1))
        return {"label": tf.constant(["a"]), "probability": share[:, 0], "probabilities": share}

    file = png(IMAGES["alpha"], orientation=6)
    ArrayClassifierPredictor(classify, ["a"]).predict(Image.open(io.BytesIO(file)))
    assert shapes == [(1, 17, 11, 4)]


@pytest.mark.parametrize("separator", [None, "|"])
def test_a_class_is_known_only_if_an_image_of_it_is_usable(separator, tmp_path):
    (tmp_path / "a.png").write_bytes(png(PHOTOGRAPH))
    (tmp_path / "b.png").write_bytes(b"broken")
    (tmp_path / "c.webp").write_bytes(animated_webp())
    lines = ["image_id,label", "a.png,cat", "a.png,dog", "b.png,eel", "c.webp,fox", "d.png,gnu"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    corpus = read_images(tmp_path / "a.csv", separator=separator)
    assert corpus.classes == ["cat", "dog"] and len(corpus) == 2 and corpus.read == 5
    assert corpus.left_out == {
        "files that are no whole JPEG, PNG, GIF, BMP or WebP": 1,
        "animated WebP files": 1,
        "files that cannot be read": 1,
    }
    given = read_images(tmp_path / "a.csv", ["cat", "dog", "eel"], separator)
    assert given.classes == ["cat", "dog", "eel"] and len(given) == 2
    several = corpus.labels.argmax(1) if corpus.several else corpus.labels
    assert several.tolist() == [0, 1]


def test_bytes_of_an_animation_are_counted_as_one():
    corpus = read_images([(animated_webp(), "cat"), (PIXELS, "dog")])
    assert corpus.left_out == {"animated WebP files": 1} and corpus.classes == ["dog"]
