"""Data whose order follows from a seed and the number of an epoch alone, so that it can be resumed.

Pipelines that count their epochs themselves can only be gone through from the beginning. Those made
of `orders` and `keys` with an `epoch` give the same batches whenever that epoch is asked for, in
any process, and `epochs` joins them into what `fit` reads, from any position on.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tensor


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
