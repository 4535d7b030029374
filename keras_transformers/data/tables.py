"""The wanted columns of tables: of files, and of what people hold in memory.

In memory a table is a frame, a data set, a list or an array. `account` says in words which rows
were left out. `keras_transformers.tables` describes the formats of files.
"""

import collections
import contextlib
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_transformers.core.types import StrPath
from keras_transformers.data.table_files import (
    LABELS,
    NAMED_ENDINGS,
    Chosen,
    Column,
    Row,
    check_names_differ,
    chosen_columns,
    chosen_key,
    ending,
    files_of,
    flat,
    has_usual_name,
    is_header,
    not_found,
    plain,
    positions_of,
    rows_of_file,
    text_of,
)


class Finder:
    """Finds the wanted columns in one row after the other.

    Args:
        name: What messages call the table.
        columns: What is wanted.
        chosen: What the user said of the columns.
        separator, numbered: What stands between cells, and what a row is, for messages.
        earlier_keys: The `keys` of the file before this one, of which this one goes on.

    Attributes:
        keys: The key of each column in rows that are dicts, where these are found by their order:
            that of the first such row, for others may have another order.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        chosen: Chosen,
        separator: str,
        numbered: str = "line",
        earlier_keys: list[Any] | None = None,
    ) -> None:
        self.name, self.columns, self.separator, self.numbered = name, columns, separator, numbered
        try:
            self.chosen = chosen_columns(chosen, columns)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        self.has_names = any(isinstance(each, str) for each in self.chosen or ())
        self.positions: list[int] | None = None  # of rows without names of their own
        self.width: int | None = None  # of these rows
        self.keys: list[Any] | None = None
        self.earlier_keys = earlier_keys
        self.last_row_keys: list[Any] = []
        self.last_keys: list[Any] = [None] * len(columns)  # of the columns in the last row

    def values(self, rows: Iterable[Row], after: int = 0) -> Iterator[tuple[int, Any]]:
        """Numbers of rows, and the value of each column or why there is none; of those `after`."""
        first: tuple[int, list[Any]] | None = None
        any_kept = after > 0
        for number, cells in rows:
            if isinstance(cells, str):
                if number <= after:
                    continue
                yield number, cells
                continue
            if isinstance(cells, Mapping):
                row = flat(cells)
                found = self._of_names(number, row)
                if number <= after:
                    continue  # it says in what order the keys are
                first = first or (number, list(row))
            elif self.positions is None and self._starts(number, cells):
                continue  # these were names
            elif number <= after:
                continue
            else:
                found = self._in_order(number, cells)
            any_kept = any_kept or not isinstance(found, str)
            yield number, found
        if first is not None and not any_kept:
            self._complain(*first)

    def _starts(self, number: int, cells: Sequence[Any]) -> bool:
        """Settles where the columns are, by the first row; whether that has names."""
        texts = [cell for cell in cells if isinstance(cell, str)]
        named = self.has_names or (
            number == 1 and self.numbered == "line" and is_header(texts, self.columns)
        )
        if named:
            positions = positions_of(self._at(number), texts, self.columns, self.chosen)
            if len(texts) == len(self.columns) and positions.count(None) == 1:
                # The name that is not known stands for the column that is left.
                (position,) = set(range(len(texts))) - set(positions)
                positions[positions.index(None)] = position
            if None in positions:
                raise not_found(self._at(number), texts, self.columns, positions)
            self.positions = [each for each in positions if each is not None]
            self.width = len(texts)
        elif self.chosen is not None:
            self.positions = [each for each in self.chosen if isinstance(each, int)]
        else:
            self.positions, self.width = list(range(len(self.columns))), len(self.columns)
        return named

    def _in_order(self, number: int, cells: Sequence[Any]) -> Any:
        wanted, width = self.positions or [], self.width
        if all(isinstance(cell, str) and not cell.strip() for cell in cells):
            return "blank"
        least = max(wanted) + 1 if width is None else width
        if len(cells) < least:
            return (
                f"without a {self.separator}" if least == 2 else f"with fewer than {least} columns"
            )
        if width is not None and len(cells) > width:
            return f"with more than {'two' if width == 2 else width} columns"
        return self._checked([cells[position] for position in wanted])

    def _of_names(self, number: int, row: Mapping[Any, Any]) -> Any:
        row_keys = list(row)
        if row_keys != self.last_row_keys:  # most often all rows have the same
            self.last_keys = self._keys_of(number, row_keys)
            self.last_row_keys = row_keys
        return self._checked([None if key is None else row.get(key) for key in self.last_keys])

    def _keys_of(self, number: int, keys: list[Any]) -> list[Any]:
        """The key of each column in a row that is a dict; None where it has none."""
        if self.chosen is None:
            positions = positions_of(self._at(number), keys, self.columns, None)
            if len(keys) != len(self.columns) or has_usual_name(keys, self.columns):
                return [None if position is None else keys[position] for position in positions]
        if self.keys is None:
            self.keys = self._keys_of_first(number, keys)
        return self.keys

    def _keys_of_first(self, number: int, keys: list[Any]) -> list[Any]:
        """The key of each column in all rows, from the keys of the first one."""
        earlier = self.earlier_keys
        if earlier is not None and all(key in keys for key in earlier):
            return earlier
        if self.chosen is None:
            return keys
        return [chosen_key(self._at(number), keys, choice) for choice in self.chosen]

    def _checked(self, values: Sequence[Any]) -> Any:
        found = []
        for column, value in zip(self.columns, values, strict=True):
            found.append(column.value(value))
            if found[-1] is None:
                return f"without {'text' if column.holds != 'anything' else 'a value'} for " + repr(
                    column.name
                )
        return found

    def _complain(self, number: int, names: list[Any]) -> None:
        """ValueError if the first row with names lacks a column, where no row was usable."""
        positions = positions_of(self._at(number), names, self.columns, self.chosen)
        if None in positions:
            raise not_found(self._at(number), names, self.columns, positions)

    def _at(self, number: int) -> str:
        return f"{self.name}, {self.numbered} {number}"


FEWEST = 10  # rows from which on it tells something that a label is in one alone


class Rows(NamedTuple):
    """What was read.

    Args:
        name: Where it comes from, for messages.
        kept: List of `(number, values)`: the number of the line or row, and the value of each
            column that was wanted.
        left_out: Reason -> number of rows left out.
    """

    name: str
    kept: list[tuple[int, list[Any]]]
    left_out: collections.Counter[str]

    @property
    def read(self) -> int:
        """How many rows there were."""
        return len(self.kept) + sum(self.left_out.values())

    def without_names(self) -> Self:
        """The rows without first lines that name columns by names which are not known.

        They do in `.csv` or `.tsv` files if what they have in the place of a label is the same and
        in no other line, and all others are numbers, or each is in two lines or more of at least
        ten.
        """
        if ending(self.name) not in (".csv", ".tsv") or not self.kept or self.kept[0][0] != 1:
            return self
        *_, first = self.kept[0][1]
        rest = [row for row in self.kept if row[0] != 1 or row[1][-1] != first]
        named = len(self.kept) - len(rest)
        counts = collections.Counter(str(values[-1]) for _, values in rest)
        repeated = len(rest) >= FEWEST and min(counts.values()) > 1
        if isinstance(first, list) or first in counts or not (repeated or _only_numbers(counts)):
            return self
        if _only_numbers([first]):
            return self
        left_out = self.left_out + collections.Counter({"taken for names of columns": named})
        return self._replace(kept=_with_whole_numbers(rest, len(rest[0][1]) - 1), left_out=left_out)


def _only_numbers(labels: Iterable[str]) -> bool:
    try:
        return len([float(label) for label in labels if label.strip()]) > 0
    except ValueError:
        return False


def read_table(
    path: StrPath, columns: Sequence[Column], layout: str, chosen: Chosen = None
) -> tuple[list[tuple[int, list[Any]]], collections.Counter[str]]:
    r"""The rows of a table in a file, and how many were left out for what reason.

    The first line may name the columns: it does if as many of its cells are known names as columns
    are wanted, if one is a name of the labels that are wanted, and where `chosen` has names. A
    single name that is not known then stands for the single column that is left; others are passed
    over. Without names there must be as many columns as are wanted, in their order. Objects and
    Parquet always have names.

    Args:
        path: The file.
        columns: What is wanted.
        layout: What a line holds, for messages.
        chosen: What each of the wanted columns is called in the file, or its position from 0; by
            default as `Column` knows them.

    Returns:
        List of `(line, values)`: the number of the line, from 1, and the value of each column, str,
        of `LABELS` also a list of str; and a `collections.Counter` of reason -> rows.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is empty, or lacks a column.
        ImportError: If it is a Parquet file and pyarrow is not installed.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import LABELS, TEXTS, read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.csv"
    >>> _ = path.write_text('label,text\nanimal,"a cat, a dog"\n\n', encoding="utf-8")
    >>> read_table(path, (TEXTS, LABELS), "text and class")
    ([(2, ['a cat, a dog', 'animal'])], Counter({'blank': 1}))
    """
    kept, left_out = _counted(table_rows(path, columns, layout, chosen))
    return _with_whole_labels(kept, left_out, columns), left_out


def table_rows(
    path: StrPath,
    columns: Sequence[Column],
    layout: str,
    chosen: Chosen = None,
    after: int = 0,
    earlier_keys: list[Any] | None = None,
) -> Iterator[tuple[int, Any]]:
    r"""The rows of `read_table` one by one, which are never in memory together.

    Args:
        path, columns, layout, chosen: As for `read_table`.
        after: Number of a row; only what stands behind it is given.
        earlier_keys: The `first_keys` of the first of several files; their order stays.

    Yields:
        `(line, values)`; or `(line, reason)`, a str, where the row is to be left out.

    Raises:
        FileNotFoundError, ValueError, ImportError: As `read_table`; of a file that breaks off,
            after the rows before.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import PAIRS, table_rows
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.tsv"
    >>> _ = path.write_text("a cat\teine Katze\na dog\n", encoding="utf-8")
    >>> list(table_rows(path, PAIRS, "source TAB target"))
    [(1, ['a cat', 'eine Katze']), (2, 'without a tab')]
    """
    finder = _finder_of_file(path, columns, chosen, earlier_keys)
    return finder.values(rows_of_file(path, layout, after), after)


def _finder_of_file(
    path: StrPath, columns: Sequence[Column], chosen: Chosen, earlier_keys: list[Any] | None = None
) -> Finder:
    separator = "comma" if ending(path) == ".csv" else "tab"
    return Finder(str(path), columns, chosen, separator, earlier_keys=earlier_keys)


def first_keys(
    path: StrPath, columns: Sequence[Column], layout: str, chosen: Chosen = None
) -> list[Any] | None:
    """The keys of the columns of a file of objects, where the order of the first row tells them.

    None if the columns are found by their usual names, or no row can be used.

    Args:
        path, columns, layout, chosen: As for `read_table`.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import PAIRS, first_keys
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.jsonl"
    >>> _ = path.write_text('{"en": "a cat", "de": "eine Katze"}')
    >>> first_keys(path, PAIRS, "pairs")
    ['en', 'de']
    """
    finder = _finder_of_file(path, columns, chosen)
    with contextlib.suppress(ValueError):
        for _, values in finder.values(rows_of_file(path, layout)):
            if finder.keys is not None or not isinstance(values, str):
                break
    return finder.keys


def rows_of(
    name: str, rows: Iterable[Row], columns: Sequence[Column], chosen: Chosen = None, after: int = 0
) -> Iterator[tuple[int, Any]]:
    """As `table_rows`, of rows that are no file.

    Args:
        name: What messages call it.
        rows: Numbers, and rows as tuples or dicts; those up to `after` need not be there.
        columns, chosen, after: As for `table_rows`.

    Example:
    >>> from keras_transformers.tables import TEXTS, rows_of
    >>> list(rows_of("toy", [(1, {"text": "a cat"}), (2, {"text": None})], [TEXTS]))
    [(1, ['a cat']), (2, "without text for 'text'")]
    """
    return Finder(name, columns, chosen, "value", "row").values(rows, after)


def read_rows(data: Any, columns: Sequence[Column], layout: str, chosen: Chosen = None) -> Rows:
    """The wanted columns of whatever people hold tables in.

    Args:
        data: Path of a file, see `read_table`, or a pattern such as "shards/*.jsonl", whose files
            are read one after the other and must have at most 1 GiB together; a pandas or Polars
            DataFrame; a Hugging Face dataset; a dict of columns; a tuple of them, each a list or an
            array; an iterable of tuples or dicts; a `tf.data.Dataset` of such, of single rows or of
            batches.
        columns, layout, chosen: As for `read_table`.

    Returns:
        `Rows`.

    Raises:
        TypeError: If it is none of these.
        FileNotFoundError: If there is no such file, or none that the pattern fits.
        ValueError: As `read_table`, or if the files of a pattern are too large.

    Example:
    >>> from keras_transformers.tables import PAIRS, read_rows
    >>> rows = read_rows([{"en": "a cat", "de": "eine Katze"}], PAIRS, "pairs", ("en", "de"))
    >>> rows.kept
    [(1, ['a cat', 'eine Katze'])]
    """
    if isinstance(data, str | pathlib.PurePath):
        kept, left_out = list[tuple[int, list[Any]]](), collections.Counter[str]()
        keys: list[Any] | None = None  # those of the first file, see `Finder`
        for path in files_of(data):
            finder = _finder_of_file(path, columns, chosen, keys)
            rows, counts = _counted(finder.values(rows_of_file(path, layout)))
            keys = keys or finder.keys
            kept.extend(rows)
            left_out.update(counts)
        name = pathlib.Path(data).name
    else:
        name = name_of(data)
        finder = Finder(name, columns, chosen, "value", "row")
        values = finder.values(rows_in_memory(data, len(columns), layout))
        kept, left_out = _counted(values)
    return Rows(name, _with_whole_labels(kept, left_out, columns), left_out)


def names_column(data: Any, column: Column, chosen: Chosen = None) -> bool:
    """Whether a table has two columns, the second being this one.

    It has if `chosen` are two, or the first row has a known name of the column, or two cells.

    Example:
    >>> from keras_transformers.tables import LABELS, names_column
    >>> [names_column(data, LABELS) for data in ([{"text": "a", "label": "b"}], ["a", "b"])]
    [True, False]
    """
    if chosen is not None:
        return not isinstance(chosen, str | int) and len(chosen) == 2
    first = _first_row(data)
    if isinstance(first, Mapping):
        return any(plain(name) in column.names for name in first)
    return len(first) == 2 or any(plain(cell) in column.names for cell in first)


def holds_lists(data: Any, column: Column, chosen: Chosen = None) -> bool:
    """Whether the first of two columns of a table has lists, by its first row.

    Args:
        data: See `read_rows`; not an iterator, whose first row would be gone.
        column: The column, with the names that it may have.
        chosen: Names or positions of the two columns.

    Example:
    >>> from keras_transformers.tables import TEXTS, holds_lists
    >>> [holds_lists([{"text": text, "label": 1}], TEXTS) for text in ("a cat", ["a", "cat"])]
    [False, True]
    """
    first = _first_row(data)
    names: Sequence[str | int] = (0,)
    if isinstance(first, Mapping):
        cells: dict[Any, Any] = dict(enumerate(first.values()))
        cells |= {plain(name): value for name, value in first.items()}
        names = column.names
    else:
        cells = dict(enumerate(first))
    if chosen is not None and not isinstance(chosen, str | int) and len(chosen) == 2:
        names = [plain(chosen[0]) if isinstance(chosen[0], str) else chosen[0]]
    return any(isinstance(text_of(cells.get(name)), list) for name in names)


def _first_row(data: Any) -> list[Any] | Mapping[str, Any]:
    """The first row of a table; an empty one where there is none that can be read."""
    if isinstance(data, str | pathlib.PurePath):
        path = files_of(data)[0]
        if ending(path) not in NAMED_ENDINGS:
            return []
        rows = rows_of_file(path, "text")
    else:
        rows = rows_in_memory(data, 2, "texts")
    _, first = next(iter(rows), (0, ""))
    return [] if isinstance(first, str) else first


def _counted(
    found: Iterable[tuple[int, Any]],
) -> tuple[list[tuple[int, list[Any]]], collections.Counter[str]]:
    rows: list[tuple[int, list[Any]]] = []
    left_out: collections.Counter[str] = collections.Counter()
    for number, values in found:
        if isinstance(values, str):
            left_out[values] += 1
        else:
            rows.append((number, values))
    return rows, left_out


def _with_whole_labels(
    rows: list[tuple[int, list[Any]]], left_out: Mapping[str, int], columns: Sequence[Column]
) -> list[tuple[int, list[Any]]]:
    """The rows, in which whole numbers among the labels have no point if a label is missing.

    A column of whole numbers in which one is missing is one of floats in pandas, and in the files
    that pandas writes: 0, 1 and None become 0.0, 1.0 and NaN.
    """
    names = [column.name for column in columns]
    if LABELS.name not in names or not rows:
        return rows
    position = names.index(LABELS.name)
    is_missing = left_out.get(f"without text for {LABELS.name!r}", 0) > 0
    return _with_whole_numbers(rows, position, is_missing)


def _with_whole_numbers(
    rows: list[tuple[int, list[Any]]], position: int, is_missing: bool = False
) -> list[tuple[int, list[Any]]]:
    """The rows, with whole numbers at a position, if nothing else stands there and one is missing.

    Args:
        rows: Numbers and values.
        position: That of the labels among the values.
        is_missing: True if a label is missing in another row.
    """
    labels = [values[position] for _, values in rows]
    texts = {label.strip() for label in labels if isinstance(label, str)}
    is_missing = is_missing or "" in texts
    texts.discard("")
    has_others = any(not isinstance(label, str) for label in labels)
    if has_others or not is_missing or not all(re.fullmatch(r"[+-]?\d+(\.0*)?", t) for t in texts):
        return rows
    changed = []
    for number, values in rows:
        whole = values[position].partition(".")[0]
        changed.append((number, [*values[:position], whole, *values[position + 1 :]]))
    return changed


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


def account(**counts: Mapping[str, int]) -> str:
    """The end of a sentence about what was read, from dicts of reason -> number.

    Example:
    >>> from keras_transformers.tables import account
    >>> account(left_out={"blank": 2, "empty": 1}, repaired={})
    '; left out: 2 blank, 1 empty'
    """
    text = ""
    for what, reasons in counts.items():
        if any(reasons.values()):
            listed = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n)
            text += f"; {what.replace('_', ' ')}: {listed}"
    return text
