"""The user's own files instead of a data set."""

import glob
import pathlib

from keras_transformers.data.splits import count_duplicates
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
