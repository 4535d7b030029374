"""Shards: rows in more files than memory holds, read in an order that follows from a seed."""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from keras_transformers.annotations import StrPath
from keras_transformers.shards.files import ENDINGS, DatasetPart, FilePart, Keys, Part
from keras_transformers.shards.order import Block, Pass, Position
from keras_transformers.tables import Chosen, Column, account, ending, fitting_files

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
        numbers = {name: getattr(self, name) for name in ("buffer", "buffer_bytes", "open_files")}
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
