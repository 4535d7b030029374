"""Files that a pattern such as "shards/*.jsonl" fits."""

import glob
import pathlib

from keras_transformers.annotations import StrPath

IN_MEMORY = 2**30  # bytes of the files of a pattern, as they lie on the disk


def is_pattern(path: StrPath) -> bool:
    """Whether a path is a pattern, and no file or folder that is called so.

    Example:
    >>> from keras_transformers.tables import is_pattern
    >>> is_pattern("shards/*.jsonl"), is_pattern("pairs.tsv")
    (True, False)
    """
    return glob.has_magic(str(path)) and not pathlib.Path(path).exists()


def fitting_files(pattern: StrPath) -> list[pathlib.Path]:
    """The files that a pattern fits, sorted by name; none that begin with a dot.

    Args:
        pattern: Such as "shards/*.jsonl" or "shards/**/*.tsv.gz".

    Raises:
        FileNotFoundError: If there are none.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import fitting_files
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.tsv", "a.tsv", "a.txt"):
    ...     (folder / name).touch()
    >>> [path.name for path in fitting_files(folder / "*.tsv")]
    ['a.tsv', 'b.tsv']
    """
    found = sorted(map(pathlib.Path, glob.glob(str(pattern), recursive=True)))
    files = [path for path in found if path.is_file() and path.name[0] != "."]
    if not files:
        raise FileNotFoundError(f"No file fits {pattern}.")
    return files


def files_of(path: StrPath) -> list[pathlib.Path]:
    """The files of a pattern, of which all rows are to be in memory; or the path alone.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If they are too large together.

    Example:
    >>> from keras_transformers.tables import files_of
    >>> [path.name for path in files_of("data/pairs.tsv")]
    ['pairs.tsv']
    """
    if not is_pattern(path):
        return [pathlib.Path(path)]
    files = fitting_files(path)
    size = sum(file.stat().st_size for file in files)
    if size > IN_MEMORY:
        raise ValueError(
            f"The {len(files):,} files that fit {path} have {size / 2**30:.1f} GiB; what is read "
            f"into memory must have at most {IN_MEMORY / 2**30:g} GiB. `shards.Shards` reads more, "
            "as a stream."
        )
    return files
