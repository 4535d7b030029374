"""Labelled images for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import pathlib

import numpy as np

from keras_transformers.vision import ImageCorpus, read_folder
from recipes.data.tfds import SPLITS, download, find, splits

HERE = pathlib.Path(__file__).parent
EMBEDDED = ("fashion-mnist-12k",)


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to learn from, to watch training by, and to score on."""

    name: str
    train: ImageCorpus
    valid: ImageCorpus
    test: ImageCorpus


def load(dataset="fashion-mnist-12k", valid_share=0.05, data_dir=None):
    """Loads a set of labelled images.

    Args:
        dataset: "fashion-mnist-12k"; "tfds:NAME" for a set of TensorFlow Datasets, for instance
            "tfds:cifar10"; the path of an `.npz` file with `x_train`, `y_train`, `x_test`,
            `y_test` and optionally `class_names`; or of a folder with `train` and `test` (and
            optionally `valid`) folders, each with one folder a class; or of a folder with one
            folder a class, of which a tenth is held out for the test.
        valid_share: Share of the training images held out where there is no validation set.
        data_dir: Where TensorFlow Datasets keeps its files.

    Returns:
        An `ImageData`.

    Raises:
        ValueError: If there is no such set, or it is unusable.
    """
    if dataset.startswith("tfds:"):
        corpora = _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    elif dataset in EMBEDDED:
        corpora = _from_npz(HERE / f"{dataset}.npz", dataset)
    elif pathlib.Path(dataset).is_file():
        corpora = _from_npz(pathlib.Path(dataset), pathlib.Path(dataset).stem)
    elif pathlib.Path(dataset).is_dir():
        corpora = _from_folder(pathlib.Path(dataset))
    else:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:cifar10), an .npz file, or a folder with one folder of images a class."
        )
    if "test" not in corpora:
        corpora["train"], corpora["test"] = corpora["train"].split(0.1)
    if "valid" not in corpora:
        corpora["train"], corpora["valid"] = corpora["train"].split(valid_share)
    return ImageData(dataset, **corpora)


def _from_npz(path, name):
    try:
        with np.load(path) as arrays:
            arrays = dict(arrays)
    except (ValueError, OSError) as error:  # pickled, damaged, or no archive at all
        raise ValueError(f"{path} is no .npz file of plain arrays: {error}") from None
    missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in arrays]
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}."
        )
    classes = arrays.get("class_names")
    if classes is None:
        last = max(arrays["y_train"].max(), arrays["y_test"].max())
        classes = [str(number) for number in range(int(last) + 1)]
    return {
        split: ImageCorpus.from_arrays(
            f"{name} {split}", arrays[f"x_{split}"], arrays[f"y_{split}"], list(classes)
        )
        for split in ("train", "test")
    }


def _from_folder(path):
    inside = {f.name for f in path.iterdir() if f.is_dir()}
    if not {"train", "test"} <= inside:
        return {"train": read_folder(path)}
    train = read_folder(path / "train")
    corpora = {"train": train, "test": read_folder(path / "test", train.classes)}
    for name in SPLITS["valid"]:
        if name in inside:
            corpora["valid"] = read_folder(path / name, train.classes)
    return corpora


def _from_tfds(name, data_dir):
    builder = find(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find` would have said so

    features = builder.info.features or {}
    kinds = {tfds.features.Image: [], tfds.features.ClassLabel: []}
    for key, feature in features.items():
        for kind, keys in kinds.items():
            if isinstance(feature, kind):
                keys.append(key)
    images, labels = kinds.values()
    if len(images) != 1 or not labels:
        raise ValueError(
            f"tfds:{name} is no set of labelled images: it needs one image and a class label an "
            f"example, but its features are {', '.join(features)}."
        )
    image, label = images[0], "label" if "label" in labels else labels[0]
    download(builder, name)

    def read(split):
        # Left encoded: a photograph's file is a tenth of its pixels.
        decoders = {image: tfds.decode.SkipDecoding()}
        examples = list(tfds.as_numpy(builder.as_dataset(split=split, decoders=decoders)))
        return ImageCorpus.from_encoded(
            f"tfds:{name} {split}",
            [example[image] for example in examples],
            np.array([example[label] for example in examples]),
            features[label].names,
        )

    return {ours: read(theirs) for ours, theirs in splits(builder, name).items()}
