"""Pictures with boxes for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import pathlib

import numpy as np

from keras_transformers.vision import DetectionCorpus, read_coco
from recipes.data.own_files import own_files
from recipes.data.tfds import download, find, splits

HERE = pathlib.Path(__file__).parent / "tree-crowns"
EMBEDDED = ("tree-crowns",)
TRAINED_ON, TESTED_ON = ("YELL",), ("OSBS", "SOAP")  # parts of the names of the files


@dataclasses.dataclass(frozen=True)
class BoxData:
    """Pictures with boxes to learn from, to watch training by, and to score on.

    `valid` is None where the set has none.
    """

    name: str
    train: DetectionCorpus
    valid: DetectionCorpus | None
    test: DetectionCorpus


def load(dataset="tree-crowns", train=None, valid=None, test=None, data_dir=None):
    """Loads a set of pictures with boxes.

    Args:
        dataset: "tree-crowns", four aerial photographs, two to train by and two of other places to
            score on; or "tfds:NAME" for a set of TensorFlow Datasets, for instance "tfds:coco/2017"
            or "tfds:voc/2007".
        train, valid, test: Instead, three files in COCO's format, their pictures beside them; the
            classes are those of `train`.
        data_dir: Where TensorFlow Datasets keeps its files.

    Raises:
        ValueError: If there is no such set, or it is unusable.
    """
    files = {"train": train, "valid": valid, "test": test}
    if own_files(files):
        first = read_coco(train)
        others = {name: read_coco(files[name], classes=first.classes) for name in ("valid", "test")}
        for corpus in (first, *others.values()):
            print(corpus.summary())
        return BoxData(train, first, **others)
    if dataset.startswith("tfds:"):
        return _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    if dataset not in EMBEDDED:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:coco/2017), or --train, --valid and --test, files in COCO's format."
        )
    corpus = read_coco(HERE / "annotations.coco.json")
    # Some are marked as dead, in the test scenes only: trees all the same.
    labels = [np.zeros_like(each) for each in corpus.labels]
    corpus = dataclasses.replace(corpus, classes=["Tree"], labels=labels)

    print(corpus.summary())
    names = [pathlib.Path(path).name for path in corpus.images]
    train, test = (
        corpus.select([i for i, name in enumerate(names) if any(part in name for part in parts)])
        for parts in (TRAINED_ON, TESTED_ON)
    )
    return BoxData(dataset, train, None, test)


def _from_tfds(name, data_dir):
    builder = find(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find` would have said so

    features = builder.info.features or {}
    objects = getattr(features.get("objects"), "feature", {})
    if "image" not in features or "bbox" not in objects or "label" not in objects:
        raise ValueError(
            f"tfds:{name} is no set of pictures with boxes: it needs `image`, and `objects` with "
            f"`bbox` and `label`, but its features are {', '.join(features)}."
        )
    download(builder, name)

    def read(split):
        # Left encoded: a photograph's file is a tenth of its pixels.
        decoders = {"image": tfds.decode.SkipDecoding()}
        images, boxes, labels, crowds = [], [], [], []
        for example in tfds.as_numpy(builder.as_dataset(split=split, decoders=decoders)):
            found = example["objects"]
            images.append(example["image"])
            boxes.append(_in_pixels(found["bbox"], example["image"]))
            labels.append(found["label"])
            crowds.append(found.get("is_crowd", np.zeros(len(boxes[-1]), bool)))
        return DetectionCorpus.checked(
            f"tfds:{name} {split}", objects["label"].names, images, boxes, labels, crowds
        )

    corpora = {ours: read(theirs) for ours, theirs in splits(builder, name).items()}
    if "test" not in corpora or not corpora["test"].number_of_boxes():
        # COCO keeps the boxes of its test pictures to itself.
        if "valid" in corpora:
            corpora["test"] = corpora.pop("valid")
        else:
            corpora["train"], corpora["test"] = corpora["train"].split(0.1)
    return BoxData(f"tfds:{name}", corpora["train"], corpora.get("valid"), corpora["test"])


def _in_pixels(boxes, encoded):
    """Shares `(top, left, bottom, right)` as corner boxes in pixels."""
    import tensorflow as tf

    height, width = tf.io.decode_image(encoded, 3, expand_animations=False).shape[:2]
    top, left, bottom, right = np.asarray(boxes, float).reshape(-1, 4).T
    return np.stack([left * width, top * height, right * width, bottom * height], axis=1)
