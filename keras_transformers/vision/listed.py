"""Images that stand in tables, with any number of labels each."""

import collections
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.tables import LABELS, Column, read_table
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.folders import OF_IMAGES, files_under

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
