"""Batches of a stream of shards, from any step on.

The journal of a stream records where each buffer began, and which rows were left out.
"""

import collections
import contextlib
import json
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath
from keras_transformers.data.shards import LeftOut, Position, Shards
from keras_transformers.data.streams import without_autotuning
from keras_transformers.data.tables import account

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


CHUNK = 8192  # rows that are encoded at a time
MANY = 1_000_000  # more buffers than a pass has


class Encoded(NamedTuple):
    """What became of the rows of a chunk.

    Attributes:
        chunk: Tensors or ragged tensors, of the rows that are kept.
        left_out: Dict of reason -> bool `(rows,)`: which of all rows are left out for it.
        noted: The same of rows that are kept.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.shards import Encoded
    >>> lengths = tf.constant([3, 0, 2])
    >>> encoded = Encoded(lengths[lengths > 0], left_out={"empty": lengths == 0})
    >>> encoded.chunk.numpy().tolist()
    [3, 2]
    """

    chunk: Any
    left_out: Mapping[str, tf.Tensor] = {}
    noted: Mapping[str, tf.Tensor] = {}


class ShardStream:
    r"""Endless batches of shards, which a killed run enters again where it was.

    A buffer of rows is encoded in chunks of 8,192, on several cores at a time, in their order, and
    arranged to batches; the last of a buffer are filled up, and the next begins with its own.
    The batches follow from the shards and the seeds alone. A journal keeps the step with which each
    buffer began: to go on at a step, the buffer that holds it is read and encoded again up to
    there, and nothing before it.

    Rows that are left out are counted in the journal, with file and line.

    Args:
        shards: The `Shards`.
        encode: Function of `(key, *columns)` in TensorFlow's graph that gives an `Encoded`. The
            key, int64 `(3,)`, is the chunk's own, for random draws; columns are strings `(rows,)`,
            or what `signature` says.
        arrange: Function of a finite `tf.data.Dataset` of chunks, and of a number of its own as
            `epoch`, that gives the `tf.data.Dataset` of batches, as `text.packed` does.
        journal: File to keep the journal in, or None.
        signature: For each column a `tf.TypeSpec`; by default strings.
        workers: Chunks that are encoded at a time; by default one for each core, at most 8.

    Raises:
        ValueError: If the journal is of other shards.

    Example:
    >>> import pathlib, tempfile, tensorflow as tf
    >>> from keras_transformers.shards import Encoded, Shards, ShardStream
    >>> from keras_transformers.tables import Column
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.tsv").write_text("1\n2\n\n3\n")
    >>> shards = Shards.find(f"{folder}/*.tsv", [Column(("number",))], seed=None)
    >>> def encode(key, texts):
    ...     numbers = tf.strings.to_number(texts)
    ...     return Encoded(numbers[numbers < 3], {"over 2": numbers >= 3})
    >>> stream = ShardStream(shards, encode, lambda chunks, epoch: chunks.unbatch().batch(2))
    >>> [batch.tolist() for batch in stream.batches(start=1).take(2).as_numpy_iterator()]
    [[1.0, 2.0], [1.0, 2.0]]
    >>> stream.journal.counts["left_out"]["over 2"]
    1
    """

    def __init__(
        self,
        shards: Shards,
        encode: Callable[..., Encoded],
        arrange: Callable[[tf.data.Dataset, tf.Tensor], tf.data.Dataset],
        journal: StrPath | None = None,
        signature: Sequence[tf.TypeSpec] | None = None,
        workers: int | None = None,
    ) -> None:
        self.shards, self.encode, self.arrange = shards, encode, arrange
        self.journal = Journal(journal, shards.identity())
        texts = [tf.TensorSpec((None,), tf.string)] * len(shards.columns)
        self.signature = tuple(signature or texts)
        self.workers = workers or min(_cores(), 8)

    def keep_journal(self, path: StrPath) -> None:
        """Keeps the journal in a file, from which the stream goes on if there is one.

        Raises:
            ValueError: If the file is of other shards.
        """
        self.journal = Journal(path, self.shards.identity())

    def batches(self, start: int = 0) -> tf.data.Dataset:
        """The batches from a step on, without end.

        Args:
            start: Number of the first batch, from 0.

        Returns:
            A `tf.data.Dataset`.
        """
        position, first = self.journal.before(start)
        begun: dict[tuple[int, int], Position] = {}

        def blocks() -> Iterator[tuple[Any, ...]]:
            for block in self.shards.blocks(position):
                key = (block.position.passed, block.position.number)
                begun[key] = block.position
                self.journal.note("left_out", (*key, -1), block.left_out)
                if len(block.origins):
                    columns = map(self._array, self.signature, block.columns)
                    yield (np.array(key), block.origins, *columns)

        def begins(key: Array, step: Array) -> None:
            self.journal.begins(begun[int(key[0]), int(key[1])], int(step))

        def passed_on(step: tf.Tensor, element: Any) -> Any:
            key, number, batch = element
            _call_if(number == 0, begins, key, step)
            return batch

        origins = tf.TensorSpec((None, 2), tf.int64)
        signature = (tf.TensorSpec((2,), tf.int64), origins, *self.signature)
        read = tf.data.Dataset.from_generator(blocks, output_signature=signature).prefetch(1)
        batches = read.flat_map(self._of_block).enumerate(first).map(passed_on)
        return without_autotuning(batches.skip(start - first).prefetch(8))

    def _of_block(self, key: tf.Tensor, *columns: tf.Tensor) -> tf.data.Dataset:
        """Batches of a buffer, each with the buffer's key and its number in it."""

        def encode(number: tf.Tensor, columns: Any) -> Any:
            origins, *columns = columns
            own = tf.concat([key, [number]], 0)
            encoded = self.encode(own, *columns)
            self._note("left_out", encoded.left_out, own, origins)
            self._note("noted", encoded.noted, own, origins)
            return encoded.chunk

        chunks = tf.data.Dataset.from_tensor_slices(columns).batch(CHUNK).enumerate()
        chunks = chunks.map(encode, self.workers, deterministic=True).prefetch(1)
        batches = self.arrange(chunks, key[0] * MANY + key[1])
        return batches.enumerate().map(lambda number, batch: (key, number, batch))

    def _note(
        self, what: str, reasons: Mapping[str, tf.Tensor], key: tf.Tensor, origins: tf.Tensor
    ) -> None:
        for number, (reason, rows) in enumerate(reasons.items()):

            def note(
                key: Array, origins: Array, reason: str = reason, number: int = number
            ) -> None:
                parts = self.shards.parts
                listed = [LeftOut(parts[part].name, int(line), reason) for part, line in origins]
                self.journal.note(what, (*key, number), listed)

            chosen = tf.boolean_mask(origins, rows)
            _call_if(tf.size(chosen) > 0, note, key, chosen)

    @staticmethod
    def _array(spec: tf.TypeSpec, values: list[Any]) -> Array:
        """A column; of strings as objects, or all would take the room of the longest."""
        return np.array(values, object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)

    def summary(self) -> str:
        """One line: how many shards, and what was left out of the first pass so far."""
        counted = self.journal.summary() or "; nothing left out so far"
        return f"{self.shards.name}{counted}"


def _call_if(condition: tf.Tensor, function: Callable[..., None], *arguments: tf.Tensor) -> None:
    """Calls a Python function in a graph; what it does stays, though nothing comes of it."""

    def call(*arrays: Array) -> Array:
        function(*arrays)
        return np.zeros((), np.int64)

    tf.cond(
        condition,
        lambda: tf.numpy_function(call, arguments, tf.int64),
        lambda: tf.constant(0, tf.int64),
    )


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
