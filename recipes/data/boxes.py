"""Images with boxes for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from keras_transformers.vision import DetectionCorpus, read_coco
from keras_transformers.vision.decoding import measured

from . import data_sets

EMBEDDED = ("tree-crowns",)
TRAINED_ON, TESTED_ON = ("YELL",), ("OSBS", "SOAP")  # parts of the names of the files


@dataclasses.dataclass(frozen=True)
class BoxData:
    """Images with boxes for training, validation and the test.

    `valid` is None where the set has none.
    """

    name: str
    train: DetectionCorpus
    valid: DetectionCorpus | None
    test: DetectionCorpus


def load(dataset="tree-crowns", train=None, valid=None, test=None, data_dir=None, images=None):
    """Loads a set of images with boxes.

    Args:
        dataset: "tree-crowns", four aerial photographs, two to train by and two of other places to
            score on, or "FOLDER/tree-crowns"; or "tfds:NAME" for a set of TensorFlow Datasets, for
            instance "tfds:coco/2017" or "tfds:voc/2007".
        train, valid, test: Instead, three files in COCO's format; the classes are those of `train`.
        data_dir: Where TensorFlow Datasets keeps its files.
        images: Of such files, dict of "train", "valid" and "test" to the folder of their images;
            None where they are beside the file.

    Raises:
        ValueError: If there is no such set, or it is unusable: one of its parts has no box.
    """
    files = {"train": train, "valid": valid, "test": test}
    folders = {name: (images or {}).get(name) for name in files}
    if data_sets.has_own_files(files, every=True):
        return _from_coco(files, folders)
    options = [f"--{name}-images" for name, folder in folders.items() if folder]
    if options:
        raise ValueError(f"{' and '.join(options)} must go with --train, --valid and --test.")
    dataset = str(dataset)
    if dataset.startswith("tfds:"):
        return _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    name, folder = data_sets.split_name(dataset, EMBEDDED)
    if name is None:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:coco/2017), or --train, --valid and --test, files in COCO's format."
        )
    corpus = read_coco(data_sets.find_embedded(name, name, folder) / "annotations.coco.json")
    # Some are marked as dead, in the test scenes only: trees all the same.
    labels = [np.zeros_like(labels) for labels in corpus.labels]
    corpus = dataclasses.replace(corpus, classes=["Tree"], labels=labels)

    print(corpus.summary())
    names = [pathlib.Path(path).name for path in corpus.images]
    train, test = (
        corpus.select([i for i, name in enumerate(names) if any(part in name for part in parts)])
        for parts in (TRAINED_ON, TESTED_ON)
    )
    return BoxData(name, train, None, test)


def _from_coco(files, folders):
    corpora = {}
    for name, path in files.items():
        classes = corpora["train"].classes if corpora else None
        folder = folders[name]
        if folder and not pathlib.Path(folder).is_dir():
            raise FileNotFoundError(f"--{name}-images: there is no folder {folder}")
        corpora[name] = read_coco(path, folder, classes)
        print(corpora[name].summary())
    return _with_boxes(BoxData(str(files["train"]), **corpora))


def _with_boxes(data):
    """Returns the data; ValueError if a part has no box, so that nothing can be learned or scored.

    Prints how many images stand in it more than once.
    """
    for corpus in (data.train, data.valid, data.test):
        if corpus is not None and not corpus.number_of_boxes():
            raise ValueError(f"{corpus.summary()}. There is no box in it.")
    corpora = {"train": data.train, "valid": data.valid, "test": data.test}
    keys = {part: corpus.content_keys() for part, corpus in corpora.items() if corpus is not None}
    data_sets.print_duplicates(data.name, keys)
    return data


def _from_tfds(name, data_dir):
    builder = data_sets.find_builder(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find_builder` would have said so

    features = builder.info.features or {}
    objects = getattr(features.get("objects"), "feature", {})
    if "image" not in features or "bbox" not in objects or "label" not in objects:
        raise ValueError(
            f"tfds:{name} is no set of images with boxes: it needs `image`, and `objects` with "
            f"`bbox` and `label`, but its features are {', '.join(features)}."
        )
    data_sets.download(builder, name)

    def read(split):
        # Left encoded: a photograph's file is a tenth of its pixels.
        decoders = {"image": tfds.decode.SkipDecoding()}
        images, boxes, labels, crowds = [], [], [], []
        for example in tfds.as_numpy(builder.as_dataset(split=split, decoders=decoders)):
            annotations = example["objects"]
            images.append(example["image"])
            boxes.append(_in_pixels(annotations["bbox"], example["image"]))
            labels.append(annotations["label"])
            crowds.append(annotations.get("is_crowd", np.zeros(len(boxes[-1]), bool)))
        return DetectionCorpus.checked(
            f"tfds:{name} {split}", objects["label"].names, images, boxes, labels, crowds
        )

    corpora = {ours: read(theirs) for ours, theirs in data_sets.find_splits(builder, name).items()}
    if "test" not in corpora or not corpora["test"].number_of_boxes():
        # COCO keeps the boxes of its test images to itself.
        if "valid" in corpora:
            corpora["test"] = corpora.pop("valid")
        else:
            corpora["train"], corpora["test"] = corpora["train"].split(0.1)
    name = f"tfds:{name}"
    return _with_boxes(BoxData(name, corpora["train"], corpora.get("valid"), corpora["test"]))


def _in_pixels(boxes, encoded):
    """Converts shares `(top, left, bottom, right)` to boxes in pixels; zeros if unreadable."""
    try:
        height, width = (int(side) for side in measured(encoded)[:2])
    except tf.errors.InvalidArgumentError:  # `DetectionCorpus.checked` counts and leaves it out
        height = width = 0
    top, left, bottom, right = np.asarray(boxes, float).reshape(-1, 4).T
    return np.stack([left * width, top * height, right * width, bottom * height], axis=1)
