"""Data whose order follows from a seed and the number of an epoch alone, so that it can be resumed.

Pipelines that count their epochs themselves can only be gone through from the beginning. Those made
of `orders` and `keys` with an `epoch` give the same batches whenever that epoch is asked for, in
any process, and `epochs` joins them into what `fit` reads, from any position on. The journal of a
stream of shards records where each buffer began, and which rows were left out.
"""

import collections
import contextlib
import itertools
import json
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath, Tensor
from keras_transformers.data.shards import LeftOut, Position, Shards
from keras_transformers.data.tables import account


def epochs(
    make: Callable[[tf.Tensor], tf.data.Dataset], steps: int, start: tuple[int, int] = (0, 0)
) -> tf.data.Dataset:
    """The batches of one epoch after the other, without end, for `fit(..., steps_per_epoch=steps)`.

    Args:
        make: Function from the number of an epoch, an int64 scalar tensor, to its finite
            `tf.data.Dataset`. An epoch of fewer batches begins anew, one of more is cut.
        steps: Batches of an epoch.
        start: Epoch and step to begin with; `training.ExactResume.start`. Steps of that epoch which
            are passed over are still prepared.

    Returns:
        A `tf.data.Dataset`.

    Raises:
        ValueError: If `steps` is not positive, or a number of `start` negative.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.streams import epochs
    >>> make = lambda epoch: tf.data.Dataset.range(10 * epoch, 10 * epoch + 3)
    >>> [int(number) for number in epochs(make, 3, start=(1, 2)).take(5).as_numpy_iterator()]
    [12, 20, 21, 22, 30]
    """
    first, passed = start
    if steps < 1 or first < 0 or passed < 0:
        raise ValueError(
            "epochs: `steps` must be positive, the numbers of `start` not negative. "
            f"Received: steps={steps}, start={start}"
        )

    def one(epoch: Any) -> tf.data.Dataset:
        skipped = tf.where(epoch == first, tf.constant(passed, tf.int64), 0)
        return make(epoch).repeat().skip(skipped).take(steps - skipped)

    numbers = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
    return without_autotuning(numbers.flat_map(one).prefetch(8))


def first_or_second(
    take_first: bool | tf.Tensor, first: tf.data.Dataset, second: tf.data.Dataset
) -> tf.data.Dataset:
    """One of two datasets of the same structure, by a condition that may be a tensor.

    Args:
        take_first: Whether it is the first; a bool, or a scalar tensor that is known when the
            dataset begins, as in the function that `epochs` asks for each epoch.
        first, second: The datasets. Nothing is asked of the other one.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.streams import epochs, first_or_second
    >>> low, high = tf.data.Dataset.range(0, 2), tf.data.Dataset.range(7, 9)
    >>> make = lambda epoch: first_or_second(epoch < 1, low, high)
    >>> [int(number) for number in epochs(make, 2).take(4).as_numpy_iterator()]
    [0, 1, 7, 8]
    """
    all_of, none = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    taken = tf.where(take_first, all_of, none), tf.where(take_first, none, all_of)
    return first.take(taken[0]).concatenate(second.take(taken[1]))


def each_row_twice(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Batches in which each row is followed by itself, for `training.RDropCrossEntropy`.

    Args:
        batches: A dataset of tensors, or structures of them, whose first axis is the rows.

    Returns:
        A `tf.data.Dataset` of the same structure, with twice the rows.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.streams import each_row_twice
    >>> batches = each_row_twice(tf.data.Dataset.range(4).batch(2))
    >>> [batch.tolist() for batch in batches.as_numpy_iterator()]
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    return batches.map(
        lambda *batch: tf.nest.map_structure(
            lambda rows: tf.repeat(rows, 2, axis=0), batch if len(batch) > 1 else batch[0]
        )
    )


def orders(
    count: int, size: int, seed: int | None, epoch: int | tf.Tensor | None = None
) -> tf.data.Dataset:
    """The indices 0 .. count - 1 in pieces of `size`, in an order of its own in each epoch.

    Not `Dataset.shuffle`: its order follows from TensorFlow's global seed and from what was read
    before as well.

    Args:
        count: Number of examples.
        size: Number of indices in a piece; the last may have fewer.
        seed: None keeps the order in every epoch.
        epoch: Its number, an integer or a scalar tensor, or several numbers in one tensor. None:
            each iteration is the next epoch.

    Returns:
        `tf.data.Dataset` of int64 `(size,)`.

    Example:
    >>> from keras_transformers.streams import orders
    >>> first = [piece.tolist() for piece in orders(5, 3, 1, epoch=0).as_numpy_iterator()]
    >>> sorted(sum(first, [])), [len(piece) for piece in first]
    ([0, 1, 2, 3, 4], [3, 2])
    """
    if seed is None:
        return tf.data.Dataset.range(count).batch(size)

    def pieces(epoch: Any) -> Iterator[Array]:
        order = np.random.default_rng([seed, *np.atleast_1d(epoch)]).permutation(count)
        return (order[start : start + size] for start in range(0, count, size))

    return of_epoch(pieces, epoch, tf.TensorSpec((None,), tf.int64))


def keys(seed: int, epoch: int | tf.Tensor | None = None) -> tf.data.Dataset:
    """`[seed, epoch, number]` for each element of an epoch, without end: see `Draws` and NumPy.

    Args:
        seed: Not negative.
        epoch: As for `orders`.

    Returns:
        `tf.data.Dataset` of int64 `(3,)`.

    Example:
    >>> from keras_transformers.streams import keys
    >>> [key.tolist() for key in keys(7, epoch=2).take(2).as_numpy_iterator()]
    [[7, 2, 0], [7, 2, 1]]
    """

    def numbered(epoch: Any) -> Iterator[list[int]]:
        return ([seed, int(epoch), number] for number in itertools.count())

    return of_epoch(numbered, epoch, tf.TensorSpec((3,), tf.int64))


def of_epoch(
    generate: Callable[[Any], Iterable[Any]], epoch: Any, signature: tf.TensorSpec
) -> tf.data.Dataset:
    """The dataset of a function from the number of an epoch to what is in it, see `orders`."""
    from_generator = tf.data.Dataset.from_generator
    if epoch is not None:
        return from_generator(generate, output_signature=signature, args=(epoch,))
    count = itertools.count()
    return from_generator(lambda: generate(next(count)), output_signature=signature)


class Draws:
    """Random numbers in TensorFlow's graph that follow from a key, and from nothing else.

    Each call draws others. Stateful random ops in a parallel `map` give each element what is next,
    whichever comes first.

    Args:
        key: Integers `(n,)`, as from `keys`; or None for a random one.

    Example:
    >>> from keras_transformers.streams import Draws
    >>> first, again = (Draws([7, 0, 1]).uniform((3,)).numpy() for _ in range(2))
    >>> bool((first == again).all())
    True
    """

    def __init__(self, key: Tensor | Sequence[int] | None = None) -> None:
        if key is None:
            key = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)
        self._seed = tf.zeros(2, tf.int32)
        for part in tf.unstack(tf.cast(key, tf.int32)):
            self._seed = tf.random.fold_in(self._seed, part)
        self._drawn = 0

    def seed(self) -> tf.Tensor:
        """The next seed for one of TensorFlow's stateless random ops, int32 `(2,)`."""
        self._drawn += 1
        return tf.random.fold_in(self._seed, self._drawn)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = tf.float32
    ) -> tf.Tensor:
        """As `tf.random.uniform`."""
        return tf.random.stateless_uniform(shape, self.seed(), minval, maxval, dtype)


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset whose iterators end at once.

    tf.data's tuner wakes at intervals that double, up to a minute, and an iterator which `fit`
    drops waits for it: a run stood still for half a minute after each validation.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


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
