"""The records of files that are no text: Parquet, Arrow, TFRecord."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from keras_transformers.tables.columns import check_names_differ

Records: TypeAlias = Iterator[Mapping[str, Any] | str]  # or why one is left out


def of_parquet(path: pathlib.Path, after: int = 0) -> Records:
    """The rows of a Parquet file behind the first so many; groups of rows are passed over whole."""
    with _whole(path, "Parquet") as arrow:
        with arrow.parquet.ParquetFile(path) as file:
            check_names_differ(str(path), file.schema_arrow.names)
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if after < size:
                    for batch in file.iter_batches(ROWS, [group]):
                        batch.validate(full=True)
                        yield from batch.slice(after).to_pylist()
                        after = max(after - batch.num_rows, 0)
                else:
                    after -= size


def of_arrow(path: pathlib.Path, after: int = 0) -> Records:
    """The rows of an Arrow file, or of a stream, as `save_to_disk` of `datasets` writes it."""
    with _whole(path, "Arrow") as arrow, arrow.memory_map(str(path)) as file:
        is_file = file.read(len(ARROW_FILE)) == ARROW_FILE
        file.seek(0)
        opened = arrow.ipc.open_file(file) if is_file else arrow.ipc.open_stream(file)
        check_names_differ(str(path), opened.schema.names)
        for batch in _batches_of_file(opened) if is_file else opened:
            batch.validate(full=True)  # or what a damaged file says of itself would be believed
            for start in range(min(after, batch.num_rows), batch.num_rows, ROWS):
                yield from batch.slice(start, ROWS).to_pylist()
            after = max(after - batch.num_rows, 0)


def _batches_of_file(opened: Any) -> Iterator[Any]:
    return (opened.get_batch(number) for number in range(opened.num_record_batches))


def of_examples(path: pathlib.Path, after: int = 0) -> Records:
    """The features of the `tf.train.Example`s of a TFRecord file, plain or gzip.

    They have no order of their own, and are sorted by their names.
    """
    import tensorflow as tf

    kind = "GZIP" if path.suffix == ".gz" else ""
    records = tf.data.TFRecordDataset(str(path), kind).skip(after)
    try:
        for record in records.as_numpy_iterator():
            try:
                features = tf.train.Example.FromString(record).features.feature
            except Exception:  # of protobuf, which has a class of its own in each version
                yield "that are no tf.train.Example"
            else:
                yield {name: _feature(features[name]) for name in sorted(features)}
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        reason = error.message.split("[Op")[0].strip()
        raise ValueError(f"{path} is not a whole TFRecord file ({reason}).") from None


ARROW_FILE = b"ARROW1"  # with which a file of Arrow begins, and a stream does not
ROWS = 1024  # that are made Python's at a time
OF_RECORDS = {
    ".parquet": of_parquet,
    ".arrow": of_arrow,
    ".tfrecord": of_examples,
    ".tfrecords": of_examples,
}


def _feature(feature: Any) -> Any:
    """The value of a feature, or a list of them where it has not one."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    return values[0] if len(values) == 1 else values


@contextlib.contextmanager
def _whole(path: pathlib.Path, kind: str) -> Iterator[Any]:
    """The package pyarrow; ValueError where it cannot read on."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"{path}: {kind} files need pyarrow: pip install 'keras_transformers[parquet]'"
        ) from error
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a whole {kind} file ({reason}).") from None
