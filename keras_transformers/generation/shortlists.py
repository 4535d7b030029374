"""The target tokens that may translate a source: a list for each source token, and common ones."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from keras_transformers.annotations import Array, StrPath, Tensor
from keras_transformers.array_files import read_arrays
from keras_transformers.generation.lexical import learn_lexicon
from keras_transformers.generation.request import BLOCK, SMALLEST


class Within(NamedTuple):
    """The tokens that a batch is decoded within.

    Args:
        ids: Integers `(tokens,)`, each once: first padding and what a search names, in its order,
            then the others, increasing; then padding again, as much as makes a common size.
        allowed: Bool `(batch, tokens)`, which of them each row may choose.
    """

    ids: Tensor
    allowed: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Shortlist:
    """For each source token the target tokens that it is likely to be translated by.

    A sentence is then decoded within the lists of its tokens and the most frequent target tokens,
    see `Shortlisted`. What is not listed can never be chosen.

    Args:
        likeliest: int32, the lists of all source tokens one after another.
        splits: Integers `(source_vocab + 1,)`: where each of them begins and ends.
        frequent: int32, target tokens that are in every list.
        vocab_size: Number of target tokens.

    Raises:
        ValueError: If the arrays do not fit one another, or an id is none of the vocabulary.

    Example:
    >>> from keras_transformers.generation import Shortlist
    >>> pairs = [[5, 6], [5], [6]], [[8, 9], [8], [9]]
    >>> shortlist = Shortlist.learn(*pairs, source_vocab=7, vocab_size=10, likeliest=1, frequent=0)
    >>> shortlist.of(5), shortlist.of(6)
    (array([8], dtype=int32), array([9], dtype=int32))
    """

    likeliest: Array
    splits: Array
    frequent: Array
    vocab_size: int

    def __post_init__(self) -> None:
        ids = np.concatenate([self.likeliest, self.frequent])
        rising = self.splits.ndim == 1 and len(self.splits) > 1 and not self.splits[0]
        rising = rising and bool((np.diff(self.splits) >= 0).all())
        if not rising or self.splits[-1] != len(self.likeliest):
            raise ValueError(
                "Shortlist: `splits` must rise from 0 to the number of `likeliest`, "
                f"{len(self.likeliest)}. Received: {self.splits}"
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(
                f"Shortlist: ids must be from 0 to {self.vocab_size - 1}. Received: {ids.min()} to "
                f"{ids.max()}"
            )

    @classmethod
    def learn(
        cls,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        source_vocab: int,
        vocab_size: int,
        likeliest: int = 100,
        frequent: int = 100,
        shared: bool | None = None,
        iterations: int = 5,
    ) -> Self:
        """Learns lists from pairs of sentences, by IBM model 1 (see `lexical.learn_lexicon`).

        Args:
            sources, targets: Lists as long as each other, of ids without marks or padding.
            source_vocab, vocab_size: Numbers of source and of target tokens.
            likeliest: Number of target tokens for each source token, the most probable.
            frequent: Number of target tokens that are in every list, the most frequent.
            shared: Whether both sides have one vocabulary; then each source token is in its own
                list, so that names can be copied. None where both are of one size.
            iterations: Of the model.

        Raises:
            ValueError: If a number is negative, or an id beyond its vocabulary.
        """
        if min(likeliest, frequent) < 0:
            raise ValueError(
                "Shortlist.learn: `likeliest` and `frequent` must not be negative. "
                f"Received: {likeliest} and {frequent}"
            )
        found = learn_lexicon(sources, targets, iterations)
        if found.sources.max() >= source_vocab or found.targets.max() >= vocab_size:
            raise ValueError(
                f"Shortlist.learn: ids must be below {source_vocab} and {vocab_size}. "
                f"Received: {found.sources.max()} and {found.targets.max()}"
            )
        order = np.lexsort((found.targets, -found.probabilities, found.sources))
        source, target = found.sources[order], found.targets[order]
        kept = np.arange(len(source)) - np.searchsorted(source, source) < likeliest
        source, target = source[kept], target[kept]
        if source_vocab == vocab_size if shared is None else shared:
            own = np.arange(min(source_vocab, vocab_size))
            source, target = np.concatenate([source, own]), np.concatenate([target, own])
        each = np.unique(source * vocab_size + target)
        splits = np.searchsorted(each, np.arange(source_vocab + 1) * vocab_size)
        counts = np.bincount(np.concatenate([np.asarray(row, int) for row in targets]))
        most = np.lexsort((np.arange(len(counts)), -counts))[:frequent]
        most = np.sort(most[counts[most] > 0]).astype(np.int32)
        return cls((each % vocab_size).astype(np.int32), splits, most, vocab_size)

    @property
    def source_vocab(self) -> int:
        """Number of source tokens."""
        return len(self.splits) - 1

    def of(self, token: int) -> Array:
        """The list of a source token, int32, increasing."""
        return self.likeliest[self.splits[token] : self.splits[token + 1]]

    def save(self, path: StrPath) -> None:
        """Writes an `.npz`."""
        with open(path, "wb") as file:
            np.savez_compressed(file, **dataclasses.asdict(self))

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Reads what `save` has written; it need not be trusted.

        Raises:
            ValueError: If the file holds no shortlist.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        try:
            arrays = read_arrays(path)
            likeliest, splits, frequent, vocab_size = (arrays[name] for name in names)
        except (KeyError, ValueError) as error:
            raise ValueError(f"Shortlist.load: {path} is no shortlist: {error}") from None
        found = (likeliest, splits, frequent, vocab_size)
        shapes = [(array.dtype.kind, array.ndim) for array in found]
        if shapes != [("i", 1)] * 3 + [("i", 0)]:
            raise ValueError(f"Shortlist.load: {path} is no shortlist: it holds {shapes}")
        return cls(likeliest, splits, frequent, int(vocab_size))

    def within(self, source: Array, named: Sequence[int], given: Array | None = None) -> Within:
        """The tokens that a batch is decoded within.

        Args:
            source: Integers `(batch, length)`.
            named: Padding and what a search names: they are in every list, in this order.
            given: Integers `(batch, number)`, target tokens that each row may choose besides.

        Returns:
            A `Within` of one of the sizes of `list_sizes`.
        """
        rows, ids = self._rows(source)
        if given is not None:
            real = np.nonzero(given >= 0)
            rows, ids = np.append(rows, real[0]), np.append(ids, given[real])
        always = np.zeros(self.vocab_size, bool)
        always[[token for token in (*named, *self.frequent) if token >= 0]] = True
        present = always.copy()
        present[ids] = True
        present[[token for token in named if token >= 0]] = False
        listed = np.concatenate([np.asarray(named, np.int64), np.flatnonzero(present)])
        positions = np.zeros(self.vocab_size, np.int64)
        positions[listed[1:]] = np.arange(1, len(listed))
        size = list_size(len(listed), self.vocab_size)
        allowed = np.zeros((len(source), size), bool)
        allowed[:, : len(listed)] = always[listed] & (listed >= 0)
        allowed[rows, positions[ids]] = True
        padding = (0, size - len(listed))
        return Within(np.pad(listed, padding, constant_values=named[0]).astype(np.int32), allowed)

    def _rows(self, source: Array) -> tuple[Array, Array]:
        """The lists of all tokens of a batch one after another, and the row of each token there."""
        flat = np.asarray(source, np.int64).reshape(-1)
        rows = np.repeat(np.arange(len(source)), source.shape[1])
        real = (flat >= 0) & (flat < self.source_vocab)
        flat, rows = flat[real], rows[real]
        lengths = self.splits[flat + 1] - self.splits[flat]
        first = self.splits[flat] - (np.cumsum(lengths) - lengths)
        return np.repeat(rows, lengths), self.likeliest[
            np.repeat(first, lengths) + np.arange(lengths.sum())
        ]


def list_size(number: int, vocab_size: int) -> int:
    """As many tokens as a list of `number` has with padding: each size compiles anew."""
    sizes = list_sizes(vocab_size)
    return sizes[np.searchsorted(sizes, number)]


def list_sizes(vocab_size: int) -> list[int]:
    """512, 1,024, 2,048 and so on, and what holds a whole vocabulary, with padding before it."""
    whole = -(-(vocab_size + 1) // BLOCK) * BLOCK
    sizes = [SMALLEST]
    while sizes[-1] < whole:
        sizes.append(min(2 * sizes[-1], whole))
    return sizes
