"""Labelled images for the recipes: embedded, from TensorFlow Datasets, or the user's own."""

import dataclasses
import functools
import pathlib

import numpy as np

from keras_transformers.pretrained import load_preprocessing
from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    Preprocessing,
    evaluation_batches,
    training_batches,
)

from ..published import is_published
from . import own_images
from .embedded import find as find_embedded
from .embedded import split_name
from .own_files import print_duplicates, separator_of
from .tfds import download, find, splits

EMBEDDED = ("fashion-mnist-12k",)
IN_MEMORY = 2**31  # bytes of pixels; what has more is read from its files in every epoch


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to learn from, to watch training by, and to score on."""

    name: str
    train: ImageCorpus
    valid: ImageCorpus
    test: ImageCorpus

    def mapped(self, change):
        """The data with each corpus as a function gives it."""
        corpora = {part: change(getattr(self, part)) for part in ("train", "valid", "test")}
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
    name, folder = split_name(dataset, EMBEDDED)
    embedded = name and not (folder and pathlib.Path(dataset).is_dir())
    if several and (dataset.startswith("tfds:") or embedded):
        raise ValueError(
            f"{dataset} has one class for each image; several labels are read from a folder with a "
            f"table ({own_images.TABLES}), or an .npz file."
        )
    if dataset.startswith("tfds:"):
        corpora = _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    elif embedded:
        corpora = own_images.from_npz(find_embedded(name, f"{name}.npz", folder), name)
    elif pathlib.Path(dataset).is_file():
        corpora = own_images.from_npz(pathlib.Path(dataset), pathlib.Path(dataset).stem, several)
    elif pathlib.Path(dataset).is_dir():
        path = pathlib.Path(dataset)
        read = functools.partial(own_images.from_tables, separator=separator)
        corpora = read(path) if several else own_images.from_folder(path)
    else:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:cifar10), an .npz file, or a folder with one folder of images a class."
        )
    return _complete(dataset, corpora, valid_share, several)


def _complete(dataset, corpora, valid_share, several):
    """The data, what is missing held out by content; ValueError if there is too little."""
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
    print_duplicates(dataset, keys, labels)
    return ImageData(dataset, **corpora)


def load_data(config):
    """What a recipe learns from, by its groups `data` and `training`.

    Returns:
        Corpora; the preprocessing measured on them, or published; a function from the number of an
        epoch to its batches; and batches to watch by.
    """
    of = config.data
    data = load(of.dataset, separator=separator_of(of))
    if config.run.smoke:
        data = data.mapped(lambda corpus: corpus.split(0.03)[1])
    uses = {"to learn from": data.train, "to watch by": data.valid, "to score on": data.test}
    for use, corpus in uses.items():
        print(f"{use}, {corpus.summary()}")
    if of.rand_augment and data.train.channels not in (1, 3):
        raise ValueError(
            f"--rand-augment changes colours, and {data.train.name} has {data.train.channels} "
            "channels."
        )
    preprocessing = _preprocessing(of, getattr(config.model, "pretrained", None), data.train)
    nbytes = of.image_size**2 * preprocessing.channels
    if sum(map(len, (data.train, data.valid, data.test))) * nbytes < IN_MEMORY:
        data = data.mapped(lambda corpus: corpus.decoded(preprocessing))
    batches = batches_of(config, data.train, preprocessing, config.run.seed)
    return data, preprocessing, batches, evaluation_batches(data.valid, preprocessing, 500)


def _preprocessing(of, pretrained, corpus):
    if is_published(pretrained):  # which takes images as it has learned from them
        size, theirs = (of.image_size, of.image_size), load_preprocessing(pretrained)
        return dataclasses.replace(theirs, image_size=size, resized=None, crop=of.crop)
    rough = Preprocessing(of.image_size, corpus.channels, crop=of.crop)
    pixels = corpus.sample(2000).decoded(rough).images
    return Preprocessing.measured(pixels, of.image_size, of.crop)


def batches_of(config, corpus, preprocessing, seed):
    """A function from the number of an epoch to batches of images changed at random."""
    of, size = config.data, batch_of(config, corpus)
    augment = Augmentation(
        of.crop_padding,
        of.flip,
        of.rand_augment,
        erasing=of.erasing,
        mixup=of.mixup,
        cutmix=of.cutmix,
        seed=seed,
    )
    return lambda epoch: training_batches(corpus, preprocessing, size, augment, seed, epoch)


def batch_of(config, corpus):
    """Images in a batch of training: all of them, where they are fewer than a batch."""
    return min(config.training.batch_size, len(corpus))


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
