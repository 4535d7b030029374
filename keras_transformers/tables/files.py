"""The rows of files, as cells in an order or as dicts by name."""

import contextlib
import csv
import gzip
import io
import json
import lzma
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from keras_transformers.annotations import StrPath
from keras_transformers.tables.columns import is_unicode
from keras_transformers.tables.records import OF_RECORDS

MARK = b"\xef\xbb\xbf"  # of byte order
ENDINGS = (".tsv", ".csv", ".jsonl", *OF_RECORDS)  # of tables; files of other names have tabs, too
PACKED: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
NO_TEXT = "with invalid UTF-8"
NO_OBJECT = "that are no objects in JSON"
# The number of a row, and its cells; or why it is left out.
Row: TypeAlias = tuple[int, list[str] | Mapping[str, Any] | str]


def read_bytes(path: StrPath, kind: str) -> bytes:
    r"""The bytes of a file, unpacked where its name ends in `.gz` or `.xz`.

    Args:
        path: The file.
        kind: What it should hold, for messages.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or is no whole packed file.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import read_bytes
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = path.write_bytes(b"one\tuno\n")
    >>> len(read_bytes(path, "a table"))
    8
    """
    with opened(path, kind) as file:
        return file.read()


@contextlib.contextmanager
def opened(path: StrPath, kind: str) -> Iterator[io.BufferedReader]:
    """A file to be read from its beginning, otherwise as `read_bytes`."""
    path = checked(path, kind)
    try:
        with cast(io.BufferedReader, PACKED.get(path.suffix, open)(path, "rb")) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        packed = "xz" if path.suffix == ".xz" else "gzip"
        raise ValueError(f"{path} is not a whole {packed} file ({error}).") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}).") from error


def checked(path: StrPath, kind: str) -> pathlib.Path:
    """The path; FileNotFoundError if there is no such file, in words of what it should hold."""
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give {kind}.")
    return path


def ending(path: StrPath) -> str:
    """The ending that says what a file is, in lower case, without that of a packer.

    Example:
    >>> from keras_transformers.tables import ending
    >>> ending("pairs.TSV.gz")
    '.tsv'
    """
    path = pathlib.Path(path)
    return (path.with_suffix("") if path.suffix in PACKED else path).suffix.lower()


def rows_of_file(path: StrPath, layout: str, after: int = 0) -> Iterator[Row]:
    """The rows of a table of any kind, numbered from 1, which are never in memory together.

    Args:
        path: The file.
        layout: What a row holds, for messages.
        after: Number of a row; what stands before it and itself is passed over, but for the first
            row without names of its own, which may have the columns' names. Lines are then not
            taken apart, and groups of Parquet not read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is empty, or breaks off, which may be after some rows.
        ImportError: If it is a Parquet or Arrow file and pyarrow is not installed.
    """
    kind = ending(path)
    if kind in OF_RECORDS:
        records = OF_RECORDS[kind](checked(path, f"a file of {layout} rows"), after)
        yield from enumerate(records, after + 1)
        return
    with opened(path, f"a file of {layout} lines") as file:
        start = len(MARK) if file.peek(len(MARK))[: len(MARK)] == MARK else 0
        file.seek(start)
        if not file.peek(1):
            raise ValueError(f"{path} is empty; give a file of {layout} lines.")
        if kind == ".csv":
            yield from _between_commas(path, file, start)
            return
        read = _of_object if kind == ".jsonl" else _between_tabs
        named = kind != ".jsonl"
        for line, content in enumerate((line for part in file for line in part.splitlines()), 1):
            if line > after or named:
                cells = read(content)
                named = named and isinstance(cells, str)
                yield line, cells


def _between_tabs(content: bytes) -> list[str] | str:
    try:
        return content.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return NO_TEXT


def _between_commas(path: StrPath, file: io.BufferedReader, start: int) -> Iterator[Row]:
    """Rows, each of which may go on over several lines inside quotes."""
    first = file.readline()
    file.seek(start)
    text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
    between = ";" if b";" in first and b"," not in first else ","  # as spreadsheets in Europe
    reader, line = csv.reader(text, delimiter=between, strict=True, skipinitialspace=True), 1
    try:
        for cells in reader:
            yield line, cells if is_unicode("".join(cells)) else NO_TEXT
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: no row of a CSV file ({error}).") from None


def _of_object(content: bytes) -> dict[str, Any] | str:
    try:
        found = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        return NO_TEXT
    except (ValueError, RecursionError):
        return NO_OBJECT if content.strip() else "blank"
    return found if isinstance(found, dict) else NO_OBJECT
