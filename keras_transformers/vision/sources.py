"""Encoded images and files, looked at once before they are used."""

import concurrent.futures
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.array_files import (
    ANIMATED,
    is_animated_webp,
    is_array,
    pixels_of,
    read_array,
)
from keras_transformers.vision.decoding import NAMES, measured, with_channels
from keras_transformers.vision.preprocessing import Preprocessing

ARRAY_FILES = r"(?i).*\.(npy|tiff?)"


def inspected(sources: Sequence[str | bytes]) -> tuple[list[str | None], Array]:
    """What is wrong with encoded images (bytes) or files (str), and the channels of each.

    All of them are decoded, so that none breaks a run in its fifth hour.

    Returns:
        List of None, or why an image cannot be used, to be counted; and int32 `(n,)`: 1 for a grey
        image, 3 for a coloured one, as many as there are in an array, 0 for what cannot be used.
    """
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(_inspect, sources))
    return [problem for problem, _ in found], np.array([bands for _, bands in found], np.int32)


def _inspect(source: str | bytes) -> tuple[str | None, int]:
    path = source if isinstance(source, str) else None
    try:
        encoded = pathlib.Path(source).read_bytes() if isinstance(source, str) else source
    except OSError:  # a link to nothing, or what may not be read
        return "files that cannot be read", 0
    if not encoded:
        return "empty files", 0
    if path is not None and is_array(path):
        try:
            return None, read_array(encoded).shape[-1]
        except ValueError:
            return "files that are no arrays of pixels", 0
    if is_animated_webp(encoded):
        return ANIMATED, 0
    try:
        return None, int(measured(encoded)[2])
    except (tf.errors.InvalidArgumentError, ValueError):
        return f"files that are no whole {NAMES}", 0


def encoded_image(image: Any) -> bytes:
    """The bytes of an image file that TensorFlow decodes; `fit`, `evaluate` and `predict` use it.

    Args:
        image: The bytes of a file; a Pillow image or an array, see `array_files.pixels_of`.

    Returns:
        As given; of pixels, and of files that TensorFlow does not read, a PNG file without loss.

    Raises:
        ValueError: If it is no image, in words that go on after its name. Bytes that are no array
            are not looked at.
    """
    if isinstance(image, bytes | bytearray):
        if not is_array(bytes(image)):
            return bytes(image)
        image = read_array(bytes(image))
    png: bytes = tf.io.encode_png(pixels_of(image)).numpy()
    return png


def content_key(image: Array | bytes | str) -> bytes:
    """A hash of pixels, of an encoded image or of a file: copies of an image have the same."""
    if isinstance(image, str):
        content = pathlib.Path(image).read_bytes()
    elif isinstance(image, bytes):
        content = image
    else:
        content = str(image.shape).encode() + np.ascontiguousarray(image).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


def pixels_of_file(path: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """The pixels of an image's file, or of an array's, which only Python reads."""
    channels = preprocessing.channels

    def of_array() -> tf.Tensor:
        pixels = tf.numpy_function(lambda name: read_array(name.decode()), [path], tf.uint8)
        pixels = tf.ensure_shape(pixels, (None, None, None))
        if channels in (1, 3):
            pixels = with_channels(pixels, channels)
        return preprocessing.resize(tf.ensure_shape(pixels, (None, None, channels)))

    if channels not in (1, 3):
        return of_array()
    return tf.cond(
        tf.strings.regex_full_match(path, ARRAY_FILES),
        of_array,
        lambda: preprocessing.decode(tf.io.read_file(path)),
    )
