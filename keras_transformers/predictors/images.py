"""Predictors that take images."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath
from keras_transformers.data.array_files import (
    ANIMATED,
    as_bytes,
    is_animated_webp,
    is_pillow,
    read_array,
    upright_pillow,
)
from keras_transformers.predictors.base import Predictor, Refused, named_probabilities, received
from keras_transformers.vision.corpus import encoded_image


class ImagePredictor(Predictor):
    """A predictor of images: each a path, the bytes of a file, an array or a Pillow image.

    Files are JPEG, PNG, GIF, BMP or still WebP. Arrays hold unsigned bytes, or floats in [0, 1].
    They, `.npy` and TIFF files, and Pillow images go to the model as PNG, without loss, as `fit`
    and `evaluate` read them. What has an orientation in EXIF is taken upright.

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


class ImageClassifierPredictor(ImagePredictor):
    """Classifies images: a dict of `label`, `probability` and `probabilities`.

    `probabilities` is a dict from the name of each class; where the names are not known, from "0",
    "1", ... Where an image can have several labels, `labels` is the list of those that it has.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ImageClassifierPredictor
    >>> def classify(image):
    ...     return {"label": tf.constant(["cat"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]])}
    >>> classifier = ImageClassifierPredictor(classify, ["cat", "dog"])
    >>> classifier.predict(np.zeros((28, 28), "uint8"))["label"]
    'cat'
    """

    kind = "image_classifier"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        return named_probabilities(row, self.labels)


class ImageEncoderPredictor(ImagePredictor):
    """Gives a vector for an image: a list of floats; with `details` a dict that has `embedding`.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ImageEncoderPredictor
    >>> encode = lambda image: {"embedding": tf.ones((len(image), 2))}
    >>> ImageEncoderPredictor(encode).predict(np.zeros((28, 28), "uint8"))
    [1.0, 1.0]
    """

    kind = "image_encoder"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        vector = row["embedding"].tolist()
        return {"embedding": vector} if details else vector


class ArrayClassifierPredictor(ImageClassifierPredictor):
    """Classifies arrays of more channels than images have: as `ImageClassifierPredictor`.

    Each is a uint8 array `(height, width, channels)` or one of floats in [0, 1], a `.npy` file or
    the bytes of one.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ArrayClassifierPredictor
    >>> def classify(image):
    ...     return {"label": tf.constant(["sea"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]])}
    >>> classifier = ArrayClassifierPredictor(classify, ["sea", "land"])
    >>> classifier.predict(np.zeros((8, 9, 13), "uint8"))["label"]
    'sea'
    """

    kind = "array_classifier"

    def _encoded(self, item: Any) -> Any:
        if isinstance(item, str | pathlib.PurePath):
            item = _read(item)
        if isinstance(item, bytes | bytearray):
            item = _read_array(bytes(item))
        if is_pillow(item):
            item = np.asarray(upright_pillow(item))
        if not isinstance(item, np.ndarray) or item.ndim not in (2, 3) or 0 in item.shape:
            raise ValueError(
                "must be an array (height, width, channels), or a .npy file of one. "
                f"{received(item)}"
            )
        return as_bytes(item if item.ndim == 3 else item[..., None])

    def _found(self, arrays: list[Any], details: bool, first: int) -> list[Any]:
        """The answers, those to arrays of one shape together."""
        answers = [None] * len(arrays)
        for shape in dict.fromkeys(each.shape for each in arrays):
            positions = [i for i, each in enumerate(arrays) if each.shape == shape]
            try:
                found = super()._found([arrays[i] for i in positions], details, first)
            except (TypeError, ValueError) as error:  # of another shape than is declared
                found = [Refused(self._failure(error))] * len(positions)
            for position, answer in zip(positions, found, strict=True):
                answers[position] = answer
        return answers

    def _request_of(self, items: list[Any]) -> tf.Tensor:
        return tf.constant(np.stack(items))

    def _failure(self, error: Exception) -> str:
        return "must have as many channels as the model."


class DetectorPredictor(ImagePredictor):
    """Finds boxes: for each image a list of dicts of `label`, `score` and `box`, surest first.

    A box is `[left, top, right, bottom]` in pixels of the image, upright. Those with a score of
    the model's threshold or more are given; with `details` all of them.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import DetectorPredictor
    >>> def detect(image):
    ...     return {"boxes": tf.constant([[[0., 0, 9, 5], [1, 1, 2, 2]]]),
    ...             "label": tf.constant([["cat", "dog"]]), "score": tf.constant([[0.75, 0.25]]),
    ...             "number": tf.constant([1])}
    >>> DetectorPredictor(detect).predict(np.zeros((28, 28), "uint8"))
    [{'label': 'cat', 'score': 0.75, 'box': [0.0, 0.0, 9.0, 5.0]}]
    """

    kind = "detector"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        number = len(row["score"]) if details else int(row["number"])
        found = zip(row["label"], row["score"].tolist(), row["boxes"].tolist(), strict=True)
        answers = [{"label": n.decode(), "score": s, "box": box} for n, s, box in found]
        return answers[:number]


class SegmenterPredictor(ImagePredictor):
    """Gives a class to every pixel: for each image a dict of `map` and `shares`.

    `map` is a list of rows, of numbers of classes, as large as the image, upright. `shares` is a
    dict from the names of the classes that are there to their share of the pixels, the largest
    first.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import SegmenterPredictor
    >>> def segment(image):
    ...     return {"map": tf.constant([[[0, 1], [1, 1]]]), "size": tf.constant([[2, 2]])}
    >>> SegmenterPredictor(segment, ["sky", "road"]).predict(np.zeros((2, 2), "uint8"))
    {'map': [[0, 1], [1, 1]], 'shares': {'road': 0.75, 'sky': 0.25}}
    """

    kind = "segmenter"
    rows = 8

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        height, width = row["size"]
        found = row["map"][:height, :width]
        shares: dict[str, float] = {}
        for number, pixels in zip(*np.unique(found, return_counts=True), strict=True):
            name = self.labels[number] if self.labels else str(number)
            shares[name] = shares.get(name, 0.0) + int(pixels) / found.size
        largest = sorted(shares.items(), key=lambda pair: -pair[1])
        return {"map": found.tolist(), "shares": dict(largest)}


def _read(path: StrPath) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"must be a file that can be read: {reason}. {received(path)}") from None


def _read_array(content: StrPath | bytes) -> Array:
    try:
        return read_array(content)
    except ValueError as error:
        raise ValueError(f"must be an array of pixels; the file {error}") from None
