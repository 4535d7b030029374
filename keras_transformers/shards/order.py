"""The order in which rows of shards are read: several shards at a time, one buffer at a time."""

import dataclasses
from typing import Any, NamedTuple, Self

import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.shards.files import Rows


@dataclasses.dataclass(frozen=True)
class Position:
    """Where in its endless stream a buffer begins.

    Args:
        passed: How often all shards have been gone through.
        number: Of the buffer in this pass.
        opened: For each shard that is being read, its number in the order of the pass and the
            number of the row that was read last.
        following: Number of the shard that is opened next.
        turn: Which of the opened ones the next row is taken from.

    Example:
    >>> from keras_transformers.shards import Position
    >>> Position.from_list(Position(1, 2, ((0, 17),), 1, 0).as_list()).opened
    ((0, 17),)
    """

    passed: int = 0
    number: int = 0
    opened: tuple[tuple[int, int], ...] = ()
    following: int = 0
    turn: int = 0

    def as_list(self) -> list[Any]:
        """What JSON can hold."""
        return [*dataclasses.astuple(self)]

    @classmethod
    def from_list(cls, found: list[Any]) -> Self:
        """The position of `as_list`."""
        passed, number, opened, following, turn = found
        return cls(passed, number, tuple((a, b) for a, b in opened), following, turn)


class LeftOut(NamedTuple):
    """A row that is not used: its file, its number there, and why.

    Example:
    >>> from keras_transformers.shards import LeftOut
    >>> LeftOut("a.tsv", 3, "empty").line
    3
    """

    file: str
    line: int
    reason: str


class Block(NamedTuple):
    r"""The rows of a buffer, shuffled.

    Attributes:
        position: Where it begins.
        columns: A list of the values of each column.
        origins: int64 `(rows, 2)`: the number of the shard of each row, and of the row in it.
        left_out: What was read between them and is not used.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.shards import Shards
    >>> from keras_transformers.tables import TEXTS
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    >>> block = next(Shards.find(f"{folder}/*.jsonl", [TEXTS]).blocks())
    >>> sorted(block.columns[0]), block.left_out
    ([b'one', b'two'], [])
    """

    position: Position
    columns: list[list[Any]]
    origins: Array
    left_out: list[LeftOut]


@dataclasses.dataclass
class _Opened:
    """A shard that is being read."""

    number: int  # in the order of the pass
    part: int
    line: int
    rows: Rows


class Pass:
    """One pass over all shards, from a position on.

    Args:
        shards: The `Shards`.
        position: Where to begin.
    """

    def __init__(self, shards: Any, position: Position) -> None:
        self._shards = shards
        self._passed, self._number = position.passed, position.number
        self._order = np.arange(len(shards.parts))
        if shards.seed is not None:
            rng = np.random.default_rng([shards.seed, self._passed])
            self._order = rng.permutation(len(shards.parts))
        self._following, self._turn = position.following, position.turn
        self._opened = [self._open(number, line) for number, line in position.opened]
        if not self._opened and not self._following:
            while self._following < min(shards.open_files, len(shards.parts)):
                self._opened.append(self._open_next())

    def _open(self, number: int, line: int) -> _Opened:
        part = int(self._order[number])
        shards = self._shards
        rows = shards.parts[part].rows(shards.columns, shards.chosen, line, shards.keys)
        return _Opened(number, part, line, rows)

    def _open_next(self) -> _Opened:
        self._following += 1
        return self._open(self._following - 1, 0)

    @property
    def position(self) -> Position:
        """Where the next buffer begins."""
        opened = tuple((each.number, each.line) for each in self._opened)
        return Position(self._passed, self._number, opened, self._following, self._turn)

    def block(self) -> Block:
        """The next buffer; of no rows when the pass is over."""
        position, size = self.position, 0
        rows: list[Any] = []
        origins: list[tuple[int, int]] = []
        left_out: list[LeftOut] = []
        while self._opened and len(rows) < self._shards.buffer and size < self._shards.buffer_bytes:
            opened = self._opened[self._turn]
            try:
                found = next(opened.rows, None)
            except ValueError as error:
                if isinstance(error.__cause__, OSError):
                    raise  # it may be readable again when the run is resumed
                name, found = self._shards.parts[opened.part].name, None
                reason = f"where a file breaks off: {error}"
                left_out.append(LeftOut(name, opened.line + 1, reason))
            if found is None:
                self._close()
                continue
            opened.line, values = found
            values = values if isinstance(values, str) else self._shards.row(values)
            if isinstance(values, str):
                left_out.append(LeftOut(self._shards.parts[opened.part].name, found[0], values))
            else:
                rows.append(values)
                origins.append((opened.part, opened.line))
                size += sum(len(value) for value in values if isinstance(value, bytes))
            self._turn = (self._turn + 1) % len(self._opened)
        self._number += 1
        return self._shuffled(position, rows, origins, left_out)

    def _close(self) -> None:
        """The shard whose turn it is has ended: the next one takes its turn."""
        if self._following < len(self._order):
            self._opened[self._turn] = self._open_next()
            return
        del self._opened[self._turn]
        self._turn = self._turn % len(self._opened) if self._opened else 0

    def _shuffled(
        self, position: Position, rows: list[Any], origins: list[Any], left_out: list[LeftOut]
    ) -> Block:
        array = np.array(origins, np.int64).reshape(-1, 2)
        if self._shards.seed is not None and rows:
            seeds = [self._shards.seed, position.passed, position.number, 1]
            order = np.random.default_rng(seeds).permutation(len(rows))
            rows, array = [rows[i] for i in order], array[order]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return Block(position, columns, array, left_out)
