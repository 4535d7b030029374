"""What a stream has given so far: where each buffer began, and which rows were left out."""

import collections
import contextlib
import json
import pathlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from keras_transformers.annotations import StrPath
from keras_transformers.shards.order import LeftOut, Position
from keras_transformers.tables import account

LISTED = 3  # rows of each reason that a summary names


class Journal:
    """A file of JSON lines beside a run's checkpoints, and the counts that it holds.

    It follows from the shards and their seed, so a line that is lost or written twice does no harm:
    the stream is then gone through from an earlier buffer. Rows that are left out are noted in the
    first pass, each once.

    Args:
        path: The file; None keeps all in memory.
        identity: What must be the same as when the file was begun.

    Raises:
        ValueError: If the file is of other shards.

    Example:
    >>> from keras_transformers.shards import Journal, Position
    >>> journal = Journal(None, {})
    >>> journal.begins(Position(), step=0)
    >>> journal.begins(Position(0, 1, ((0, 17),), 1, 0), step=120)
    >>> journal.before(150)
    (Position(passed=0, number=1, opened=((0, 17),), following=1, turn=0), 120)
    """

    def __init__(self, path: StrPath | None, identity: dict[str, Any]) -> None:
        self._path = pathlib.Path(path) if path is not None else None
        self._lock = threading.Lock()
        self._begun: set[tuple[int, int]] = set()
        self._noted: set[tuple[int, ...]] = set()
        self._starts: list[tuple[int, Position]] = []
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self._examples: dict[str, list[LeftOut]] = collections.defaultdict(list)
        if self._path is None:
            return
        if self._path.is_file():
            self._read(identity)
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._write({"identity": identity})

    def before(self, step: int) -> tuple[Position, int]:
        """Where the buffer of a step begins, and the first step of it."""
        found = [start for start in self._starts if start[0] <= step]
        first, position = max(found, key=lambda start: start[0], default=(0, Position()))
        return position, first

    def begins(self, position: Position, step: int) -> None:
        """A buffer's first batch is that of `step`."""
        with self._lock:
            if (key := (position.passed, position.number)) not in self._begun:
                self._begin(key, position, step)
                self._write({"step": step, "position": position.as_list()})

    def note(self, what: str, key: Iterable[int], rows: Iterable[LeftOut]) -> None:
        """Rows that are left out, or kept and worth knowing.

        Args:
            what: "left_out" or "noted".
            key: Numbers of the pass, of the buffer, and of what part of it: noted once.
            rows: The rows.
        """
        key, rows = tuple(map(int, key)), [*rows]
        with self._lock:
            if rows and not key[0] and (what, *key) not in self._noted:
                self._note(what, key, rows)
                self._write({what: rows, "key": key})

    def summary(self) -> str:
        """The end of a sentence about what was read: counts, and the first rows of each reason."""
        text = account(left_out=self.counts["left_out"], worth_knowing=self.counts["noted"])
        listed = [
            f"{row.file}, line {row.line}: {reason}"
            for reason, rows in self._examples.items()
            for row in rows
        ]
        return text + (f" ({'; '.join(listed)})" if listed else "")

    def _begin(self, key: tuple[int, int], position: Position, step: int) -> None:
        self._begun.add(key)
        self._starts.append((step, position))

    def _note(self, what: str, key: tuple[int, ...], rows: list[LeftOut]) -> None:
        self._noted.add((what, *key))  # type: ignore[arg-type]
        for row in rows:
            self.counts[what][row.reason] += 1
            examples = self._examples[row.reason]
            if len(examples) < LISTED:
                examples.append(row)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def _read(self, identity: dict[str, Any]) -> None:
        entries = _entries(self._path)
        begun, now = next(entries, {}).get("identity") or {}, json.loads(json.dumps(identity))
        if begun != now:
            differing = [name for name in now if begun.get(name) != now[name]]
            raise ValueError(
                f"{self._path} is of a run on other {' and '.join(differing) or 'shards'}; what is "
                "resumed must read the same rows. Restore them, or begin anew in another folder."
            )
        for entry in entries:
            if "position" in entry:
                position = Position.from_list(entry["position"])
                key = position.passed, position.number
                if key not in self._begun:
                    self._begin(key, position, entry["step"])
            for what in ("left_out", "noted"):
                if what in entry and (what, *entry["key"]) not in self._noted:
                    self._note(what, tuple(entry["key"]), [LeftOut(*row) for row in entry[what]])
        self._end_line()

    def _end_line(self) -> None:
        """After a line that a kill cut off, or the next would be lost with it."""
        if self._path is not None:
            with self._path.open("rb+") as file:
                file.seek(-1, 2)
                if file.read() != b"\n":
                    file.write(b"\n")


def _entries(path: pathlib.Path | None) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; one that a kill cut off is passed over."""
    if path is None:
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)
