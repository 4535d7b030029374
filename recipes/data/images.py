"""Labelled images for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import pathlib

import numpy as np

from keras_transformers.tables import ENDINGS, ending
from keras_transformers.vision import ImageCorpus, read_folder, read_listed
from keras_transformers.vision.folders import folders_in

from .embedded import find as find_embedded
from .embedded import split_name
from .tfds import download, find, splits

EMBEDDED = ("fashion-mnist-12k",)
# What people call the parts of a set, in any case.
NAMES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}
FOR_SEVERAL = (
    "recipes.vit and recipes.swin learn from such with --problem-type multi_label_classification."
)
TABLES = "labels.csv, .tsv or .jsonl, or train, valid and test in its place"


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to learn from, to watch training by, and to score on."""

    name: str
    train: ImageCorpus
    valid: ImageCorpus
    test: ImageCorpus


def load(dataset="fashion-mnist-12k", valid_share=0.05, data_dir=None, separator=None):
    """Loads a set of labelled images.

    Args:
        dataset: "fashion-mnist-12k" or "FOLDER/fashion-mnist-12k"; "tfds:NAME" for a set of
            TensorFlow Datasets, for instance "tfds:cifar10"; the path of an `.npz` file with
            `x_train`, `y_train`, `x_test`, `y_test` and optionally `x_valid`, `y_valid` and
            `class_names`; or of a folder with `train` and optionally `valid` and `test` folders,
            each with one folder a class; or of a folder with one folder a class. Parts may have
            other usual names, as `Training` and `val`; where there is no test, a tenth of what is
            to be learned from is held out.
        valid_share: Share of the training images held out where there is no validation set.
        data_dir: Where TensorFlow Datasets keeps its files.
        separator: What stands between several labels of an image; None for one class each. A folder
            then has tables, see `read_listed`: `labels`, or `train` and optionally `valid` and
            `test`, each `.csv`, `.tsv` or `.jsonl`; and an `.npz` file has `y` of 0 and 1 for each
            label.

    Returns:
        An `ImageData`.

    Raises:
        ValueError: If there is no such set, or it is unusable.
    """
    dataset, several = str(dataset), separator is not None
    name, folder = split_name(dataset, EMBEDDED)
    embedded = name and not (folder and pathlib.Path(dataset).is_dir())
    if several and (dataset.startswith("tfds:") or embedded):
        raise ValueError(
            f"{dataset} has one class for each image; several labels are read from a folder with a "
            f"table ({TABLES}), or an .npz file."
        )
    if dataset.startswith("tfds:"):
        corpora = _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    elif embedded:
        corpora = _from_npz(find_embedded(name, f"{name}.npz", folder), name)
    elif pathlib.Path(dataset).is_file():
        corpora = _from_npz(pathlib.Path(dataset), pathlib.Path(dataset).stem, several)
    elif pathlib.Path(dataset).is_dir():
        path = pathlib.Path(dataset)
        corpora = _from_tables(path, separator) if several else _from_folder(path)
    else:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:cifar10), an .npz file, or a folder with one folder of images a class."
        )
    if "test" not in corpora:
        corpora["train"], corpora["test"] = corpora["train"].split(0.1)
    if "valid" not in corpora:
        corpora["train"], corpora["valid"] = corpora["train"].split(valid_share)
    for part, corpus in corpora.items():
        if not len(corpus):
            raise ValueError(
                f"{dataset} has too few images to learn from some, watch by others and score on "
                f"the rest: none is left for {part}."
            )
    if len(corpora["train"].classes) < 2 and not several:
        raise ValueError(
            f"{dataset} has one class alone, {corpora['train'].classes[0]}: there is nothing to "
            "tell apart."
        )
    return ImageData(dataset, **corpora)


def _from_npz(path, name, several=False):
    try:
        with np.load(path) as arrays:
            arrays = dict(arrays)
    except (ValueError, OSError) as error:  # pickled, damaged, or no archive at all
        raise ValueError(f"{path} is no .npz file of plain arrays: {error}") from None
    arrays = {key.lower(): array for key, array in arrays.items()}
    parts = {}
    for part, names in NAMES.items():
        found = [each for each in names if f"x_{each}" in arrays and f"y_{each}" in arrays]
        parts |= {part: found[0]} if found else {}
    needed = [f"{axis}_{part}" for part in ("train", "test") if part not in parts for axis in "xy"]
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}."
        )
    labels = {part: arrays[f"y_{theirs}"] for part, theirs in parts.items()}
    wide = {part: y.shape[1] if y.ndim == 2 else 1 for part, y in labels.items()}
    if not several and max(wide.values()) > 1:
        raise ValueError(f"{path} has {max(wide.values())} labels for each image; {FOR_SEVERAL}")
    classes = arrays.get("class_names")
    if classes is None:
        most = max(wide.values() if several else (int(y.max()) + 1 for y in labels.values()))
        classes = [str(number) for number in range(most)]
    return {
        part: ImageCorpus.from_arrays(
            f"{name} {part}", arrays[f"x_{theirs}"], labels[part], list(classes), several
        )
        for part, theirs in parts.items()
    }


def _tables(path):
    """Dict of part -> its table in a folder, of those that are there."""
    found = {}
    for part, names in {**NAMES, "train": (*NAMES["train"], "labels")}.items():
        theirs = []
        for file in sorted(path.iterdir()):
            kind, name = ending(file), file.name.lower().removesuffix(".gz")
            theirs += [file] if kind in ENDINGS and name.removesuffix(kind) in names else []
        if len(theirs) > 1:
            listed = ", ".join(file.name for file in theirs)
            raise ValueError(f"{path} has more than one table for {part}: {listed}")
        found |= {part: theirs[0]} if theirs else {}
    return found


def _from_tables(path, separator):
    tables = _tables(path)
    if "train" not in tables:
        raise ValueError(f"{path} holds no table of images to learn from: {TABLES}.")
    return read_listed(tables, separator)


def _from_folder(path):
    inside = folders_in(path)
    parts = _parts(path, inside)
    if len(inside) < 2 and not parts and (tables := list(_tables(path).values())):
        raise ValueError(f"{path} has labels in a table, {tables[0].name}; {FOR_SEVERAL}")
    if not parts:
        return {"train": read_folder(path)}
    others = [name for name in inside if name not in parts.values()]
    if others:
        print(f"{path}: {', '.join(others)} is no part of a set, and is passed over")
    train = read_folder(path / parts.pop("train"))
    others = {part: read_folder(path / name, train.classes) for part, name in parts.items()}
    return {"train": train, **others}


def _parts(path, inside):
    """Dict of part -> its folder; empty where the folders are those of classes.

    A class may be called "train": that is a part if another part, or nothing, is beside it.
    """
    found = {}
    for part, names in NAMES.items():
        theirs = [name for name in inside if name.lower() in names]
        if len(theirs) > 1:
            raise ValueError(f"{path} has more than one folder for {part}: {', '.join(theirs)}")
        found |= {part: theirs[0]} if theirs else {}
    if len(found) == len(inside) and "train" not in found:
        raise ValueError(f"{path} has no folder `train` beside {', '.join(inside)}")
    return found if "train" in found and (len(found) > 1 or len(inside) == 1) else {}


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
