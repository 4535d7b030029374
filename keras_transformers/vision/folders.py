"""A folder that holds a folder of images for each class."""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.array_files import ENDINGS
from keras_transformers.splits import find_parts
from keras_transformers.vision.corpus import ImageCorpus

OF_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", *ENDINGS)


def read_folder(path: StrPath, classes: Sequence[str] | None = None) -> ImageCorpus:
    """Reads a folder that holds one folder of images for each class.

    Every file is decoded once, so that none breaks a run in its fifth hour; those that are empty or
    no image, and images that lie beside the classes' folders, are left out and counted. Hidden
    files and folders are passed over; links are followed. The images themselves are read again
    when they are needed, and may be more than fit into memory.

    Files are JPEG, PNG, GIF, BMP or WebP, upright as their EXIF says; or arrays, `.npy` and TIFF,
    see `array_files.read_array`, of any number of channels.

    Args:
        path: The folder; class folders may have folders of their own.
        classes: Names of the classes, which become the labels in this order; by default the names
            of all folders in alphabetical order. Of given classes, some may have no image, as in a
            validation set.

    Returns:
        An `ImageCorpus`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds no class folders, or those of the parts of a set (see
            `parts_of_folder`), one of them is no folder of `classes`, or no image is usable;
            without `classes` also if one of them is empty or has no usable image.

    Example:
    >>> import pathlib, tempfile, tensorflow as tf
    >>> from keras_transformers.vision import read_folder
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     png = tf.io.encode_png(tf.zeros((8, 8, 3), tf.uint8)).numpy()
    ...     _ = (folder / name / "1.png").write_bytes(png)
    ...     _ = (folder / name / "2.png").write_bytes(b"")
    >>> corpus = read_folder(folder)
    >>> corpus.classes, len(corpus), corpus.left_out
    (['cat', 'dog'], 2, {'empty files': 2})
    """
    path = pathlib.Path(path)
    folders = folders_in(path)
    if not folders:
        raise ValueError(f"{path} holds no folders; it must hold one folder of images a class")
    if classes is None and (parts := parts_of_folder(path)):
        raise ValueError(
            f"{path} holds the parts of a set, {', '.join(parts.values())}, and no folders of "
            "classes; read each part by itself"
        )
    must_have_all = classes is None
    classes = folders if classes is None else list(classes)
    if not set(folders) <= set(classes):
        raise ValueError(
            f"{path} must hold a folder for each class, {', '.join(classes)}, and no other. "
            f"Received: {', '.join(folders)}"
        )
    files, labels = [], []
    for label, name in enumerate(classes):
        of_class = files_under(path / name)
        if not of_class and must_have_all:
            raise ValueError(f"{path}: the class folder '{name}' is empty")
        files += of_class
        labels += [label] * len(of_class)
    beside = sum(f.suffix.lower() in OF_IMAGES and f.name[0] != "." for f in path.iterdir())
    counts = {"beside the classes' folders": beside} if beside else {}
    corpus = ImageCorpus(
        str(path), classes, np.array(labels, np.int32), files, len(files) + beside, counts
    ).usable()
    for label, name in enumerate(classes):
        if must_have_all and label not in corpus.labels:
            raise ValueError(f"{path}: the class folder '{name}' has no usable image")
    return corpus


def parts_of_folder(path: StrPath) -> dict[str, str]:
    """Finds the folders of the parts of a set; none if the folders are those of classes.

    A class may be called "train": such a folder is a part if another part, or nothing, is beside
    it.

    Args:
        path: The folder in which they are.

    Returns:
        Dict of "train", "valid" and "test" to the name of its folder, of those that are there.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If two folders stand for one part, or all are parts and none is to learn from.
    """
    names = folders_in(path)
    parts = find_parts(str(path), names)
    if parts and len(parts) == len(names) and "train" not in parts:
        raise ValueError(f"{path} has no folder `train` beside {', '.join(names)}")
    is_set = "train" in parts and (len(parts) > 1 or len(names) == 1)
    return parts if is_set else {}


def folders_in(path: StrPath) -> list[str]:
    """Names of the folders in a folder, sorted; hidden ones are passed over.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If one is a link to nothing.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"There is no folder {path}")
    inside = [each for each in path.iterdir() if each.name[0] != "."]
    broken = [each.name for each in inside if each.is_symlink() and not each.exists()]
    if broken:
        raise ValueError(f"{path}: {', '.join(sorted(broken))} links to nothing")
    return sorted(each.name for each in inside if each.is_dir())


def files_under(path: StrPath) -> list[str]:
    """All files under a folder, those of folders that are linked too, each folder once; sorted."""
    files, seen = [], set()
    for folder, inner, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link that leads back
            inner.clear()
            continue
        seen.add(real)
        inner[:] = [name for name in inner if name[0] != "."]
        files += [os.path.join(folder, name) for name in names if name[0] != "."]
    return sorted(files)
