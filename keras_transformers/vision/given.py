"""Labelled images out of whatever people hold them in."""

import collections
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.tables import LABELS, Chosen, Column, read_rows
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.folders import read_folder
from keras_transformers.vision.sources import encoded_image

IMAGES = Column(
    ("image", "img", "pixels", "file", "file_name", "filename", "path", "images"), "anything"
)


def read_images(
    data: Any,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    columns: Chosen = None,
    keeps_unknown: bool = False,
) -> ImageCorpus:
    """Reads images with labels.

    Args:
        data: A folder with a folder of images for each class, see `read_folder`; or any table with
            the columns `image` and `label`, in a file or in memory, see `tables.read_rows`. Images
            are paths, those in a file seen from its folder; the bytes of files; arrays of unsigned
            bytes, or of floats in [0, 1]; or Pillow images. All are read as `predict` reads them.
        classes: Names of the classes, for a validation or test set; others are left out.
        separator: What stands between several labels of an image in one str; where labels are
            lists, anything. None for one class each.
        columns: Names, or positions from 0, of image and label, where they have others.
        keeps_unknown: Whether images of other classes than the given ones stay instead. Their
            classes come after the given ones.

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
        if keeps_unknown:
            return read_folder(data).with_first(classes or ())
        return read_folder(data, classes)
    rows = read_rows(data, (IMAGES, LABELS), "image and label", columns)
    beside = pathlib.Path(data).parent if isinstance(data, str | pathlib.PurePath) else None
    left_out = collections.Counter(rows.left_out)
    images: list[str | bytes] = []
    names: list[Any] = []
    problem = ""
    for _, (image, label) in rows.kept:
        try:
            images.append(_source(image, beside))
            names.append(label)
        except ValueError as error:
            left_out["that are no images"] += 1
            problem = problem or f" The first that is no image {error}."
    corpus = ImageCorpus(rows.name, [], np.arange(len(images)), images, rows.read, dict(left_out))
    if images:
        corpus = corpus.usable()
        usable = [names[row] for row in corpus.labels]
        corpus = corpus.labelled(usable, classes, separator, keeps_unknown)
    if not len(corpus):
        raise ValueError(f"{corpus.summary()}. There is nothing to learn from.{problem}")
    return corpus


def _source(image: Any, beside: pathlib.Path | None) -> str | bytes:
    """An image as a path or as the bytes of a file; ValueError if it is none."""
    if isinstance(image, Mapping):  # of `datasets`, not decoded
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str | pathlib.PurePath):
        return str(image if beside is None else beside / image)
    return encoded_image(image)
