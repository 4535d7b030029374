"""The user's own files instead of a data set."""

import glob
import pathlib

from keras_transformers.models.settings import SEVERAL
from keras_transformers.shards import Shards

SAMPLE = 50_000  # rows of a stream from which vocabularies and lengths follow


def own_files(files):
    """Whether there are files of the user's own.

    Args:
        files: Dict of split -> path or None.

    Raises:
        ValueError: If there are some, but not all.
    """
    missing = [f"--{name}" for name, path in files.items() if not path]
    if missing and len(missing) < len(files):
        raise ValueError(
            f"Own files need --train, --valid and --test; missing: {' and '.join(missing)}."
        )
    return not missing


def shards_of(pattern, columns, **own):
    """The `Shards` that a pattern as "shards/*.jsonl" fits; None of what is no pattern.

    Files of a pattern are gone through as a stream.
    """
    if pathlib.Path(pattern).exists() or not glob.has_magic(str(pattern)):
        return None
    return Shards.find(pattern, columns, **own)


def separator_of(data):
    """What stands between several labels, in own files; None where there is one each.

    Args:
        data: Group of a configuration; where it says nothing of a `problem_type`, there is one.
    """
    several = getattr(data, "problem_type", None) == SEVERAL
    return data.label_separator if several else None
