"""The rows of what people hold tables in: frames, datasets, lists, arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.tables.columns import check_names_differ
from keras_transformers.tables.files import Row


def name_of(data: Any) -> str:
    """What messages call it."""
    return f"the {type(data).__name__}"


def rows_in_memory(data: Any, wanted: int, layout: str) -> Iterator[Row]:
    """The rows of a table that is no file, numbered from 1: tuples, or dicts by name.

    Args:
        data: See `read_rows`.
        wanted: Number of columns that are wanted.
        layout: What a row holds, for messages.

    Raises:
        TypeError: If it is no table.
        ValueError: If columns differ in length, or two have one name.
    """
    return ((number, row) for number, row in enumerate(_rows(data, wanted, layout), 1))


def _rows(data: Any, wanted: int, layout: str) -> Iterable[Any]:
    if hasattr(data, "itertuples"):  # pandas
        check_names_differ(name_of(data), data.columns)
        return _of_columns({str(name): data[name].tolist() for name in data.columns})
    if hasattr(data, "iter_rows"):  # Polars
        return data.iter_rows(named=True)
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _of_hugging_face(data)
    if hasattr(data, "to_pylist"):  # Arrow
        check_names_differ(name_of(data), getattr(data, "column_names", ()))
        return data.to_pylist()
    if hasattr(data, "as_numpy_iterator"):
        return _of_tensors(data)
    if isinstance(data, Mapping):
        return _of_columns(data)
    if isinstance(data, tuple) and len(data) == wanted and all(map(_is_column, data)):
        return _of_columns(dict(enumerate(data)), named=False)
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise TypeError(
            f"Expected {layout}: the path of a file, a DataFrame, a dataset, a dict of columns, or "
            f"an iterable of rows. Received: a {type(data).__name__}"
        )
    return map(_row, data)


def _is_column(thing: Any) -> bool:
    """Whether it is a list or an array, and no text or row."""
    return isinstance(thing, list) or hasattr(thing, "__array__") and np.ndim(thing) > 0


def _of_columns(columns: Mapping[Any, Any], named: bool = True) -> Iterator[Any]:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ValueError(f"Columns must be as long as one another. Received: {listed}")
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True)) if named else list(values)


def _of_hugging_face(data: Any) -> Iterator[Mapping[str, Any]]:
    """Rows of a dataset of `datasets`, with the names of classes for their numbers."""
    names = {key: _names_of(feature) for key, feature in (data.features or {}).items()}
    names = {key: found for key, found in names.items() if found}
    for row in data:
        yield {**row, **{key: _named(row.get(key), names[key]) for key in names}}


def _names_of(feature: Any) -> Any:
    """The names of a `ClassLabel`, or of a list of such; None of others."""
    if isinstance(feature, list) and len(feature) == 1:  # as older versions write a list
        feature = feature[0]
    inner = feature if isinstance(feature, dict) else getattr(feature, "feature", feature)
    return None if isinstance(inner, dict) else getattr(inner, "names", None)


def _named(value: Any, names: Any) -> Any:
    """A number's name, or those in a list; -1 is what test sets have in the place of a label."""
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    return (names[value] if value >= 0 else None) if isinstance(value, int) else value


def _of_tensors(data: Any) -> Iterator[Any]:
    """Rows of a `tf.data.Dataset`, of which a string tensor with axes is a batch."""
    specs = data.element_spec
    parts = list(specs.values()) if isinstance(specs, dict) else list(_as_row(specs))
    texts = [spec for spec in parts if getattr(spec.dtype, "name", "") == "string"]
    batched = texts and all(spec.shape.rank == 1 for spec in texts)
    for element in (data.unbatch() if batched else data).as_numpy_iterator():
        yield element if isinstance(element, Mapping) else _row(element)


def _as_row(row: Any) -> Sequence[Any]:
    return row if isinstance(row, tuple | list) else (row,)


def _row(row: Any) -> Any:
    """A row of an iterable, as a dict or a list of cells."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, np.ndarray) and row.dtype.kind in "OSU" and row.ndim == 1:
        return row.tolist()
    return list(_as_row(row))
