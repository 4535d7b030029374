"""Requests of images: files, arrays and Pillow images become pixels."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath
from keras_transformers.data.array_files import ANIMATED, is_animated_webp, is_pillow, read_array
from keras_transformers.tasks.predictor import Predictor, received
from keras_transformers.vision import Preprocessing
from keras_transformers.vision.corpus import encoded_image
from keras_transformers.vision.decoding import NAMES, is_animated, kinds


def decoded_each(
    image: tf.Tensor,
    decode: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[tf.Tensor, ...]:
    """Decodes the images of a request one after the other.

    If an image cannot be decoded, the error names its number in the request.

    Args:
        image: Encoded images, strings `(batch,)`.
        decode: Function of one encoded image that returns a tuple of tensors.
        outputs: `tf.TensorSpec`s of these tensors.
    """
    results: tuple[tf.Tensor, ...] = tf.map_fn(
        lambda pair: _decoded_or_named(pair[0], pair[1], decode, outputs),
        (tf.range(tf.size(image)), image),
        fn_output_signature=outputs,
    )
    return results


def _decoded_or_named(
    number: tf.Tensor,
    encoded: tf.Tensor,
    decode: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[tf.Tensor, ...]:
    """Decodes an image; if it cannot be decoded, the error names its number."""
    is_of_kind = kinds(encoded)
    matches = list(is_of_kind.values())
    size = tf.strings.length(encoded)
    named = ["image number", number, "of the request"]
    message = f"is no {NAMES}; its size in bytes:"
    check = tf.debugging.Assert(tf.reduce_any(matches), [*named, message, size])
    message = f"is an animation; {ANIMATED} are not read. Its size in bytes:"
    check_still = tf.debugging.Assert(~is_animated(encoded), [*named, message, size])
    with tf.control_dependencies([check, check_still]):
        results, is_decoded = _attempt(decode, tf.identity(encoded), outputs)
    kind = tf.boolean_mask(list(is_of_kind), matches)
    message = "is a broken file, or one cut off:"
    check = tf.debugging.Assert(is_decoded, [*named, message, kind, "its size in bytes:", size])
    with tf.control_dependencies([check]):
        return tuple(map(tf.identity, results))


def _attempt(
    compute: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    x: tf.Tensor,
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[Any, ...]:
    """Returns `compute(x)` and True, or zeros and False if it fails.

    In TensorFlow only a dataset that ignores errors goes on after an op has failed.
    """
    attempt = tf.data.Dataset.from_tensors(x).map(lambda x: (compute(x), True))
    zeros = tuple(tf.zeros(spec.shape, spec.dtype) for spec in outputs)
    failure = tf.data.Dataset.from_tensors((zeros, False))
    return attempt.ignore_errors().concatenate(failure).take(1).get_single_element()


def decoded_pixels(preprocessing: Preprocessing, image: tf.Tensor) -> tf.Tensor:
    """Returns the pixels that a model sees, uint8, of encoded images, strings `(batch,)`."""
    shape = (*preprocessing.image_size, preprocessing.channels)
    outputs = (tf.TensorSpec(shape, tf.uint8),)
    return decoded_each(image, lambda encoded: (preprocessing.decode(encoded),), outputs)[0]


class ImagePredictor(Predictor):
    """A predictor of images: each a path, the bytes of a file, an array or a Pillow image.

    Files are JPEG, PNG, GIF, BMP or still WebP. Arrays hold unsigned bytes, or floats in [0, 1].
    Arrays, `.npy` and TIFF files, and Pillow images go to the model as PNG, without loss, as `fit`
    and `evaluate` read them. An image with an orientation in EXIF is turned upright.

    Example:
    >>> from keras_transformers.predictors import ImagePredictor
    >>> ImagePredictor.takes
    'image'
    """

    takes = "image"
    rows = 64

    def _is_one(self, raw: Any) -> bool:
        if is_pillow(raw) or isinstance(raw, pathlib.PurePath):
            return True
        if isinstance(raw, np.ndarray) and raw.dtype.kind not in "OSU":
            return raw.ndim != 4
        return super()._is_one(raw)

    def _encoded(self, item: Any) -> Any:
        if isinstance(item, str | pathlib.PurePath):
            item = _read(item)
        if not isinstance(item, bytes | bytearray | np.ndarray) and not is_pillow(item):
            raise ValueError(
                "must be an image: the path of a file, its bytes, an array or a Pillow image. "
                f"{received(item)}"
            )
        encoded = encoded_image(item)
        if is_animated_webp(encoded):
            raise ValueError(f"must be a still image; {ANIMATED} are not read.")
        return encoded

    def _failure(self, error: Exception) -> str:
        return "must be a JPEG, PNG, GIF, BMP or WebP image that is whole; it cannot be decoded."


def _read(path: StrPath) -> bytes:
    """Reads a file; ValueError says why it cannot be read."""
    try:
        return pathlib.Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"must be a file that can be read: {reason}. {received(path)}") from None


def _read_array(content: StrPath | bytes) -> Array:
    """Reads an array of pixels; ValueError says why it cannot be read."""
    try:
        return read_array(content)
    except ValueError as error:
        raise ValueError(f"must be an array of pixels; the file {error}") from None
