"""The rows of one shard, from any of them on, whatever kind of file it is."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from keras_transformers.tables import _of_object as values_of_object
from keras_transformers.tables import ending, read_bytes, table_rows

Columns: TypeAlias = Sequence[Sequence[str]]  # for each column the names that it may have
Rows: TypeAlias = Iterator[tuple[int, Any]]  # number and values; or number and why it is left out

TEXTS = (".txt",)  # each a document
TABLES = (".tsv", ".csv", ".jsonl")
RECORDS = (".tfrecord", ".tfrecords")
ENDINGS = (*TEXTS, *TABLES, ".parquet", ".arrow", *RECORDS)


class Part(Protocol):
    """What a stream is read from: a file, or a part of a data set."""

    @property
    def name(self) -> str: ...
    def identity(self) -> list[Any]: ...
    def rows(self, columns: Columns, after: int) -> Rows: ...


class FilePart:
    """A file; its ending says what kind.

    Args:
        path: Its path.

    Raises:
        ValueError: If it has an ending of no kind.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.name, self._kind = path, str(path), ending(path)
        if self._kind not in ENDINGS:
            raise ValueError(
                f"{path}: a shard must end in {', '.join(ENDINGS)}, or in one of these and .gz."
            )

    def identity(self) -> list[Any]:
        """What changes when the file does: its name and its size."""
        return [self.path.name, self.path.stat().st_size]

    def rows(self, columns: Columns, after: int) -> Rows:
        """Number and values of each row behind `after`; or number and why it is left out.

        Raises:
            ValueError: Where the file breaks off.
        """
        if self._kind in TABLES:
            layout = " and ".join(column[0] for column in columns)
            return table_rows(self.path, columns, layout, after)
        if self._kind in TEXTS:
            return _document(self.path, columns, after)
        if self._kind in RECORDS:
            return _of_mappings(_records(self.path, after), columns, after)
        batches = _parquet if self._kind == ".parquet" else _arrow
        return _of_mappings(batches(self.path, columns, after), columns, after)


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
        self.name = f"part {number + 1} of {count}"

    def identity(self) -> list[Any]:
        """What changes when the data set does."""
        known = getattr(self._dataset, "_fingerprint", None)
        return [self.name, known or str(getattr(self._dataset, "features", None))]

    def rows(self, columns: Columns, after: int) -> Rows:
        """As `FilePart.rows`."""
        left = self._dataset.skip(after) if after else self._dataset
        return _of_mappings(iter(left), columns, after)


def _of_mappings(found: Iterator[Mapping[str, Any] | str], columns: Columns, after: int) -> Rows:
    """Rows of mappings from names; `found` begins behind `after`."""
    for number, row in enumerate(found, after + 1):
        yield number, row if isinstance(row, str) else values_of_object("", 0, dict(row), columns)


def _document(path: pathlib.Path, columns: Columns, after: int) -> Rows:
    if len(columns) != 1:
        raise ValueError(f"{path}: a text file has one column; use {', '.join(TABLES)}.")
    if after:
        return
    try:
        text = read_bytes(path, "a text file").decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield 1, "with invalid UTF-8"
        return
    yield 1, [text]


def _records(path: pathlib.Path, after: int) -> Iterator[Mapping[str, Any] | str]:
    """The features of the `tf.train.Example`s of a TFRecord file."""
    kind = "GZIP" if path.suffix == ".gz" else ""
    records = tf.data.TFRecordDataset(str(path), kind).skip(after)
    try:
        for record in records.as_numpy_iterator():
            try:
                features = tf.train.Example.FromString(record).features.feature
            except Exception:  # of protobuf, which has a class of its own in each version
                yield "that are no tf.train.Example"
            else:
                yield {name: _feature(feature) for name, feature in features.items()}
    except tf.errors.DataLossError as error:
        raise ValueError(f"{path} is not a whole TFRecord file ({error.message}).") from None


def _feature(feature: Any) -> Any:
    """The value of a feature, or a list of them where it has several."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    return values[0] if len(values) == 1 else values


def _parquet(path: pathlib.Path, columns: Columns, after: int) -> Iterator[Mapping[str, Any]]:
    arrow = _pyarrow(path)

    with _whole(path, arrow), arrow.parquet.ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if _is_wanted(name, columns)]
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if after >= size:
                after -= size
                continue
            for batch in file.iter_batches(1024, [group], wanted):
                yield from batch.slice(after).to_pylist()
                after = max(after - batch.num_rows, 0)


def _arrow(path: pathlib.Path, columns: Columns, after: int) -> Iterator[Mapping[str, Any]]:
    arrow = _pyarrow(path)
    with _whole(path, arrow), arrow.memory_map(str(path)) as file:
        for batch in arrow.ipc.open_stream(file):
            wanted = [name for name in batch.schema.names if _is_wanted(name, columns)]
            rows = batch.select(wanted).slice(after)
            after = max(after - batch.num_rows, 0)
            for start in range(0, rows.num_rows, 1024):
                yield from rows.slice(start, 1024).to_pylist()


def _is_wanted(name: str, columns: Columns) -> bool:
    return any(name.strip().lower() in column for column in columns)


@contextlib.contextmanager
def _whole(path: pathlib.Path, arrow: Any) -> Iterator[None]:
    try:
        yield
    except arrow.ArrowException as error:
        raise ValueError(f"{path} is not a whole {ending(path)} file ({error}).") from None


def _pyarrow(path: pathlib.Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ValueError(
            f'{path} needs the package pyarrow: pip install "keras_transformers[parquet]"'
        ) from None
    return pyarrow
