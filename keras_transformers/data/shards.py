"""Shards: rows in more files than memory holds, read in an order that follows from a seed.

Several shards are open at a time, and rows are shuffled in one buffer at a time. A pass can start
at any row.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from keras_transformers.core.types import Array, StrPath
from keras_transformers.data.table_files import ENDINGS as TABLES
from keras_transformers.data.table_files import (
    NAMED_ENDINGS,
    Chosen,
    Column,
    ending,
    fitting_files,
    read_bytes,
)
from keras_transformers.data.tables import account, first_keys, rows_in_memory, rows_of, table_rows

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


OPEN_FILES = 8  # shards that rows are taken from in turn
BUFFER = 65_536  # rows that are shuffled together
BUFFER_BYTES = 32 * 2**20  # of their text; what is reached first ends a buffer


def as_texts(values: Sequence[Any]) -> list[Any] | str:
    """A row of texts in UTF-8, each without spaces around it; or why it is left out.

    Example:
    >>> from keras_transformers.shards import as_texts
    >>> as_texts(["a cat ", "eine Katze"]), as_texts(["a cat", " "])
    ([b'a cat', b'eine Katze'], 'with an empty column')
    """
    found = [value.strip().encode() for value in values]
    return found if all(found) else "with an empty column"


@dataclasses.dataclass(frozen=True)
class Shards:
    r"""Rows of many files, which are never in memory together.

    Each pass over them goes through the shards in another order, which follows from `seed` and the
    number of the pass. Rows are taken in turn from `open_files` shards at a time until a buffer is
    full; it is shuffled, also by the seed, and used up before the next is filled. So where a buffer
    begins is a few numbers, a `Position`, from which a killed run goes on.

    Args:
        parts: The shards, see `Shards.find` and `Shards.of_dataset`.
        columns: What is wanted of a row; see `keras_transformers.tables`.
        seed: Of both orders; None keeps that of files and rows.
        row: Function of the values of a row: a list of bytes or numbers, one for each column, or
            why the row is left out, a str.
        buffer: Rows that are shuffled together.
        buffer_bytes: Bytes of their texts; what is reached first ends a buffer.
        open_files: Shards that are read at a time.
        chosen: What each column is called in the shards, or its position; by default as `Column`
            knows it.

    Raises:
        ValueError: If there are no shards, or a number is not positive.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.shards import Shards
    >>> from keras_transformers.tables import PAIRS
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     _ = (folder / f"{number}.tsv").write_text(f"cat {number}\tKatze {number}\n")
    >>> shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed=1)
    >>> block = next(shards.blocks())
    >>> len(shards.parts), sorted(block.columns[0])
    (3, [b'cat 0', b'cat 1', b'cat 2'])
    """

    parts: tuple[Part, ...]
    columns: Sequence[Column]
    seed: int | None = None
    row: Callable[[Sequence[Any]], list[Any] | str] = as_texts
    buffer: int = BUFFER
    buffer_bytes: int = BUFFER_BYTES
    open_files: int = OPEN_FILES
    chosen: Chosen = None

    def __post_init__(self) -> None:
        numbers = {
            "buffer": self.buffer,
            "buffer_bytes": self.buffer_bytes,
            "open_files": self.open_files,
        }
        if not self.parts or min(numbers.values()) < 1:
            raise ValueError(
                "Shards: there must be shards, and all numbers be positive. "
                f"Received: {len(self.parts)} shards, {numbers}"
            )

    @classmethod
    def find(
        cls, pattern: StrPath, columns: Sequence[Column], seed: int | None = None, **own: Any
    ) -> Self:
        """The files that a pattern fits, or all in a folder and those in it, sorted by name.

        Of a folder only files whose ending is known count.

        Args:
            pattern: Such as "shards/*.jsonl" or "shards/**/*.tsv.gz"; or a file, or a folder. Their
                endings are those of `keras_transformers.tables`, or .txt, each file a document.
            columns, seed, **own: See the class.

        Raises:
            FileNotFoundError: If there are none.
            ValueError: If one has another ending.
        """
        path = pathlib.Path(pattern)
        if path.is_dir():
            files = [file for file in path.rglob("*") if ending(file) in ENDINGS]
        elif path.is_file():
            files = [path]
        else:
            files = fitting_files(pattern)
        files = sorted(file for file in files if file.is_file() and file.name[0] != ".")
        if not files:
            raise FileNotFoundError(f"No file fits {pattern}; give shards.")
        return cls(tuple(map(FilePart, files)), columns, seed, **own)

    @classmethod
    def of_dataset(
        cls,
        dataset: Any,
        columns: Sequence[Column],
        seed: int | None = None,
        parts: int = 8,
        **own: Any,
    ) -> Self:
        """The rows of a `datasets.Dataset` or `datasets.IterableDataset` of Hugging Face.

        Args:
            dataset: It.
            columns, seed, **own: See the class.
            parts: What is gone through in turn, as shards are; of an `IterableDataset` its own.
        """
        count = getattr(dataset, "num_shards", parts)
        if hasattr(dataset, "num_rows"):
            count = max(min(parts, dataset.num_rows), 1)
        return cls(
            tuple(DatasetPart(dataset, number, count) for number in range(count)),
            columns,
            seed,
            **own,
        )

    def blocks(self, position: Position | None = None) -> Iterator[Block]:
        """One buffer after the other, pass after pass, without end.

        Args:
            position: Where to begin; by default with the first pass.

        Raises:
            ValueError: If a whole pass gives no row.
        """
        position = position or Position()
        while True:
            began = position
            one = Pass(self, position)
            reasons: collections.Counter[str] = collections.Counter()
            found = 0
            while (block := one.block()).origins.size:
                found += len(block.origins)
                yield block
            if block.left_out:
                yield block
                reasons.update(each.reason for each in block.left_out)
            if not found and began == Position(began.passed):
                counted = account(left_out=reasons)
                wanted = " and ".join(column.name for column in self.columns)
                raise ValueError(
                    f"{self.name}: no row can be used{counted}. Each must have {wanted}."
                )
            position = Position(position.passed + 1)

    @property
    def name(self) -> str:
        """What messages call them."""
        return f"{self.parts[0].name} and {len(self.parts) - 1:,} more shards"

    @functools.cached_property
    def keys(self) -> Keys:
        """The keys of the columns in the first file, where their order says which is which."""
        first = self.parts[0]
        return first.keys(self.columns, self.chosen) if isinstance(first, FilePart) else None

    def rows(self) -> Iterator[list[Any]]:
        """Every row that can be used, once, shard by shard, as `row` gives it.

        Raises:
            ValueError: Where a shard breaks off.
        """
        for part in self.parts:
            yield from self._rows_of(part)

    def _rows_of(self, part: Part) -> Iterator[list[Any]]:
        for _, values in part.rows(self.columns, self.chosen, 0, self.keys):
            values = values if isinstance(values, str) else self.row(values)
            if not isinstance(values, str):
                yield values

    def sample(self, number: int) -> list[list[Any]]:
        """About so many rows, the first ones of each shard, as `row` gives them.

        For what has to be learned before training: a vocabulary, the length of rows.
        """
        from_each = -(-number // len(self.parts))
        chosen = self.parts[:: max(len(self.parts) // number, 1)]
        rows = [row for part in chosen for row in itertools.islice(self._rows_of(part), from_each)]
        if not rows:
            next(self.blocks())  # which says why
        return rows

    def identity(self) -> dict[str, Any]:
        """What must be the same where a run goes on, or it would read other rows."""
        return {
            "shards": [part.identity() for part in self.parts],
            "columns": [list(column.names) for column in self.columns],
            "chosen": self.chosen,
            "seed": self.seed,
            "buffer": [self.buffer, self.buffer_bytes],
            "open_files": self.open_files,
        }
