"""Labelled images out of whatever people hold them in."""

import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.label_lists import numbered, several_hot
from keras_transformers.tables import LABELS, Chosen, Column, read_rows
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.folders import read_folder

IMAGES = Column(
    ("image", "img", "pixels", "file", "file_name", "filename", "path", "images"), "anything"
)


def read_images(
    data: Any,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    columns: Chosen = None,
) -> ImageCorpus:
    """Reads images with labels.

    Args:
        data: A folder with a folder of images for each class, see `read_folder`; or any table with
            the columns `image` and `label`, in a file or in memory, see `tables.read_rows`. Images
            are paths, those in a file seen from its folder; bytes of encoded images; uint8 arrays;
            or Pillow images.
        classes: Names of the classes, for a validation or test set; others are left out.
        separator: What stands between several labels of an image in one str; where labels are
            lists, anything. None for one class each.
        columns: Names, or positions from 0, of image and label, where they have others.

    Returns:
        An `ImageCorpus`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If nothing is usable.
        TypeError: If `data` is neither a folder nor a table.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import read_images
    >>> pixels = np.zeros((3, 8, 8, 3), "uint8")
    >>> read_images((pixels, ["cat", "dog", "cat"])).classes
    ['cat', 'dog']
    """
    if isinstance(data, str | pathlib.PurePath) and pathlib.Path(data).is_dir():
        return _of_folder(pathlib.Path(data), classes)
    rows = read_rows(data, (IMAGES, LABELS), "image and label", columns)
    beside = pathlib.Path(data).parent if isinstance(data, str | pathlib.PurePath) else None
    images = [_source(image, beside) for _, (image, _) in rows.kept]
    names = [label for _, (_, label) in rows.kept]
    numbers = [str(i) for i, image in enumerate(images) if image is not None]
    left_out = rows.left_out + type(rows.left_out)({"that are no images": images.count(None)})
    pairs = [(i, names[int(i)]) for i in numbers]
    found = numbered(pairs, classes, separator, left_out)
    kept = [images[int(i)] for i in found.things]
    if separator is None:
        labels = np.array(found.labels, np.int32)
    else:
        labels = several_hot(found.labels, len(found.classes), "uint8")
    counts = {reason: number for reason, number in found.left_out.items() if number}
    corpus = ImageCorpus(
        rows.name, found.classes, labels, kept, rows.read, counts, noted=found.noted
    )
    if not kept:
        raise ValueError(f"{corpus.summary()}. There is nothing to learn from.")
    return corpus.usable()


def content_keys(corpus: ImageCorpus) -> list[bytes]:
    """What each image is known by, so that copies stay together: a hash of what is in it."""
    return [hashlib.blake2b(_content(image), digest_size=16).digest() for image in corpus.images]


def _content(image: Any) -> bytes:
    if isinstance(image, str):
        return pathlib.Path(image).read_bytes()
    return image if isinstance(image, bytes) else np.ascontiguousarray(image).tobytes()


def _of_folder(path: pathlib.Path, classes: Sequence[str] | None) -> ImageCorpus:
    corpus = read_folder(path, classes)
    if len(corpus.classes) < 2:
        raise ValueError(
            f"{path} has one class alone, {corpus.classes[0]}: there is nothing to tell apart."
        )
    return corpus


def _source(image: Any, beside: pathlib.Path | None) -> str | bytes | None:
    """An image as a path or as encoded bytes; None where it is none."""
    if isinstance(image, Mapping):  # of `datasets`, not decoded
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str | pathlib.PurePath):
        return str(image if beside is None else beside / image)
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if image is not None and hasattr(image, "getbands"):  # Pillow's
        grey = image.mode in ("1", "L", "I", "F", "LA")
        image = np.asarray(image.convert("L" if grey else "RGB"))
    pixels = np.asarray(image)
    return _png(pixels if pixels.ndim == 3 else pixels[..., None])


def _png(pixels: Array) -> bytes | None:
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = np.round(pixels * 255).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
        return None
    encoded: bytes = tf.io.encode_png(pixels).numpy()
    return encoded
