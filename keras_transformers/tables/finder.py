"""The wanted columns of one row after the other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_transformers.tables.columns import (
    Chosen,
    Column,
    chosen_columns,
    chosen_key,
    flat,
    has_usual_name,
    is_header,
    not_found,
    positions_of,
)
from keras_transformers.tables.files import Row


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
