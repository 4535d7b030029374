"""Reads labelled images from folders of classes, from tables, and from what people hold."""

import collections
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.core.types import StrPath
from keras_transformers.data.array_files import ENDINGS
from keras_transformers.data.splits import find_parts
from keras_transformers.data.table_files import LABELS, Chosen, Column
from keras_transformers.data.tables import read_rows, read_table
from keras_transformers.vision.corpus import ImageCorpus, encoded_image

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


COLUMNS = (Column(("file", "file_name", "filename", "image", "path")), LABELS)


def read_listed(tables: Mapping[str, StrPath], separator: str = ",") -> dict[str, ImageCorpus]:
    r"""Reads tables of images: in each line a file, seen from the table's folder, and its labels.

    An image can have several labels, or none. Tables are as `keras_transformers.tables` says: a
    tab, or `.csv`, or `.jsonl` where `labels` may be a list. As in `read_folder` every file is
    decoded once; those that are missing or no image, those in the folder that stand in no table,
    and those with a label that is not in the first table, are left out and counted.

    Args:
        tables: Dict of part -> path of its table; what is to be learned from is the first.
        separator: What stands between the labels of an image.

    Returns:
        Dict of part -> `ImageCorpus`, whose classes are the labels of the first part, sorted.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If one cannot be read or has other columns, a file stands twice in them, or
            nothing is left to learn from.

    Example:
    >>> import pathlib, tempfile, tensorflow as tf
    >>> from keras_transformers.vision import read_listed
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("1.png", "2.png"):
    ...     png = tf.io.encode_png(tf.zeros((8, 8, 3), tf.uint8)).numpy()
    ...     _ = (folder / name).write_bytes(png)
    >>> table = 'file,labels\n1.png,"dog, cat"\n2.png,\n3.png,cat\n'
    >>> _ = (folder / "labels.csv").write_text(table)
    >>> corpus = read_listed({"train": folder / "labels.csv"})["train"]
    >>> corpus.classes, corpus.labels.tolist(), corpus.left_out
    (['cat', 'dog'], [[1, 1], [0, 0]], {'missing files, the first 3.png in line 4': 1})
    """
    seen: dict[str, str] = {}
    corpora: dict[str, ImageCorpus] = {}
    classes = None
    listed = {part: _files(table, seen) for part, table in tables.items()}
    for part, (files, labels, left_out) in listed.items():
        if not corpora:
            left_out["in the folder, but in no table"] = _beside(tables.values(), seen)
        read = len(files) + sum(left_out.values())
        name, order = str(tables[part]), np.arange(len(files))
        corpus = ImageCorpus(name, [], order, files, read, dict(+left_out)).usable()
        given = [labels[i] for i in corpus.labels]
        corpora[part] = _labelled(corpus, given, classes, separator)
        classes = corpora[part].classes
    return corpora


def _files(
    table: StrPath, seen: dict[str, str]
) -> tuple[list[str], list[Any], collections.Counter[str]]:
    """The images of a table that are there, the labels of each, and a count of the others.

    Args:
        table: Path of it.
        seen: Dict of path -> where it stands, to which these are added.
    """
    folder, missing, found = pathlib.Path(table).parent, [], {}
    rows, left_out = read_table(table, COLUMNS, "file and labels")
    for line, (name, labels) in rows:
        if not name.strip():
            left_out["without a file"] += 1
            continue
        file = os.path.normpath(folder / name.strip())
        if file in seen:
            raise ValueError(
                f"{table}, line {line}: {name} stands in {seen[file]} already; an image must stand "
                "in one line of one table, with all its labels."
            )
        seen[file] = f"{pathlib.Path(table).name}, line {line}"
        if os.path.isfile(file):
            found[file] = labels
        else:
            missing.append(f"{name} in line {line}")
    if missing:
        left_out[f"missing files, the first {missing[0]}"] = len(missing)
    return list(found), list(found.values()), left_out


def _beside(tables: Iterable[StrPath], seen: dict[str, str]) -> int:
    """Number of images in the folders of tables that stand in none of them."""
    folders = {pathlib.Path(table).parent for table in tables}
    inside = {os.path.normpath(file) for folder in folders for file in files_under(folder)}
    return sum(file.lower().endswith(OF_IMAGES) for file in inside - seen.keys())


def _labelled(
    corpus: ImageCorpus, names: Sequence[Any], classes: Sequence[str] | None, separator: str
) -> ImageCorpus:
    """A corpus of usable files with their labels, of which those with unknown ones are left out.

    Raises:
        ValueError: If none is left, or none has a label where they say what the classes are.
    """
    corpus = corpus.labelled(names, classes, separator)
    if not len(corpus) or not corpus.classes:
        why = "no image has a label" if len(corpus) else "no image is left"
        raise ValueError(f"{corpus.summary()}. There is nothing to learn: {why}.")
    return corpus


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
