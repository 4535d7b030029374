"""Parallel text from files, with every line that is left out counted, and mixtures of corpora.

A mixture shows small corpora more often than they are.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tokenizer
from keras_transformers.core.words import in_context, without_context
from keras_transformers.data.splits import held_out
from keras_transformers.data.streams import of_epoch, orders
from keras_transformers.data.table_files import PAIRS, Chosen, Column, ending
from keras_transformers.data.tables import account, read_rows
from keras_transformers.text.tokenizers import with_room

DOCUMENT = Column(("document", "doc", "talk"))


@dataclasses.dataclass(frozen=True)
class PairCorpus:
    """Sentence pairs, and an account of what was read and left out.

    Args:
        name: Where the pairs come from, for messages.
        sources, targets: Lists of str of one length.
        lines: Number of lines (or examples) read.
        left_out: Dict of reason -> number of lines left out.
        noted: Dict of reason -> number of pairs kept that deserve a look.

    Example:
    >>> from keras_transformers.text import PairCorpus
    >>> PairCorpus.from_pairs("toy", [("a cat", "eine Katze"), ("", "leer")]).summary()
    'toy: 1 pairs kept of 2 lines; left out: 1 with an empty side'
    """

    name: str
    sources: list[str]
    targets: list[str]
    lines: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    noted: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def from_pairs(
        cls,
        name: str,
        pairs: Iterable[tuple[str, str]],
        left_out: Mapping[str, int] | None = None,
        lines: int | None = None,
        drop_equal: bool = False,
        max_length: int | None = None,
    ) -> Self:
        """Makes a corpus of an iterable of (source, target) str, after looking at each pair.

        Args:
            name: Where the pairs come from, for messages.
            pairs: Iterable of (source, target).
            left_out: Dict of reason -> number of lines that were left out before.
            lines: Number of lines read; by default the number of pairs.
            drop_equal: Whether to leave out pairs whose sides are equal; they are counted anyway.
            max_length: Most characters on a side; None keeps all.

        Returns:
            A `PairCorpus`.

        Raises:
            ValueError: If no pair is usable.
        """
        left_out = collections.Counter(left_out)
        noted: collections.Counter[str] = collections.Counter()
        sources, targets = [], []
        read = 0
        for source, target in pairs:
            read += 1
            source, target = source.strip(), target.strip()
            if not source or not target:
                left_out["with an empty side"] += 1
            elif max_length is not None and max(len(source), len(target)) > max_length:
                left_out[f"over {max_length:,} characters"] += 1
            elif _same(source, target) and drop_equal:
                left_out["with source equal to target"] += 1
            else:
                if _same(source, target):
                    noted["with source equal to target"] += 1
                sources.append(source)
                targets.append(target)
        corpus = cls(name, sources, targets, lines or read, dict(left_out), dict(noted))
        if not sources:
            wide = any("more than two columns" in reason for reason in left_out)
            named = "; or `columns` must say which two" if wide else ""
            raise ValueError(
                f"{corpus.summary()}. There is nothing to learn from: each line must hold a source "
                f"sentence, a tab and its translation, in UTF-8{named}."
            )
        return corpus

    def select(self, positions: Iterable[int]) -> Self:
        """The pairs at these positions, as a corpus."""
        pairs = [(self.sources[i], self.targets[i]) for i in positions]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        return dataclasses.replace(self, sources=sources, targets=targets)

    def split(self, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: what is learned from, and what `splits.held_out` chooses by the sources.

        What was left out is told by the whole.
        """
        chosen = held_out(without_context(self.sources), seed)
        first, second = (self.select(np.flatnonzero(part)) for part in (~chosen, chosen))
        return first._alone(), second._alone()

    def _alone(self) -> Self:
        return dataclasses.replace(self, lines=len(self), left_out={}, noted={})

    def head(self, number: int) -> Self:
        """The first `number` pairs, as a corpus."""
        return dataclasses.replace(
            self, sources=self.sources[:number], targets=self.targets[:number]
        )

    def spread(self, number: int) -> Self:
        """Returns a corpus of at most `number` pairs, taken at even distances.

        Raises:
            ValueError: If `number` is not positive.
        """
        if number < 1:
            raise ValueError(f"spread: `number` must be positive. Received: {number}")
        count = min(number, len(self))
        return self.select(i * len(self) // count for i in range(count))

    def without_long(
        self,
        tokenizer: Tokenizer | tuple[Tokenizer, Tokenizer],
        source_length: int,
        target_length: int,
    ) -> Self:
        """Leaves out pairs of more than so many ids on a side, and counts them.

        Of previous sentences the oldest are left out before the pair is.

        Args:
            tokenizer: A `SentencePieceTokenizer`, or a pair of them, for sources and targets.
            source_length, target_length: Most ids on a side, END counted, START not: what `packed`
                and `bucketed` have room for.

        Returns:
            A `PairCorpus`. (With `sample=`, a sentence can still get more ids than counted here.)

        Raises:
            ValueError: If no pair remains.
        """
        tokenizers = tokenizer if isinstance(tokenizer, (tuple, list)) else (tokenizer, tokenizer)
        sources = with_room(self.sources, tokenizers[0], source_length)
        sizes = [
            of.tokenize(side, end=True).row_lengths().numpy()
            for of, side in zip(tokenizers, (sources, self.targets), strict=True)
        ]
        kept = (sizes[0] <= source_length) & (sizes[1] <= target_length)
        number = int((~kept).sum())
        three = zip(sources, self.targets, kept, strict=True)
        same = sum(_same(source, target) for source, target, keep in three if keep)
        less = zip(sources, self.sources, kept, strict=True)
        noted = {
            "with source equal to target": same,
            "with fewer previous sentences": sum(a != b for a, b, keep in less if keep),
        }
        reason = f"over {source_length} source or {target_length} target pieces"
        left_out = collections.Counter(self.left_out) + collections.Counter({reason: number})
        if number == len(self):
            raise ValueError(f"{self.name}: every pair is {reason}; allow longer rows.")
        return dataclasses.replace(
            self,
            sources=[text for text, keep in zip(sources, kept, strict=True) if keep],
            targets=[text for text, keep in zip(self.targets, kept, strict=True) if keep],
            left_out=dict(left_out),
            noted=dict(+collections.Counter(noted)),
        )

    def summary(self) -> str:
        """One line: pairs kept, and what was left out or is worth a look, with numbers."""
        line = f"{self.name}: {len(self):,} pairs kept of {self.lines:,} lines"
        return line + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)


def read_pairs(
    data: Any,
    max_length: int | None = None,
    drop_equal: bool = False,
    columns: Chosen = None,
    context: int = 0,
) -> PairCorpus:
    r"""Reads a file of `source TAB target` lines in UTF-8, plain or packed (`.gz`, `.xz`).

    Or a `.csv`, `.jsonl` or `.parquet` file, or what is in memory, whose columns are `source` and
    `target`, have other usual names, or are two. Blank lines, lines without a tab or with more than
    one, invalid UTF-8 and pairs with an empty side are left out and counted; a pair whose sides are
    equal is kept and counted.

    Args:
        data: Path of the file, a DataFrame, a dataset, a list of pairs ...; see `tables.read_rows`.
        max_length: Most characters on a side; None keeps all (see also
            `PairCorpus.without_long`, which counts ids).
        drop_equal: Whether to leave out pairs whose sides are equal.
        columns: Names, or positions from 0, of source and target, where they have others. With
            `context` a third can be what tells documents apart, the same in all rows of one.
        context: Number of previous sources that stand before each in its document, at most, as
            `contexts.in_context` writes them. Rows are then in the order of documents; each line
            that is left out, as an empty one, ends a document. A `.csv` file needs the third
            column; without it, `.parquet` and what is in memory are one document.

    Returns:
        A `PairCorpus`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as such, or holds no usable pair; or `context` is negative.
        TypeError: If `data` is no table.

    Example:
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.tsv"
    >>> _ = path.write_text("a cat\teine Katze\n\nno tab\nOK\tOK\n", encoding="utf-8")
    >>> print(read_pairs(path).summary())
    toy.tsv: 2 pairs kept of 4 lines; left out: 1 blank, 1 without a tab; kept but worth knowing: 1
    with source equal to target
    """
    if context < 0:
        raise ValueError(f"read_pairs: `context` must be 0 or more. Received: {context}")
    documents = context > 0 and isinstance(columns, tuple | list) and len(columns) == 3
    rows = read_rows(data, (*PAIRS, DOCUMENT) if documents else PAIRS, "source TAB target", columns)
    pairs = _in_documents(rows, context) if context else ((s, t) for _, (s, t) in rows.kept)
    return PairCorpus.from_pairs(rows.name, pairs, rows.left_out, rows.read, drop_equal, max_length)


def _in_documents(rows: Any, context: int) -> Iterator[tuple[str, str]]:
    """Sources with those before them in their documents, and targets."""
    is_csv = ending(rows.name) == ".csv"  # its rows go over lines, and gaps in numbers mean nothing
    previous: list[str] = []
    last: tuple[int, list[str]] = 0, []
    for number, (source, target, *document) in rows.kept:
        if is_csv and not document:
            raise ValueError(
                f"{rows.name}: `context` needs a column that tells documents apart; name three "
                "`columns`: source, target and document."
            )
        whole = bool(source.strip() and target.strip())
        if document != last[1] or not is_csv and number != last[0] + 1 or not whole:
            previous = []
        yield (in_context(source, previous) if whole else source), target
        previous = [*previous, source][-context:] if whole else []
        last = number, document


def _same(source: str, target: str) -> bool:
    return without_context([source]) == [target]


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
