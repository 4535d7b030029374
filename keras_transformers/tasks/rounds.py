"""Computation of requests of any size: in rounds, by XLA or by TensorFlow's own kernels."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.core.backend import portable
from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Sampling,
    Shortlisted,
    Speculative,
)
from keras_transformers.generation.search import Search

LARGEST_BATCH = 64  # a larger request takes several rounds


class Rounds:
    """The base of the two ways to compute requests; a subclass chooses the sizes of batches.

    An exporter writes its arithmetic once, as functions of a batch, and passes them to `run`,
    `run_by_length` and `program`.
    """

    compiled = False  # whether XLA compiles the programs
    # Stages of a search, see `generation.decode`. None if nothing is compiled: then rows leave the
    # batch when half of them are finished.
    stages: int | None = None

    def __init__(self) -> None:
        self._programs: dict[Callable[..., Any], Callable[..., Any]] = {}

    def run(
        self,
        compute: Callable[..., dict[str, tf.Tensor]],
        inputs: Sequence[Any],
        results: dict[str, tf.TensorSpec],
    ) -> dict[str, tf.Tensor]:
        """Computes any number of rows.

        Args:
            compute: Function of as many tensors as `inputs`, of one round, that gives a dict of
                tensors with as many rows.
            inputs: List of tensors, or RaggedTensors, with the same number of rows.
            results: Dict of the names of the results to `tf.TensorSpec`s, without a batch size.

        Returns:
            Dict of the results of all rows.
        """
        first = inputs[0]
        rows = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
        batch = tf.cast(rows, tf.int32)
        size = self.round_size(batch)
        rounds = (batch + size - 1) // size
        arrays = {
            name: tf.TensorArray(spec.dtype, rounds, infer_shape=False, element_shape=spec.shape)
            for name, spec in results.items()
        }

        def one_round(i: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, Any]:
            rows = tf.minimum(size, batch - i * size)
            # Copies of the last row fill the rest of a round.
            numbers = i * size + tf.range(size if self.compiled else rows)
            numbers = tf.minimum(numbers, batch - 1)
            outputs = compute(*(tf.gather(x, numbers) for x in inputs))
            return i + 1, {name: x.write(i, outputs[name][:rows]) for name, x in arrays.items()}

        # A Python loop over `tf.range` would need AutoGraph, which rewrites the source of all
        # functions that are called: half of the time of an export.
        _, arrays = tf.while_loop(lambda i, _: i < rounds, one_round, (0, arrays))
        return {name: array.concat() for name, array in arrays.items()}

    def run_by_length(
        self,
        compute: Callable[..., dict[str, tf.Tensor]],
        ids: tf.RaggedTensor,
        results: dict[str, tf.TensorSpec],
        *further: tf.RaggedTensor | tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Computes rows of nearly the same length together, and returns them in their order.

        Args:
            compute, results: As `run` takes them.
            ids: The first input of `compute`.
            *further: Further inputs of `compute`. The length of a row is the greatest of its
                lengths in the inputs that are ragged.
        """
        inputs = (ids, *further)
        ragged = [x for x in inputs if isinstance(x, tf.RaggedTensor)]
        lengths = tf.reduce_max([x.row_lengths() for x in ragged], axis=0)
        order = tf.argsort(lengths, stable=True)
        outputs = self.run(compute, [tf.gather(x, order) for x in inputs], results)
        back = tf.argsort(order)
        return {name: tf.gather(output, back) for name, output in outputs.items()}

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function in the form in which it runs."""
        raise NotImplementedError

    def round_size(self, batch: tf.Tensor) -> tf.Tensor:
        """Returns the rows of a round for a request of `batch` rows (int32 scalar)."""
        raise NotImplementedError

    def padded(self, ids: tf.RaggedTensor, lengths: Sequence[int], padding: int = 0) -> tf.Tensor:
        """Returns ragged rows as a dense tensor."""
        raise NotImplementedError


class CompiledRounds(Rounds):
    """A few lengths and batch sizes, each of which XLA compiles when it is first used."""

    compiled = True
    stages = 1

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that XLA compiles."""
        if function not in self._programs:
            self._programs[function] = tf.function(function, jit_compile=True, autograph=False)
        return self._programs[function]

    def round_size(self, batch: tf.Tensor) -> tf.Tensor:
        """Returns a power of two, at most 64, for a request of `batch` rows (int32 scalar)."""
        powers = tf.constant([1 << i for i in range(31)])
        enough = tf.reduce_min(tf.boolean_mask(powers, powers >= batch))  # 1 for 0
        return tf.minimum(LARGEST_BATCH, enough)

    def padded(self, ids: tf.RaggedTensor, lengths: Sequence[int], padding: int = 0) -> tf.Tensor:
        """Returns ragged rows as a dense tensor, padded to the first sufficient length."""
        lengths = tf.constant(lengths, tf.int64)
        which = tf.searchsorted(lengths, [tf.reduce_max(ids.row_lengths())])[0]
        enough = tf.gather(lengths, which)
        dense = ids.to_tensor(padding)
        short = tf.cast(enough, tf.int32) - tf.shape(dense)[1]
        return tf.pad(dense, [[0, 0], [0, short]], constant_values=padding)


class PortableRounds(Rounds):
    """The true lengths and batch sizes, by TensorFlow's own kernels: nothing is compiled."""

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function whose layers use those kernels, traced once for all signatures."""
        if function in self._programs:
            return self._programs[function]

        def run(*arguments: Any) -> Any:
            with portable(TensorFlowKernels()):
                return function(*arguments)

        # A function that is not inlined is prepared when it is first used. So a request does not
        # wait for the program of another size, which is traced apart.
        attributes = {"_noinline": True}
        program = tf.function(run, autograph=False, experimental_attributes=attributes)
        self._programs[function] = program
        return program

    def round_size(self, batch: tf.Tensor) -> tf.Tensor:
        """Returns the rows of a round, at most 64, for a request of `batch` rows."""
        return tf.clip_by_value(batch, 1, LARGEST_BATCH)

    def padded(self, ids: tf.RaggedTensor, lengths: Sequence[int], padding: int = 0) -> tf.Tensor:
        """Returns ragged rows as a dense tensor, as long as the longest row."""
        return ids.to_tensor(padding)


def exportable_search(owner: str, search: Search) -> Search:
    """Returns a search that can be exported; ValueError if it has a second model or a list."""
    if isinstance(search, Speculative):
        raise ValueError(
            f"{owner}: `search` must be of one model. Received: Speculative, whose draft an export "
            "would not hold"
        )
    if isinstance(search, Shortlisted):
        raise ValueError(f"{owner}: `search` must be none of a list; give `shortlist` beside it.")
    return search


def plain_search(search: Search) -> Search:
    """Returns the search without its short lists."""
    return search.search if isinstance(search, Shortlisted) else search


def is_seeded(search: Search) -> bool:
    """Returns True if a search draws by a seed."""
    search = plain_search(search)
    return isinstance(search, Sampling) and search.seed is not None


def changed_search(
    owner: str,
    old_search: Search,
    search: Search | None = None,
    seed: int | None = None,
    n_best: int | None = None,
) -> Search:
    """Returns a search with other settings.

    Args:
        owner: Name of the calling class or function, for messages.
        old_search: The search to change.
        search: A search in its place, which takes its boundaries, and its constraints if it has
            none of its own.
        seed: Seed of the samples of `Sampling`.
        n_best: Number of sequences of each source.

    Raises:
        ValueError: If there is a `seed` and the search draws nothing, or `n_best` is more than 1
            and the search gives one sequence alone.
    """
    changed: Any = old_search
    if search is not None:
        constraints = search.constraints
        default = Constraints()
        if constraints == default:
            constraints = old_search.constraints
        elif constraints.boundaries == default.boundaries:
            boundaries = old_search.constraints.boundaries
            constraints = dataclasses.replace(constraints, boundaries=boundaries)
        changed = exportable_search(owner, search)
        changed = dataclasses.replace(changed, constraints=constraints)
    if seed is not None:
        if not isinstance(changed, Sampling):
            raise ValueError(
                f"{owner}: `seed` must be None for a search that draws nothing. Received: {seed}"
            )
        if seed < 0:
            raise ValueError(f"{owner}: `seed` must be 0 or more. Received: {seed}")
        changed = dataclasses.replace(changed, seed=seed)
    if n_best is None:
        return changed
    if isinstance(changed, Greedy) and n_best > 1:
        raise ValueError(
            f"{owner}: `n_best` must be 1 for `Greedy`, which finds one sequence. "
            f"Received: {n_best}"
        )
    if n_best < 1:
        raise ValueError(f"{owner}: `n_best` must be 1 or more. Received: {n_best}")
    if isinstance(changed, BeamSearch):
        beams = max(changed.beam_size, n_best)
        return dataclasses.replace(changed, n_best=n_best, beam_size=beams)
    if isinstance(changed, Sampling):
        return dataclasses.replace(changed, num_samples=n_best)
    return changed


def sequences_of(search: Search) -> int:
    """Returns the number of sequences that a search gives for each source."""
    search = plain_search(search)
    return search.n_best if isinstance(search, BeamSearch) else search.beams


def uniform(
    search: Search, max_length: Any, rows: tf.Tensor, seed: tf.Tensor | None = None
) -> tf.Tensor | None:
    """Returns the random numbers of `Sampling`, `(batch, max_length, samples)`, or None.

    With a seed they follow from a row's number and the position alone, not from other rows.

    Args:
        search: The search.
        max_length: Number of positions.
        rows: Numbers of the rows in their request, integers `(batch,)`.
        seed: int64 in place of the seed of the search.
    """
    search = plain_search(search)
    if not isinstance(search, Sampling):
        return None
    samples = search.beams
    if search.seed is None:
        # Not `tf.random.uniform`: where a global seed is set, as training does, it writes one into
        # the graph, and the numbers are the same after every load.
        shape = tf.stack([tf.shape(rows)[0], max_length, samples])
        return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32, seed=0, seed2=0)
    seed = tf.constant(search.seed, tf.int64) if seed is None else tf.convert_to_tensor(seed)
    return tf.map_fn(
        lambda row: tf.random.stateless_uniform([max_length, samples], tf.stack([seed, row])),
        tf.cast(rows, tf.int64),
        fn_output_signature=tf.TensorSpec([None, samples], tf.float32),
    )


FEW = 8  # most rows that count as few, such as the beams of one sentence
SPLIT = 1 << 18  # numbers of a kernel; from this size on, two halves are faster than the whole


class TensorFlowKernels:
    """The `core.backend.Kernels` of operations that every TensorFlow from 2.19 on has.

    The times in the comments are of two cores of an Intel Xeon with AVX-512 and oneDNN.
    """

    def update_slice(self, x: tf.Tensor, start: Any, new: tf.Tensor) -> tf.Tensor:
        stop = start + new.shape[2]
        return tf.raw_ops.TensorStridedSliceUpdate(
            input=x,
            begin=[0, 0, start, 0],
            end=[0, 0, stop, 0],
            strides=[1, 1, 1, 1],
            value=new,
            begin_mask=0b1011,
            end_mask=0b1011,
        )

    def product(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        is_small = x.shape[0] in range(1, FEW + 1)
        if not is_small or kernel.shape.num_elements() < SPLIT or x.shape[1] % 2:
            return tf.matmul(x, kernel)
        # One core multiplies one row, and waits for memory. Two cores multiply the halves of the
        # kernel, which are no copies: 120 instead of 240 us for 512 x 2,048.
        half = x.shape[1] // 2
        return tf.matmul(x[:, :half], kernel[:half]) + tf.matmul(x[:, half:], kernel[half:])

    def table_product(self, x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        if x.shape[0] == 1:
            return tf.matmul(x, table, transpose_b=True)
        y = tf.matmul(table, x, transpose_b=True)
        if x.shape[0] in range(2, FEW + 1):
            return tf.stack(tf.unstack(y, axis=1))  # as in `swap`
        return _transposed(y)

    def batch_product(self, x: tf.Tensor, y: tf.Tensor, transposed: bool = False) -> tf.Tensor:
        is_small = x.shape[2] == 1 or x.shape[0] == 1 and x.shape[2] in range(2, FEW + 1)
        if is_small and x.dtype == tf.float32:
            # A oneDNN kernel takes 35 us to start, and there is none for this version: 5 instead of
            # 40 us for four beams of one sentence. (From some 100 keys of 64 numbers on oneDNN is
            # faster, but a check at every step would cost more.)
            return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transposed)
        return tf.matmul(x, y, transpose_b=transposed)

    def swap(self, x: tf.Tensor) -> tf.Tensor:
        for axis in (1, 2):
            if x.shape[axis] in range(1, FEW + 1):
                # 20 instead of 80 us for four beams of one sentence: oneDNN's starts again.
                return tf.stack(tf.unstack(x, axis=axis), axis=3 - axis)
        return tf.transpose(x, (0, 2, 1, 3))

    def softmax(self, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        # Once for all layers that share a mask: TensorFlow's broadcasting `where` takes 10 us.
        scores = scores + tf.where(mask, tf.constant(0, scores.dtype), -1e38)
        if scores.shape[0] == 1 or scores.shape[2] == 1:
            weights = tf.exp(tf.nn.log_softmax(scores))  # 2 instead of 28 us: oneDNN's starts again
        else:
            weights = tf.nn.softmax(scores)
        has_keys = tf.reduce_any(mask, axis=-1, keepdims=True)
        return weights * tf.cast(has_keys, weights.dtype)


def _transposed(x: tf.Tensor) -> tf.Tensor:
    """Transposes a matrix as integers of the same bits: oneDNN would take 90 us to start."""
    if x.dtype != tf.float32:
        return tf.transpose(x)
    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32)), tf.float32)
