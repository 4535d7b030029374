"""The rows of files, as cells in an order or as dicts by name."""

import csv
import gzip
import io
import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from keras_transformers.annotations import StrPath
from keras_transformers.tables.columns import is_unicode

ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet")  # of tables; files of other names have tabs, too
NO_OBJECT = "that are no objects in JSON"
# The number of a row, and its cells; or why it is left out.
Row: TypeAlias = tuple[int, list[str] | Mapping[str, Any] | str]


def read_bytes(path: StrPath, kind: str) -> bytes:
    """The bytes of a file, unpacked where its name ends in `.gz`.

    Args:
        path: The file.
        kind: What it should hold, for messages.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or is no whole gzip file.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give {kind}.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from None
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file ({error}).") from None
    return data


def ending(path: StrPath) -> str:
    """The ending that says what a file is, in lower case, without that of gzip."""
    path = pathlib.Path(path)
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def rows_of_file(path: StrPath, layout: str) -> Iterator[Row]:
    """The rows of a table of any kind, numbered from 1.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or is empty.
        ImportError: If it is a Parquet file and pyarrow is not installed.
    """
    kind = ending(path)
    if kind == ".parquet":
        return _of_parquet(path, layout)
    data = read_bytes(path, f"a file of {layout} lines").removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise ValueError(f"{path} is empty; give a file of {layout} lines.")
    if kind == ".jsonl":
        return _of_objects(data)
    return _between_commas(path, data) if kind == ".csv" else _between_tabs(data)


def _between_tabs(data: bytes) -> Iterator[Row]:
    for line, content in enumerate(data.splitlines(), 1):
        try:
            yield line, content.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"


def _between_commas(path: StrPath, data: bytes) -> Iterator[Row]:
    """Rows, each of which may go on over several lines inside quotes."""
    text = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
    first = data.splitlines()[0]
    between = ";" if b";" in first and b"," not in first else ","  # as spreadsheets in Europe
    reader, line = csv.reader(text, delimiter=between, strict=True, skipinitialspace=True), 1
    try:
        for cells in reader:
            yield line, cells if is_unicode("".join(cells)) else "with invalid UTF-8"
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: no row of a CSV file ({error}).") from None


def _of_objects(data: bytes) -> Iterator[Row]:
    for line, content in enumerate(data.splitlines(), 1):
        try:
            found = json.loads(content.decode("utf-8"))
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"
        except (ValueError, RecursionError):
            yield line, NO_OBJECT if content.strip() else "blank"
        else:
            yield line, found if isinstance(found, dict) else NO_OBJECT


def _of_parquet(path: StrPath, layout: str) -> Iterator[Row]:
    path = pathlib.Path(path)
    if not path.is_file():
        read_bytes(path, f"a file of {layout} rows")  # says what is wrong
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"{path}: Parquet files need pyarrow: pip install 'keras_transformers[parquet]'"
        ) from error
    try:
        table = pyarrow.parquet.ParquetFile(path)
        number = 0
        for batch in table.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a whole Parquet file ({reason}).") from None
