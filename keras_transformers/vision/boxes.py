"""Images with boxes, and COCO's files of them: wrong boxes are left out or repaired, and counted.

COCO's format is one JSON file beside its images.
"""

import collections
import concurrent.futures
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath, Values
from keras_transformers.data.array_files import ANIMATED, is_animated_webp
from keras_transformers.data.tables import account
from keras_transformers.vision import decoding
from keras_transformers.vision.corpus import class_names, content_key
from keras_transformers.vision.decoding import LEFT_TO_RIGHT, TRANSPOSED, UPSIDE_DOWN

LEAST_SIDE = 1.0  # pixels of a box inside its image; less is nothing


@dataclasses.dataclass(frozen=True)
class DetectionCorpus:
    """Images with boxes, and an account of what was read, left out and repaired.

    Args:
        name: Where the images come from, for messages.
        classes: Names of the classes, list of str.
        images: List of pixels (uint8 `(height, width, 3)`), of encoded images (bytes) or of paths
            (str).
        sizes: int32 `(n, 2)`, height and width of each image.
        boxes: List of float32 `(k, 4)`, corner boxes `(left, top, right, bottom)` in pixels.
        labels: List of int32 `(k,)`, positions in `classes`.
        read: Number of boxes looked at.
        left_out: Dict of reason -> number of boxes or images left out.
        repaired: Dict of reason -> number of boxes repaired.
        crowd_boxes: List of float32 `(k, 4)`, boxes around crowds: nothing is learned from them,
            and what is found inside of them is no error. Empty where there are none at all.
        crowd_labels: List of int32 `(k,)`, their labels.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import DetectionCorpus
    >>> image = np.zeros((40, 60, 3), "uint8")
    >>> boxes = [[[10, 10, 30, 20], [50, 5, 70, 25], [5, 5, 5, 9]]]
    >>> corpus = DetectionCorpus.checked("toy", ["cat"], [image], boxes, [[0, 0, 0]])
    >>> corpus.summary()
    'toy: 2 boxes in 1 images kept of 3; left out: 1 without area; repaired: 1 cut at the border'
    >>> corpus.boxes[0][1].tolist()
    [50.0, 5.0, 60.0, 25.0]
    """

    name: str
    classes: list[str]
    images: list[Array | bytes | str]
    sizes: Array
    boxes: list[Array]
    labels: list[Array]
    read: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    repaired: dict[str, int] = dataclasses.field(default_factory=dict)
    crowd_boxes: list[Array] = dataclasses.field(default_factory=list)
    crowd_labels: list[Array] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def checked(
        cls, name: str, classes: Sequence[str], images: Iterable[Array | bytes | str],
        boxes: Sequence[Values], labels: Sequence[Values], crowds: Sequence[Values] | None = None,
        left_out: Mapping[str, int] | None = None,
        stated: Sequence[tuple[int, int] | None] | None = None
    ) -> Self:  # fmt: skip
        """Makes a corpus after looking at every image and every box.

        An image that is empty, missing or cannot be decoded is left out with its boxes. A box is
        left out if it has a number that is not finite, no area, a label that is no class, or stands
        for a crowd; the last are counted, and stay as `crowd_boxes`. A box that reaches over the
        border of its image is cut there, and left out if less than a pixel of it remains. Images
        without boxes stay.

        Images are upright, as their EXIF says, and boxes are those of what is seen. Where the
        stated size is that of the pixels as they are stored, and the image lies on its side, its
        boxes are turned with it, and counted; with any other size than the image's, it is left
        out.

        Args:
            name, classes, images: See the class.
            boxes: For each image `(k, 4)`, corner boxes in pixels.
            labels: For each image `(k,)` integers.
            crowds: Optional; for each image `(k,)` bool, True = a box around a crowd.
            left_out: Optional dict, of what was left out before.
            stated: Optional; for each image the `(height, width)` that its boxes were made for,
                or None where that is not known.

        Raises:
            ValueError: If there are not as many boxes and labels as images, a shape does not fit,
                no image is usable, or two classes have the same name.
        """
        images, classes = list(images), class_names(name, classes, None)
        if not len(images) == len(boxes) == len(labels):
            raise ValueError(
                f"{name}: there must be boxes and labels for each image. Received: {len(images)} "
                f"images, {len(boxes)} lists of boxes, {len(labels)} of labels"
            )
        counts = collections.Counter(left_out or {})
        repaired: collections.Counter[str] = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            looked_at = list(pool.map(_size, images))
        kept, sizes, read = [], [], 0
        kept_boxes, kept_labels, crowd_boxes, crowd_labels = [], [], [], []
        for i, found in enumerate(looked_at):
            one, of_class, crowd = _of_one(
                f"{name}: image {i}", boxes[i], labels[i], None if crowds is None else crowds[i]
            )
            read += len(one)
            found, one = _for_image(found, one, stated and stated[i], repaired)
            if isinstance(found, str):
                counts[found] += 1
                counts["of images left out"] += len(one)
                continue
            good = _usable(one, of_class, found, len(classes), counts, repaired)
            counts["around crowds"] += int((good & crowd).sum())
            kept.append(images[i])
            sizes.append(found)
            one = _inside(one, found).astype(np.float32)
            of_class = of_class.astype(np.int32)
            kept_boxes.append(one[good & ~crowd])
            kept_labels.append(of_class[good & ~crowd])
            crowd_boxes.append(one[good & crowd])
            crowd_labels.append(of_class[good & crowd])
        counts = {reason: number for reason, number in counts.items() if number}
        read += sum((left_out or {}).values())
        sizes = np.array(sizes, np.int32).reshape(-1, 2)
        found = (kept_boxes, kept_labels, read, counts, dict(repaired))
        corpus = cls(name, classes, kept, sizes, *found, crowd_boxes, crowd_labels)
        if not kept:
            raise ValueError(f"{corpus.summary()}. There is nothing to learn from.")
        return corpus

    def number_of_boxes(self) -> int:
        """In all images together."""
        return sum(map(len, self.labels))

    def summary(self) -> str:
        """One sentence: how many boxes were kept, and what happened to others."""
        text = f"{self.name}: {self.number_of_boxes():,} boxes in {len(self):,} images kept of "
        text += f"{self.read:,}"
        return text + account(left_out=self.left_out, repaired=self.repaired)

    def select(self, indices: Iterable[int]) -> Self:
        """The images at these positions, as a corpus."""
        chosen = [int(index) for index in indices]
        return dataclasses.replace(
            self,
            images=[self.images[i] for i in chosen],
            sizes=self.sizes[chosen],
            boxes=[self.boxes[i] for i in chosen],
            labels=[self.labels[i] for i in chosen],
            crowd_boxes=[self.crowd_boxes[i] for i in chosen] if self.crowd_boxes else [],
            crowd_labels=[self.crowd_labels[i] for i in chosen] if self.crowd_labels else [],
        )

    def truths(self) -> list[dict[str, Array]]:
        """Returns for each image what `training.score_boxes` compares with: boxes and crowds."""
        nothing = [np.zeros((0, 4), np.float32)] * len(self)
        rows = []
        for i, crowds in enumerate(self.crowd_boxes or nothing):
            crowd_labels = self.crowd_labels[i] if self.crowd_labels else np.zeros(0, np.int32)
            is_crowd = np.arange(len(self.boxes[i]) + len(crowds)) >= len(self.boxes[i])
            rows.append(
                {
                    "boxes": np.concatenate([self.boxes[i], crowds]),
                    "labels": np.concatenate([self.labels[i], crowd_labels]),
                    "crowds": is_crowd,
                }
            )
        return rows

    def content_keys(self) -> list[bytes]:
        """What each image is known by, so that copies stay together: a hash of its content."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(content_key, self.images))

    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: the second gets `share` of the images at random, but never all or none.

        Copies of an image stay together, so that the second can be a few images larger.

        Raises:
            ValueError: If all images are copies of one.
        """
        keys = self.content_keys()
        order = np.random.default_rng(seed).permutation(len(self))
        number = min(max(round(share * len(self)), 1), len(self) - 1)
        copies = collections.Counter(keys)
        chosen: dict[bytes, int] = {}  # key -> its number of copies
        for position in order:
            if sum(chosen.values()) >= number:
                break
            chosen[keys[position]] = copies[keys[position]]
        second = np.array([key in chosen for key in keys])
        if second.all():
            raise ValueError(f"{self.name}: {len(self):,} images of one content cannot be split")
        return self.select(np.flatnonzero(~second)), self.select(np.flatnonzero(second))

    def pixels(self, index: int) -> Array:
        """uint8 `(height, width, 3)` of one image."""
        image = self.images[index]
        return image if isinstance(image, np.ndarray) else decoded(image).numpy()

    def tiles(self, side: float, visible: float = 0.5) -> Self:
        """The images cut into tiles, with pixels in memory.

        An image is divided evenly, into tiles as near to `side` as that gives; they do not
        overlap. A box goes into every tile that holds at least a share of `visible` of its area,
        cut at the border of the tile.

        Args:
            side: Pixels.
            visible: Share of a box's area.

        Returns:
            A corpus; what it counts is what this one counts.

        Raises:
            ValueError: If `side` is not positive.
        """
        if side < 1:
            raise ValueError(f"{self.name}: `side` of tiles must be positive. Received: {side}")
        images: list[Any] = []
        boxes, labels, crowd_boxes, crowd_labels = [], [], [], []
        for i in range(len(self)):
            pixels = self.pixels(i)
            edges = [
                np.linspace(0, extent, max(round(extent / side), 1) + 1).round().astype(int)
                for extent in pixels.shape[:2]
            ]
            for top, bottom in zip(edges[0], edges[0][1:], strict=False):
                for left, right in zip(edges[1], edges[1][1:], strict=False):
                    tile = (left, top, right, bottom)
                    images.append(pixels[top:bottom, left:right].copy())
                    seen = _boxes_in_tile(self.boxes[i], self.labels[i], tile, visible)
                    boxes.append(seen[0])
                    labels.append(seen[1])
                    if self.crowd_boxes:  # of a crowd any part counts
                        seen = _boxes_in_tile(self.crowd_boxes[i], self.crowd_labels[i], tile, 0.0)
                        crowd_boxes.append(seen[0])
                        crowd_labels.append(seen[1])
        sizes = np.array([image.shape[:2] for image in images], np.int32)
        return dataclasses.replace(
            self,
            images=images,
            sizes=sizes,
            boxes=boxes,
            labels=labels,
            crowd_boxes=crowd_boxes,
            crowd_labels=crowd_labels,
        )


def _boxes_in_tile(
    boxes: Array, labels: Array, tile: tuple[int, int, int, int], visible: float
) -> tuple[Array, Array]:
    """Returns the boxes of which a share of `visible` lies in a tile, cut at its border."""
    left, top, right, bottom = tile
    moved = boxes - np.array([left, top, left, top], np.float32)
    cut = _inside(moved, (bottom - top, right - left))
    seen = _areas(cut) >= visible * _areas(moved)
    seen &= (cut[:, 2:] - cut[:, :2] >= LEAST_SIDE).all(axis=1)
    return cut[seen], labels[seen]


def decoded(image: bytes | str) -> tf.Tensor:
    """uint8 `(height, width, 3)` tensor of an encoded image (bytes) or a file (str)."""
    return decoding.decoded(tf.io.read_file(image) if isinstance(image, str) else image, 3)


def _size(image: Array | bytes | str) -> tuple[int, int, int] | str:
    """Height, width and orientation, or why there is no such image."""
    if isinstance(image, np.ndarray):
        fits = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8 and image.size
        return (*image.shape[:2], 1) if fits else "images that are not uint8 (height, width, 3)"
    if isinstance(image, str):
        if not pathlib.Path(image).is_file():
            return "missing images"
        image = pathlib.Path(image).read_bytes()
    if not image:
        return "empty images"
    if is_animated_webp(image):
        return ANIMATED
    try:
        height, width, _, turned = map(int, decoding.measured(image))
        return height, width, turned
    except (tf.errors.InvalidArgumentError, ValueError):
        return f"images that are no whole {decoding.NAMES}"


def _of_one(
    owner: str, boxes: Values, labels: Values, crowds: Values | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes `(k, 4)`, labels and whether each is a crowd, `(k,)`; ValueError if `k` differs."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    labels = np.asarray(labels).reshape(-1)
    crowds = np.zeros(len(boxes), bool) if crowds is None else np.asarray(crowds, bool)
    if not len(boxes) == len(labels) == len(crowds):
        raise ValueError(
            f"{owner} must have a label for each box. Received: {len(boxes)} boxes, "
            f"{len(labels)} labels"
        )
    return boxes, labels, crowds


def _for_image(
    found: tuple[int, int, int] | str, boxes: Array, stated: Any, repaired: collections.Counter[str]
) -> tuple[Any, Array]:
    """Height and width of an image, or why it cannot be used, and its boxes as it is seen."""
    if isinstance(found, str):
        return found, boxes
    height, width, turned = found
    if stated is None or tuple(stated) == (height, width):
        return (height, width), boxes
    if turned < TRANSPOSED or tuple(stated) != (width, height):
        return "images of another size than is stated", boxes
    if len(boxes):
        repaired["turned with their images"] += len(boxes)
    left, top, right, bottom = boxes[:, [1, 0, 3, 2]].T
    if turned in LEFT_TO_RIGHT:
        left, right = width - right, width - left
    if turned in UPSIDE_DOWN:
        top, bottom = height - bottom, height - top
    return (height, width), np.stack([left, top, right, bottom], axis=1)


def _usable(
    boxes: Array,
    labels: Array,
    size: tuple[int, int],
    classes: int,
    counts: collections.Counter[str],
    repaired: collections.Counter[str],
) -> Array:
    """bool `(k,)`: which boxes stay; the others are counted, and those that are cut `repaired`."""
    finite = np.asarray(np.isfinite(boxes).all(axis=1))
    boxes = np.where(finite[:, None], boxes, 0)
    cut = _inside(boxes, size)
    reasons = {
        "with numbers that are not finite": ~finite,
        "of unknown categories": (labels < 0) | (labels >= classes),
        "without area": (boxes[:, 2:] <= boxes[:, :2]).any(axis=1),
        "outside their image": (cut[:, 2:] - cut[:, :2] < LEAST_SIDE).any(axis=1),
    }
    good = np.ones(len(boxes), bool)
    for reason, bad in reasons.items():
        counts[reason] += int((good & bad).sum())
        good &= ~bad
    over = good & (cut != boxes).any(axis=1)
    if over.any():
        repaired["cut at the border"] += int(over.sum())
    return good


def _inside(boxes: Array, size: tuple[int, int]) -> Array:
    """Corner boxes, cut at the borders of an image of this height and width."""
    height, width = size
    return np.clip(boxes, 0, np.array([width, height, width, height], boxes.dtype))


def _areas(boxes: Array) -> Array:
    return np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)


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
