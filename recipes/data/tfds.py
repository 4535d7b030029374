"""TensorFlow Datasets by name, with errors that say in a sentence what is wrong."""

from keras_transformers.core.imports import needed_by
from keras_transformers.data.splits import find_parts


def find(name, data_dir=None):
    """The builder of a set.

    Args:
        name: As TensorFlow Datasets calls it, for instance "cifar10".
        data_dir: Where TensorFlow Datasets keeps its files.

    Raises:
        ImportError: If the package is not installed.
        ValueError: If it has no such set.
    """
    with needed_by(f"tfds:{name}"):
        import tensorflow_datasets as tfds
    try:
        return tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"TensorFlow Datasets has no data set '{name}': {reason}") from None


def download(builder, name):
    """Downloads and prepares a set; ValueError if that fails."""
    try:
        builder.download_and_prepare()
    except Exception as error:  # a dozen kinds: network, disk, checksums
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"tfds:{name} could not be downloaded and prepared: {reason}") from None


def splits(builder, name):
    """Dict of our name of a split -> the set's, of those it has; ValueError without train."""
    theirs = builder.info.splits
    found = find_parts(f"tfds:{name}", theirs, "split")
    if "train" not in found:
        raise ValueError(f"tfds:{name} has no split train; it has {', '.join(theirs)}")
    return found
