"""Labelled images for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import functools
import pathlib

import numpy as np

from keras_transformers.data.array_files import read_arrays
from keras_transformers.data.splits import PARTS, find_parts, part_of
from keras_transformers.pretrained import load_preprocessing
from keras_transformers.tables import ENDINGS, ending
from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    Preprocessing,
    evaluation_batches,
    read_folder,
    read_listed,
    training_batches,
)
from keras_transformers.vision.reading import folders_in, parts_of_folder

from ..lib.fine_tuning import is_published
from . import data_sets

EMBEDDED = ("fashion-mnist-12k",)
IN_MEMORY = 2**31  # bytes of pixels; what has more is read from its files in every epoch


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images for training, validation and the test."""

    name: str
    train: ImageCorpus
    valid: ImageCorpus
    test: ImageCorpus

    def corpora(self):
        """Returns a dict of split -> corpus."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def mapped(self, change):
        """Returns the data with the results of a function of each corpus."""
        corpora = {split: change(corpus) for split, corpus in self.corpora().items()}
        return dataclasses.replace(self, **corpora)


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
    name, folder = data_sets.split_name(dataset, EMBEDDED)
    embedded = name and not (folder and pathlib.Path(dataset).is_dir())
    if several and (dataset.startswith("tfds:") or embedded):
        raise ValueError(
            f"{dataset} has one class for each image; several labels are read from a folder with a "
            f"table ({TABLES}), or an .npz file."
        )
    if dataset.startswith("tfds:"):
        corpora = _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    elif embedded:
        corpora = read_npz(data_sets.find_embedded(name, f"{name}.npz", folder), name)
    elif pathlib.Path(dataset).is_file():
        corpora = read_npz(pathlib.Path(dataset), pathlib.Path(dataset).stem, several)
    elif pathlib.Path(dataset).is_dir():
        path = pathlib.Path(dataset)
        read = functools.partial(read_tables, separator=separator)
        corpora = read(path) if several else read_class_folders(path)
    else:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:cifar10), an .npz file, or a folder with one folder of images a class."
        )
    return _complete(dataset, corpora, valid_share, several)


def _complete(dataset, corpora, valid_share, several):
    """Returns the data, with missing splits held out by content; ValueError for too few images."""
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
    keys = {part: corpus.content_keys() for part, corpus in corpora.items()}
    labels = {part: list(map(str, corpus.labels.tolist())) for part, corpus in corpora.items()}
    data_sets.print_duplicates(dataset, keys, labels)
    return ImageData(dataset, **corpora)


def load_data(config):
    """Loads the images of a recipe, by its groups `data` and `training`.

    Returns:
        Corpora; the preprocessing measured on them, or published; a function from the number of an
        epoch to its batches; and batches to watch by.
    """
    options = config.data
    data = load(options.dataset, separator=data_sets.find_separator(options))
    if config.run.smoke:
        data = data.mapped(lambda corpus: corpus.split(0.03)[1])
    uses = {"to learn from": data.train, "to watch by": data.valid, "to score on": data.test}
    for use, corpus in uses.items():
        print(f"{use}, {corpus.summary()}")
    if options.rand_augment and data.train.channels not in (1, 3):
        raise ValueError(
            f"--rand-augment changes colours, and {data.train.name} has {data.train.channels} "
            "channels."
        )
    preprocessing = _preprocessing(options, getattr(config.model, "pretrained", None), data.train)
    nbytes = options.image_size**2 * preprocessing.channels
    if sum(map(len, (data.train, data.valid, data.test))) * nbytes < IN_MEMORY:
        data = data.mapped(lambda corpus: corpus.decoded(preprocessing))
    batches = make_batches(config, data.train, preprocessing, config.run.seed)
    return data, preprocessing, batches, evaluation_batches(data.valid, preprocessing, 500)


def _preprocessing(options, pretrained, corpus):
    if is_published(pretrained):  # it takes images as it has learned from them
        size, theirs = (options.image_size, options.image_size), load_preprocessing(pretrained)
        return dataclasses.replace(theirs, image_size=size, resized=None, crop=options.crop)
    rough = Preprocessing(options.image_size, corpus.channels, crop=options.crop)
    pixels = corpus.sample(2000).decoded(rough).images
    return Preprocessing.measured(pixels, options.image_size, options.crop)


def make_batches(config, corpus, preprocessing, seed):
    """Returns a function from the number of an epoch to batches of images changed at random."""
    options, size = config.data, size_of_batch(config, corpus)
    augment = Augmentation(
        options.crop_padding,
        options.flip,
        options.rand_augment,
        erasing=options.erasing,
        mixup=options.mixup,
        cutmix=options.cutmix,
        seed=seed,
    )
    return lambda epoch: training_batches(corpus, preprocessing, size, augment, seed, epoch)


def size_of_batch(config, corpus):
    """Returns the number of images in a batch of training, at most those of the corpus."""
    return min(config.training.batch_size, len(corpus))


def _from_tfds(name, data_dir):
    builder = data_sets.find_builder(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find_builder` would have said so

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
    data_sets.download(builder, name)

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

    return {ours: read(theirs) for ours, theirs in data_sets.find_splits(builder, name).items()}


FOR_SEVERAL = (
    "recipes.vit and recipes.swin learn from such with --problem-type multi_label_classification."
)
TABLES = "labels.csv, .tsv or .jsonl, or train, valid and test in its place"


def read_npz(path, name, several=False):
    """Reads a dict of part -> corpus from an `.npz` file, whose name becomes part of theirs."""
    arrays = {key.lower(): array for key, array in read_arrays(path).items()}
    pairs = [key.removeprefix("x_") for key in arrays if key.startswith("x_")]
    parts = find_parts(str(path), [key for key in pairs if f"y_{key}" in arrays], "pair of arrays")
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
        number = max(wide.values() if several else (int(y.max()) + 1 for y in labels.values()))
        classes = [str(number) for number in range(number)]
    return {
        part: ImageCorpus.from_arrays(
            f"{name} {part}", arrays[f"x_{theirs}"], labels[part], list(classes), several
        )
        for part, theirs in parts.items()
    }


def _tables(path):
    """Returns a dict of part -> its table in a folder, for the tables that exist."""
    tables = {}
    for file in sorted(path.iterdir()):
        kind, name = ending(file), file.name.lower().removesuffix(".gz").removesuffix(".xz")
        stem = name.removesuffix(kind)
        part = "train" if stem == "labels" else part_of(stem)
        if kind in ENDINGS and part is not None:
            tables.setdefault(part, []).append(file)
    for part, files in tables.items():
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise ValueError(f"{path} has more than one table for {part}: {names}")
    return {part: tables[part][0] for part in PARTS if part in tables}


def read_tables(path, separator):
    """Reads a dict of part -> corpus from a folder with tables of images and their labels."""
    tables = _tables(path)
    if "train" not in tables:
        raise ValueError(f"{path} holds no table of images to learn from: {TABLES}.")
    return read_listed(tables, separator)


def read_class_folders(path):
    """Reads a dict of part -> corpus from a folder with a folder of images for each class."""
    inside = folders_in(path)
    parts = parts_of_folder(path)
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
