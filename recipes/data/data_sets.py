"""Sources of data: embedded sets, TensorFlow Datasets, and the user's own files."""

import glob
import pathlib

from keras_transformers.core.imports import needed_by
from keras_transformers.data.splits import count_duplicates, find_parts
from keras_transformers.models.base import SEVERAL
from keras_transformers.shards import Shards

SAMPLE = 50_000  # rows of a stream from which vocabularies and lengths follow


def own_files(files, every=False):
    """Whether there are files of the user's own.

    Args:
        files: Dict of split -> path or None.
        every: Whether there must be one for each split; else `held_out_of` makes those that lack.

    Raises:
        ValueError: If there are some, but not those that are needed.
    """
    missing = [f"--{name}" for name, path in files.items() if not path]
    needed = missing if every else [each for each in missing if each == "--train"]
    if needed and len(missing) < len(files):
        asked = "--train, --valid and --test" if every else "--train"
        raise ValueError(f"Own files need {asked}; missing: {' and '.join(needed)}.")
    return len(missing) < len(files)


def columns_of(asked):
    """Columns as `--columns` gives them: names, or numbers from 1, as of `recipes.predict`.

    Numbers are what a table without a first line of names has. Given as int, they are from 0.
    """
    if asked and all(isinstance(each, str) and each.isdecimal() and int(each) for each in asked):
        return tuple(int(each) - 1 for each in asked)
    return asked


def held_out_of(corpora):
    """Dict of split -> corpus, in which what lacks is held out of what is learned from.

    By `splits.held_out`: a tenth, from 50 to 1,000 and at most a fifth, duplicates kept together.
    """
    lacking = [split for split in ("test", "valid") if corpora.get(split) is None]
    if lacking:
        print(corpora["train"].summary())
    for split in lacking:
        corpora["train"], corpora[split] = corpora["train"].split()
        print(f"{len(corpora[split]):,} held out for --{split}")
    return corpora


def shards_of(files, columns, **own):
    """The `Shards` that the pattern of `--train`, as "shards/*.jsonl", fits; None if it is a path.

    Args:
        files: Dict of split -> path or None.
        columns, **own: See `Shards.find`.

    Raises:
        ValueError: If not all splits are given: of a stream none is held out.
    """
    pattern = str(files["train"])
    if pathlib.Path(pattern).exists() or not glob.has_magic(pattern):
        return None
    own_files(files, every=True)
    return Shards.find(pattern, columns, **own)


def separator_of(data):
    """What stands between several labels, in own files; None where there is one each.

    Args:
        data: Group of a configuration; where it says nothing of a `problem_type`, there is one.
    """
    several = getattr(data, "problem_type", None) == SEVERAL
    return data.label_separator if several else None


def print_duplicates(name, keys, labels=None):
    """Prints how many rows of a set stand in it more than once; nothing if none does.

    Args:
        name: Of the set.
        keys, labels: See `splits.count_duplicates`.
    """
    counts = count_duplicates(keys, labels)
    if counts:
        listed = ", ".join(f"{number:,} {where}" for where, number in counts.items())
        print(f"{name}: duplicates, which stay: {listed}")


HERE = pathlib.Path(__file__).parent
CLONE = pathlib.Path("recipes", "data")  # where the current directory is a clone


def split_name(dataset, names):
    """Name and folder of an embedded set that is given as `NAME` or `FOLDER/NAME`.

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
    """The path of an embedded set.

    Args:
        name: Of the set.
        file: Of its file or folder.
        folder: Where it must be; None for beside this module, or in the clone that is the current
            directory.

    Raises:
        FileNotFoundError: If it is not there.
    """
    for there in (HERE, CLONE) if folder is None else (pathlib.Path(folder),):
        if (there / file).exists():
            return there / file
    if folder is not None:
        raise FileNotFoundError(f"The data set {name} needs {file}, which is not in {folder}.")
    raise FileNotFoundError(
        f"The data set {name} is too large for the installed package. {file} is in recipes/data of "
        "a clone of the repository, and of the source distribution (`pip download --no-deps "
        "--no-binary :all: keras_transformers`). Work in that folder, or say where it is: "
        f"--dataset CLONE/recipes/data/{name}"
    )


def find_builder(name, data_dir=None):
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


def splits_of(builder, name):
    """Dict of our name of a split -> the set's, of those it has; ValueError without train."""
    theirs = builder.info.splits
    found = find_parts(f"tfds:{name}", theirs, "split")
    if "train" not in found:
        raise ValueError(f"tfds:{name} has no split train; it has {', '.join(theirs)}")
    return found
