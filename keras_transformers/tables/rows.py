"""The wanted columns of tables: files, or what people hold in memory."""

import collections
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from keras_transformers.annotations import StrPath
from keras_transformers.tables.columns import (
    Chosen,
    Column,
    chosen_columns,
    flat,
    is_header,
    not_found,
    plain,
    positions_of,
)
from keras_transformers.tables.files import ENDINGS, Row, ending, rows_of_file
from keras_transformers.tables.memory import name_of, rows_in_memory

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
        """The rows without a first line that names columns by names which are not known.

        It does in a `.csv` or `.tsv` file if what it has in the place of a label is in no other
        line, and all others are numbers, or each is in two lines or more of at least ten.
        """
        if ending(self.name) not in (".csv", ".tsv") or not self.kept or self.kept[0][0] != 1:
            return self
        (_, (*_, first)), rest = self.kept[0], self.kept[1:]
        counts = collections.Counter(str(values[-1]) for _, values in rest)
        repeated = len(rest) >= FEWEST and min(counts.values()) > 1
        if isinstance(first, list) or first in counts or not (repeated or _only_numbers(counts)):
            return self
        left_out = self.left_out + collections.Counter({"taken for names of columns": 1})
        return self._replace(kept=rest, left_out=left_out) if not _only_numbers([first]) else self


def _only_numbers(labels: Iterable[str]) -> bool:
    try:
        return len([float(label) for label in labels]) > 0
    except ValueError:
        return False


def read_table(
    path: StrPath, columns: Sequence[Column], layout: str, chosen: Chosen = None
) -> tuple[list[tuple[int, list[Any]]], collections.Counter[str]]:
    r"""The rows of a table in a file, and how many were left out for what reason.

    The first line may name the columns: it does if as many of its cells are known names as columns
    are wanted, and where `chosen` has names. Others are then passed over. Without names there must
    be as many columns as are wanted, in their order. Objects and Parquet always have names.

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
    separator = "comma" if ending(path) == ".csv" else "tab"
    found = _Finder(str(path), columns, chosen, separator).values(rows_of_file(path, layout))
    return _counted(found)


def read_rows(data: Any, columns: Sequence[Column], layout: str, chosen: Chosen = None) -> Rows:
    """The wanted columns of whatever people hold tables in.

    Args:
        data: Path of a file, see `read_table`; a pandas or Polars DataFrame; a Hugging Face
            dataset; a dict of columns; a tuple of them, each a list or an array; an iterable of
            tuples or dicts; a `tf.data.Dataset` of such, of single rows or of batches.
        columns, layout, chosen: As for `read_table`.

    Returns:
        `Rows`.

    Raises:
        TypeError: If it is none of these.
        ValueError: As `read_table`.

    Example:
    >>> from keras_transformers.tables import PAIRS, read_rows
    >>> rows = read_rows([{"en": "a cat", "de": "eine Katze"}], PAIRS, "pairs", ("en", "de"))
    >>> rows.kept
    [(1, ['a cat', 'eine Katze'])]
    """
    if isinstance(data, str | pathlib.PurePath):
        return Rows(pathlib.Path(data).name, *read_table(data, columns, layout, chosen))
    name = name_of(data)
    found = _Finder(name, columns, chosen, "value", "row")
    return Rows(name, *_counted(found.values(rows_in_memory(data, len(columns), layout))))


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
    if isinstance(data, str | pathlib.PurePath):
        if ending(data) not in ENDINGS:
            return False
        rows = rows_of_file(data, "text")
    else:
        rows = rows_in_memory(data, 2, "texts")
    _, first = next(iter(rows), (0, ""))
    if isinstance(first, str):
        return False
    if isinstance(first, Mapping):
        return any(plain(name) in column.names for name in first)
    return len(first) == 2 or any(plain(cell) in column.names for cell in first)


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


class _Finder:
    """Finds the wanted columns in one row after the other."""

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        chosen: Chosen,
        separator: str,
        numbered: str = "line",
    ) -> None:
        self.name, self.columns, self.separator, self.numbered = name, columns, separator, numbered
        try:
            self.chosen = chosen_columns(chosen, columns)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        self.has_names = any(isinstance(each, str) for each in self.chosen or ())
        self.positions: list[int] | None = None  # of rows without names of their own
        self.width: int | None = None  # of these rows

    def values(self, rows: Iterable[Row]) -> Iterator[tuple[int, Any]]:
        """Numbers of rows, and the value of each column or why there is none."""
        first: tuple[int, list[Any]] | None = None
        any_kept = False
        for number, cells in rows:
            if isinstance(cells, str):
                yield number, cells
                continue
            if isinstance(cells, Mapping):
                found = self._of_names(number, flat(cells))
                first = first or (number, list(flat(cells)))
            elif self.positions is None and self._starts(number, cells):
                continue  # these were names
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

    def _of_names(self, number: int, row: Mapping[str, Any]) -> Any:
        names = list(row)
        if self.chosen is None:
            positions = positions_of(self._at(number), names, self.columns, None)
        else:  # another row may have them, if not this one
            there = [each in row or isinstance(each, int) for each in self.chosen]
            positions = (
                positions_of(self._at(number), names, self.columns, self.chosen)
                if all(there)
                else [None] * len(there)
            )
        values = list(row.values())
        return self._checked([None if each is None else values[each] for each in positions])

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
