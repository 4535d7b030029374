"""Sentence pairs in files, read and written one after the other."""

import gzip
import json
import pathlib

from keras_transformers.tables import (
    PAIRS,
    ending,
    first_keys,
    fitting_files,
    is_pattern,
    table_rows,
)

from .data_sets import parse_columns

KINDS = (".tsv", ".jsonl", ".parquet")
GROUP = 65_536  # rows of Parquet that are written together


class PairFiles:
    """The rows of files of sentence pairs, read again by each loop.

    Args:
        paths: Files, or patterns such as "shards/*.tsv.gz".
        columns: Names of source and target, where they have others than the usual, or numbers, see
            `parse_columns`.

    Raises:
        FileNotFoundError: If there is no such file.
    """

    def __init__(self, paths, columns=()):
        lists_of_files = [fitting_files(path) if is_pattern(path) else [path] for path in paths]
        self.files = [pathlib.Path(path) for files in lists_of_files for path in files]
        self.columns = parse_columns(columns) or None
        self.at = None, 0  # file and line of the last row
        for path in self.files:
            if not path.is_file():
                raise FileNotFoundError(f"{path} is no file; give one of source TAB target lines.")

    def __iter__(self):
        layout = "source TAB target"
        keys = first_keys(self.files[0], PAIRS, layout, self.columns) if self.files else None
        for path in self.files:
            for line, values in table_rows(path, PAIRS, layout, self.columns, 0, keys):
                self.at = path, line
                yield values


class Writer:
    """A scope that writes rows into a file, which appears when the scope ends without an error.

    A tab or a line end inside a text becomes a space in a .tsv. Its first line names the columns
    only where it must: where a reader would take the first row for names.

    Args:
        path: Ends in one of `KINDS`, or but for Parquet in one and `.gz`.
        names: Of the columns.
        head: Whether a .tsv names its columns in any case.

    Raises:
        ValueError: If it has another ending.
        ImportError: If it is a Parquet file and pyarrow is not installed.
    """

    def __init__(self, path, names, head=False):
        self.path, self._names, self._head = pathlib.Path(path), names, head
        self._kind = ending(path)
        packed, of_xz = self.path.suffix == ".gz", self.path.suffix == ".xz"
        if (self._kind not in KINDS or packed and self._kind == ".parquet") or of_xz:
            raise ValueError(
                f"{path} must end in {', '.join(KINDS)}, or in .tsv.gz or .jsonl.gz, to be written."
            )
        if self._kind == ".parquet":
            self._arrow = _pyarrow(path)
        self._part = self.path.with_name(f"{self.path.name}.part")
        self._group = []  # rows that are not written yet
        self.spaces = 0  # rows in which a space stands for another sign

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._kind == ".parquet":
            schema = self._arrow.schema([(name, self._arrow.string()) for name in self._names])
            self._file = self._arrow.parquet.ParquetWriter(self._part, schema)
        else:
            opened = gzip.open if self.path.suffix == ".gz" else open
            self._file = opened(self._part, "wt", encoding="utf-8", newline="\n")
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.close()
            if kind is not None:
                self._part.unlink()
        if kind is None:
            self._part.replace(self.path)

    def add(self, row):
        """Writes a row, a tuple of str."""
        if self._kind == ".tsv":
            if self._head or self._head is False and _names_columns(row):
                self._file.write("\t".join(self._names) + "\n")
            self._head = None
            cells = tuple(" ".join(text.replace("\t", "\n").splitlines()) for text in row)
            self.spaces += cells != row
            self._file.write("\t".join(cells) + "\n")
        elif self._kind == ".jsonl":
            record = dict(zip(self._names, row, strict=True))
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            self._group.append(row)
            if len(self._group) == GROUP:
                self._flush()

    def _flush(self):
        if self._group:
            columns = map(list, zip(*self._group, strict=True))
            named = dict(zip(self._names, columns, strict=True))
            self._file.write_table(self._arrow.table(named, self._file.schema))
            self._group = []


def _pyarrow(path):
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path}: pyarrow writes it; pip install 'keras_transformers[parquet]'"
        ) from None
    return pyarrow


def _names_columns(row):
    """Returns whether a reader would take a row for the names of columns."""
    names = {name for column in PAIRS for name in column.names}
    return all(cell.strip().lower() in names for cell in row)
