"""What a stream is read from: files, and parts of data sets, from any row on."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from keras_transformers.tables import ENDINGS as TABLES
from keras_transformers.tables import (
    NAMED_ENDINGS,
    Chosen,
    Column,
    ending,
    first_keys,
    read_bytes,
    rows_of,
    table_rows,
)
from keras_transformers.tables.memory import rows_in_memory

Rows: TypeAlias = Iterator[tuple[int, Any]]  # number and values; or number and why it is left out
Keys: TypeAlias = list[Any] | None  # of columns that are found by the order of keys

ENDINGS = (".txt", *TABLES)  # a .txt is one document


class Part(Protocol):
    """What a stream is read from."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def identity(self) -> list[Any]:
        """What changes when its rows do."""

    def rows(
        self, columns: Sequence[Column], chosen: Chosen, after: int, keys: Keys = None
    ) -> Rows:
        """Number and values of each row behind `after`; or number and why it is left out.

        `keys` are those of the first part, whose order stays.

        Raises:
            ValueError: Where it breaks off.
        """


class FilePart:
    """A file; its ending says what kind.

    Args:
        path: Its path.

    Raises:
        ValueError: If it has an ending of no kind.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.name, self._kind = path, str(path), ending(path)
        if self._kind not in (*ENDINGS, *NAMED_ENDINGS):
            raise ValueError(
                f"{path}: a shard must end in {', '.join(ENDINGS)}, or in one of these and .gz."
            )

    def identity(self) -> list[Any]:
        """Its name and its size."""
        return [self.path.name, self.path.stat().st_size]

    def keys(self, columns: Sequence[Column], chosen: Chosen) -> Keys:
        """The keys of the columns, where the rows are objects and it is their order that tells.

        None if columns are found by their usual names, or the file has no objects in JSON.
        """
        if self._kind not in (".jsonl", ".json"):
            return None
        layout = " and ".join(column.name for column in columns)
        return first_keys(self.path, columns, layout, chosen)

    def rows(
        self, columns: Sequence[Column], chosen: Chosen, after: int, keys: Keys = None
    ) -> Rows:
        """See `Part`."""
        if self._kind == ".txt":
            if len(columns) != 1:
                raise ValueError(f"{self.name}: a .txt has one column; use {', '.join(TABLES)}.")
            return _document(self.path, after)
        layout = " and ".join(column.name for column in columns)
        return table_rows(self.path, columns, layout, chosen, after, keys)


class DatasetPart:
    """A part of a `datasets.Dataset` or `datasets.IterableDataset` of Hugging Face.

    Args:
        dataset: It.
        number: Of this part, from 0.
        count: Number of parts.
    """

    def __init__(self, dataset: Any, number: int, count: int) -> None:
        options = {"contiguous": True} if hasattr(dataset, "num_rows") else {}
        self._dataset = dataset.shard(num_shards=count, index=number, **options)
        self.name = f"part {number + 1} of {count} of the dataset"

    def identity(self) -> list[Any]:
        """Its name, and what `datasets` knows it by."""
        known = getattr(self._dataset, "_fingerprint", None)
        return [self.name, known or str(getattr(self._dataset, "features", None))]

    def rows(
        self, columns: Sequence[Column], chosen: Chosen, after: int, keys: Keys = None
    ) -> Rows:
        """See `Part`."""
        left = self._dataset.skip(after) if after else self._dataset
        found = rows_in_memory(left, len(columns), "rows")
        numbered = ((number + after, row) for number, row in found)
        return rows_of(self.name, numbered, columns, chosen, after)


def _document(path: pathlib.Path, after: int) -> Rows:
    if after:
        return
    try:
        text = read_bytes(path, "a text file").decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield 1, "with invalid UTF-8"
        return
    yield 1, [text]
