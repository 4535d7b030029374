"""Sentence pairs of several directions, of which small ones are shown more often than they are."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.streams import of_epoch, orders


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Directions of translation in one list of pairs, those of each behind those of the last.

    An epoch has as many pairs as the list. Direction i, of `n_i` pairs, gets the share
    `n_i^(1/T) / (n_1^(1/T) + n_2^(1/T) + ..)` of them (Arivazhagan et al. 2019,
    https://arxiv.org/abs/1907.05019, section 4.2): all pairs once at a temperature T of 1, as many
    of each direction as T grows. A direction is gone through in one order after another, from epoch
    to epoch, so that no pair comes a second time before all have come.

    So do pairs of several origins, as own ones and such as a machine has translated.

    Args:
        sizes: Pairs of each direction.
        marks: Ids that stand before the sources of each direction, as that of the language that is
            translated to: an id, or a tuple of several or none for each; () where there are none.
        temperature: At least 1.
        weights: How much more often than by its share each direction is shown; () where all are
            shown by their shares.

    Raises:
        ValueError: If a size or weight is not positive, there are not as many marks or weights, or
            the temperature is below 1.

    Example:
    >>> from keras_transformers.text import Mixture
    >>> Mixture((900, 100), temperature=2).counts
    (750, 250)
    """

    sizes: tuple[int, ...]
    marks: tuple[int | tuple[int, ...], ...] = ()
    temperature: float = 1.0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"Mixture: `sizes` must be positive. Received: {self.sizes}")
        if self.marks and len(self.marks) != len(self.sizes):
            raise ValueError(
                f"Mixture: `marks` must be as many as `sizes`, {len(self.sizes)}. "
                f"Received: {self.marks}"
            )
        weights = self.weights or (1.0,) * len(self.sizes)
        if len(weights) != len(self.sizes) or not 0 < min(weights) <= max(weights) < np.inf:
            raise ValueError(
                f"Mixture: `weights` must be positive and as many as `sizes`, {len(self.sizes)}. "
                f"Received: {self.weights}"
            )
        if not self.temperature >= 1:
            raise ValueError(
                f"Mixture: `temperature` must be 1 or more. Received: {self.temperature}"
            )

    @property
    def counts(self) -> tuple[int, ...]:
        """Pairs of each direction in an epoch; their sum is that of `sizes`."""
        sizes = np.array(self.sizes, np.float64)
        shares = (sizes / sizes.max()) ** (1 / self.temperature) * (self.weights or 1.0)
        ends = np.cumsum(shares) / shares.sum() * sizes.sum()
        return tuple(np.diff(np.rint(ends).astype(int), prepend=0).tolist())

    def orders(
        self, size: int, seed: int | None, epoch: int | tf.Tensor | None = None
    ) -> tf.data.Dataset:
        """The numbers of the pairs of an epoch, see `streams.orders`; all once without a seed."""
        if seed is None or self.counts == self.sizes:
            return orders(sum(self.sizes), size, seed, epoch)

        def pieces(epoch: Any) -> Iterator[Array]:
            chosen = self._of_epoch(seed, int(epoch))
            order = np.random.default_rng([seed, int(epoch)]).permutation(chosen)
            return (order[start : start + size] for start in range(0, len(order), size))

        return of_epoch(pieces, epoch, tf.TensorSpec((None,), tf.int64))

    def _of_epoch(self, seed: int, epoch: int) -> Array:
        """The numbers of the pairs of an epoch, direction by direction."""
        parts: list[Array] = []
        starts = np.cumsum((0, *self.sizes[:-1]))
        each = zip(starts, self.sizes, self.counts, strict=True)
        for direction, (start, size, count) in enumerate(each):
            first, last = epoch * count, (epoch + 1) * count  # of one pass after another
            passes = range(first // size, -(-last // size))
            drawn = [np.random.default_rng([seed, direction, i]).permutation(size) for i in passes]
            skipped = first - passes.start * size
            parts.append(start + np.concatenate(drawn or [np.empty(0, int)])[skipped:][:count])
        return np.concatenate(parts)

    def marked(self, sources: tf.RaggedTensor, chosen: tf.Tensor) -> tf.RaggedTensor:
        """Ragged ids of sources with the marks of its direction before each.

        Args:
            sources: `(pairs, None)`.
            chosen: Numbers of the pairs, `(pairs,)`.
        """
        if not self.marks:
            return sources
        ends = tf.constant(np.cumsum(self.sizes), chosen.dtype)
        direction = tf.searchsorted(ends, chosen, side="right")
        listed = [list(each) if isinstance(each, tuple) else [each] for each in self.marks]
        marks = tf.ragged.constant(listed, tf.int32, ragged_rank=1)
        return tf.concat([tf.gather(marks, direction), sources], axis=1)
