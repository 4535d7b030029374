"""Boxes in COCO's format: one JSON file beside its images."""

import collections
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath
from keras_transformers.vision.boxes import DetectionCorpus


def read_coco(
    path: StrPath, images: StrPath | None = None, classes: Sequence[str] | None = None
) -> DetectionCorpus:
    """Reads annotations in the format of COCO (https://cocodataset.org/#format-data).

    Boxes are `[left, top, width, height]` in pixels. Left out and counted, beside what
    `DetectionCorpus.checked` leaves out: annotations whose image the file does not list, of
    unknown categories, around crowds (`iscrowd`), and without four numbers for a box; images that
    are missing in the folder, or of another size than the `height` and `width` of the file.
    Categories of the same name are one class. An annotation with polygons (`segmentation`) and no
    box gets the smallest box around them, and is counted.

    Args:
        path: The JSON file.
        images: Folder of the images; by default that of the file.
        classes: Names of the categories, which become the labels in this order; by default those of
            the file, by their ids.

    Returns:
        A `DetectionCorpus`; its images are read from their files when they are needed.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no such JSON, an id of an image or category is there twice, or nothing
            is usable.

    Example:
    >>> import json, pathlib, tempfile, tensorflow as tf
    >>> from keras_transformers.vision import read_coco
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> png = tf.io.encode_png(tf.zeros((40, 60, 3), tf.uint8)).numpy()
    >>> _ = (folder / "1.png").write_bytes(png)
    >>> _ = (folder / "boxes.json").write_text(json.dumps({
    ...     "images": [{"id": 1, "file_name": "1.png"}],
    ...     "categories": [{"id": 7, "name": "cat"}],
    ...     "annotations": [{"image_id": 1, "category_id": 7, "bbox": [10, 5, 20, 30]},
    ...                     {"image_id": 2, "category_id": 7, "bbox": [10, 5, 20, 30]}]}))
    >>> corpus = read_coco(folder / "boxes.json")
    >>> corpus.boxes[0].tolist(), corpus.left_out
    ([[10.0, 5.0, 30.0, 35.0]], {'whose image is not listed': 1})
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}")
    content = _content(path)
    folder = path.parent if images is None else pathlib.Path(images)
    names = {each["id"]: each["file_name"] for each in content["images"]}
    categories = {each["id"]: each["name"] for each in content["categories"]}
    for ids, kind in ((names, "images"), (categories, "categories")):
        if len(ids) != len(content[kind]):
            raise ValueError(f"{path}: in `{kind}` an id is there more than once")
    # The first id of each name; Roboflow gives that of a group to its only member.
    of_name: dict[str, Any] = {}
    for number in sorted(categories):
        of_name.setdefault(categories[number], number)
    if classes is None:
        classes = list(of_name)
    label_of = {i: classes.index(name) for i, name in categories.items() if name in classes}
    found: dict[Any, Any] = {i: ([], [], []) for i in names}  # boxes, labels, crowds
    counts: collections.Counter[str] = collections.Counter()
    shared = 0
    drawn_around = 0
    for each in content["annotations"]:
        box = _box(each.get("bbox"))
        if box is None:
            box = _box_around(each.get("segmentation"))
            drawn_around += box is not None
        if each.get("image_id") not in names:
            counts["whose image is not listed"] += 1
        elif box is None:
            counts["without four numbers"] += 1
        else:
            boxes, labels, crowds = found[each["image_id"]]
            boxes.append(box)
            category = each.get("category_id")
            shared += category in categories and of_name[categories[category]] != category
            labels.append(label_of.get(category, -1))
            crowds.append(bool(each.get("iscrowd", 0)))
    boxes, labels, crowds = zip(*found.values(), strict=True) if found else ((), (), ())
    files = [str(folder / name) for name in names.values()]
    stated = [_extents(each) for each in content["images"]]
    corpus = DetectionCorpus.checked(
        str(path), classes, files, boxes, labels, crowds, counts, stated
    )
    if shared:
        corpus.repaired["of another category of the same name"] = shared
    if drawn_around:
        corpus.repaired["drawn around their polygons"] = drawn_around
    return corpus


def _content(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    needed = {"images": ("id", "file_name"), "categories": ("id", "name"), "annotations": ()}
    for name, keys in needed.items():
        rows = content.get(name) if isinstance(content, dict) else None
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and set(keys) <= set(row) for row in rows
        ):
            raise ValueError(
                f"{path} is not in COCO's format: `{name}` must be a list of objects"
                f"{f' with {chr(32).join(keys)}' if keys else ''}."
            )
    return content


def _extents(image: dict[str, Any]) -> Any:
    """The stated height and width; None where they are not stated as numbers."""
    extents = image.get("height"), image.get("width")
    return extents if all(isinstance(each, int | float) and each > 0 for each in extents) else None


def _box(bbox: Any) -> Array | None:
    """Corners of `[left, top, width, height]`; None of anything else."""
    try:
        left, top, width, height = map(float, bbox)
    except (TypeError, ValueError):
        return None
    return np.array([left, top, left + width, top + height])


def _box_around(segmentation: Any) -> Array | None:
    """Corners of the smallest box around polygons `[[x, y, x, y, ...], ...]`; None of others."""
    if not isinstance(segmentation, list) or not segmentation:
        return None
    try:
        points = np.concatenate([np.reshape(polygon, (-1, 2)) for polygon in segmentation])
        points = points.astype(np.float64)
    except (TypeError, ValueError):  # no numbers, or an odd number of them
        return None
    return np.concatenate([points.min(axis=0), points.max(axis=0)]) if len(points) else None
