"""Sources of data: embedded sets, TensorFlow Datasets, and the user's own files."""

import glob
import pathlib

from keras_transformers.core.imports import needed_by
from keras_transformers.data.splits import count_duplicates, find_parts
from keras_transformers.models.base import SEVERAL
from keras_transformers.shards import Shards

SAMPLE = 50_000  # rows of a stream from which vocabularies and lengths follow


def has_own_files(files, every=False):
    """Returns whether the user has given files.

    Args:
        files: Dict of split -> path or None.
        every: True if each split needs a file; else `hold_out_missing` makes the missing ones.

    Raises:
        ValueError: If there are some, but not those that are needed.
    """
    missing = [f"--{name}" for name, path in files.items() if not path]
    needed = missing if every else [name for name in missing if name == "--train"]
    if needed and len(missing) < len(files):
        names = "--train, --valid and --test" if every else "--train"
        raise ValueError(f"Own files need {names}; missing: {' and '.join(needed)}.")
    return len(missing) < len(files)


def parse_columns(columns):
    """Returns columns from `--columns`: names, or numbers from 1, as for `recipes.predict`.

    Numbers are what a table without a first line of names has. Given as int, they are from 0.
    """
    if columns and all(
        isinstance(column, str) and column.isdecimal() and int(column) for column in columns
    ):
        return tuple(int(column) - 1 for column in columns)
    return columns


def hold_out_missing(corpora):
    """Returns a dict of split -> corpus, with missing splits held out of the training set.

    By `splits.held_out`: a tenth, from 50 to 1,000 and at most a fifth, duplicates kept together.
    """
    lacking = [split for split in ("test", "valid") if corpora.get(split) is None]
    if lacking:
        print(corpora["train"].summary())
    for split in lacking:
        corpora["train"], corpora[split] = corpora["train"].split()
        print(f"{len(corpora[split]):,} held out for --{split}")
    return corpora


def find_shards(files, columns, **own):
    """Returns the `Shards` of a pattern in `--train`, as "shards/*.jsonl"; None for a path.

    Args:
        files: Dict of split -> path or None.
        columns, **own: See `Shards.find`.

    Raises:
        ValueError: If not all splits are given: of a stream none is held out.
    """
    pattern = str(files["train"])
    if pathlib.Path(pattern).exists() or not glob.has_magic(pattern):
        return None
    has_own_files(files, every=True)
    return Shards.find(pattern, columns, **own)


def find_separator(data):
    """Returns the separator of several labels in own files; None if each row has one label.

    Args:
        data: Group of a configuration; where it says nothing of a `problem_type`, there is one.
    """
    several = getattr(data, "problem_type", None) == SEVERAL
    return data.label_separator if several else None


def print_duplicates(name, keys, labels=None):
    """Prints the number of duplicate rows of a set; nothing if there are none.

    Args:
        name: Of the set.
        keys, labels: See `splits.count_duplicates`.
    """
    counts = count_duplicates(keys, labels)
    if counts:
        numbers = ", ".join(f"{number:,} {where}" for where, number in counts.items())
        print(f"{name}: duplicates, which stay: {numbers}")


HERE = pathlib.Path(__file__).parent
CLONE = pathlib.Path("recipes", "data")  # where the current directory is a clone


def split_name(dataset, names):
    """Returns name and folder of an embedded set that is given as `NAME` or `FOLDER/NAME`.

    Args:
        dataset: What the user has given, a str.
        names: Of the embedded sets.

    Returns:
        The name, and the folder or None; None and None if it is no embedded set.
    """
    path = pathlib.Path(dataset)
    if path.name not in names:
        return None, None
    return path.name, path.parent if str(path) != path.name else None


def find_embedded(name, file, folder=None):
    """Returns the path of an embedded set. A clone has all, an installed package the small ones.

    Args:
        name: Of the set.
        file: Of its file or folder.
        folder: Where it must be; None for beside this module, or in the clone that is the current
            directory.

    Raises:
        FileNotFoundError: If it is not there.
    """
    for folder_of_sets in (HERE, CLONE) if folder is None else (pathlib.Path(folder),):
        if (folder_of_sets / file).exists():
            return folder_of_sets / file
    if folder is not None:
        raise FileNotFoundError(f"The data set {name} needs {file}, which is not in {folder}.")
    raise FileNotFoundError(
        f"The data set {name} is too large for the installed package. {file} is in recipes/data of "
        "a clone of the repository, and of the source distribution (`pip download --no-deps "
        "--no-binary :all: keras_transformers`). Work in that folder, or say where it is: "
        f"--dataset CLONE/recipes/data/{name}"
    )


def find_builder(name, data_dir=None):
    """Returns the builder of a set of TensorFlow Datasets.

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


def find_splits(builder, name):
    """Returns a dict of our name of a split -> the set's name; ValueError without train."""
    theirs = builder.info.splits
    parts = find_parts(f"tfds:{name}", theirs, "split")
    if "train" not in parts:
        raise ValueError(f"tfds:{name} has no split train; it has {', '.join(theirs)}")
    return parts
