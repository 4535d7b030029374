"""Shortlists: the target words that a source can have, and logits of those alone."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
from keras import ops

from keras_transformers.core.types import Array, BackPointers, Index, StrPath, Tensor
from keras_transformers.data.array_files import read_arrays
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.request import (
    BLOCK,
    MASKED,
    SMALLEST,
    Decodable,
    Decoded,
    Request,
    padding_of,
    vocabularies_of,
)
from keras_transformers.generation.search import Greedy, Search, Step
from keras_transformers.generation.speculative import Speculative

AT_ONCE = 1 << 22  # pairs of tokens that are in memory as floats together


class Lexicon(NamedTuple):
    """Probabilities of all pairs of tokens that occur in one pair of sentences.

    Args:
        sources, targets: int64 `(pairs,)`, ids, sorted by the source, then by the target.
        probabilities: float64 `(pairs,)`: `t(target | source)`, which sum to 1 for each source.
    """

    sources: Array
    targets: Array
    probabilities: Array


def learn_lexicon(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], iterations: int = 5
) -> Lexicon:
    """IBM model 1: expectation and maximisation from equal probabilities on.

    Each target token comes from one token of the source, or from none (Brown et al. 1993,
    https://aclanthology.org/J93-2003, section 4.1). The order of tokens says nothing. It holds 4
    bytes for each pair of a source and a target token in one pair of sentences.

    Args:
        sources, targets: Lists as long as each other, of ids without marks or padding.
        iterations: Number of iterations.

    Returns:
        A `Lexicon`.

    Raises:
        ValueError: If the lists differ in length, hold no tokens, or `iterations` is not positive.

    Example:
    >>> from keras_transformers.generation.shortlists import learn_lexicon
    >>> found = learn_lexicon([[5, 6], [5]], [[8, 9], [8]], iterations=9)
    >>> [(int(s), int(t)) for s, t, p in zip(*found) if p > 0.6]
    [(5, 8), (6, 9)]
    """
    if len(sources) != len(targets) or iterations < 1:
        raise ValueError(
            "learn_lexicon: `sources` and `targets` must be as long as each other, and `iterations`"
            f" positive. Received: {len(sources)} and {len(targets)}, iterations={iterations}"
        )
    left, right = _Sentences(sources), _Sentences(targets)
    if not left.ids.size or not right.ids.size:
        raise ValueError("learn_lexicon: `sources` and `targets` must hold tokens.")
    none, width = int(left.ids.max()) + 1, int(right.ids.max()) + 1
    left = left.behind(none)
    keys, indexed = np.zeros(0, np.int64), []

    def of_chunks() -> Iterator[tuple[Array, Array]]:
        for start, stop in _chunks(left, right):
            from_source, of_target, slots = _pairs(left, right, start, stop)
            yield left.ids[from_source] * width + right.ids[of_target], slots

    for chunk, _ in of_chunks():
        keys = np.union1d(keys, chunk)
    for chunk, slots in of_chunks():
        indexed.append((np.searchsorted(keys, chunk).astype(np.int32), slots))
    found, target = keys // width, keys % width
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for pairs, slots in indexed:
            weights = probabilities[pairs]
            # Each target token counts as one, shared out among the tokens that it may come from.
            shares = weights / np.repeat(np.add.reduceat(weights, slots[:-1]), np.diff(slots))
            counts += np.bincount(pairs, shares, len(keys))
        probabilities = counts / np.bincount(found, counts)[found]
    kept = found != none
    return Lexicon(found[kept], target[kept], probabilities[kept])


class _Sentences:
    """Ids of sentences one after another, and where each begins and ends."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.splits = np.concatenate([[0], np.cumsum(lengths)])
        empty = np.zeros(0, np.int64)
        self.ids: Array = np.concatenate([empty, *(np.asarray(row, np.int64) for row in rows)])

    def behind(self, token: int) -> "_Sentences":
        """The sentences with a token before each."""
        made = _Sentences([])
        made.ids = np.insert(self.ids, self.splits[:-1], token)
        made.splits = self.splits + np.arange(len(self.splits))
        return made


def _chunks(left: _Sentences, right: _Sentences) -> list[tuple[int, int]]:
    """First and last sentences of parts with about `AT_ONCE` pairs of tokens each."""
    products = np.cumsum(np.diff(left.splits) * np.diff(right.splits))
    cuts = np.searchsorted(products, np.arange(AT_ONCE, products[-1], AT_ONCE)) + 1
    edges = np.unique(np.concatenate([[0], cuts, [len(products)]]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _pairs(left: _Sentences, right: _Sentences, start: int, stop: int) -> Any:
    """Positions in the sources and in the targets of all pairs, those of a target token together.

    And where the pairs of each target token begin and end.
    """
    lengths = np.diff(left.splits)[start:stop]
    sentence = np.repeat(np.arange(stop - start), np.diff(right.splits)[start:stop])
    slots = np.concatenate([[0], np.cumsum(lengths[sentence])])
    first = left.splits[start:stop][sentence] - slots[:-1]
    from_source = np.arange(slots[-1]) + np.repeat(first, lengths[sentence])
    of_target = np.arange(right.splits[start], right.splits[stop])
    return from_source, np.repeat(of_target, lengths[sentence]), slots


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


class Listed(NamedTuple):
    """A search's request and a model's step, where tokens go by their positions in a list."""

    step: Step
    search: Search
    request: Request
    within: Within

    def named_by_model(self, found: Decoded[Tensor]) -> Decoded[Tensor]:
        """What a search has found, with the ids of the model."""
        return {**found, "tokens": ops.take(self.within.ids, found["tokens"], axis=0)}


@dataclasses.dataclass(frozen=True)
class Shortlisted(Search):
    """Another search, of each source within the lists of its tokens.

    The rows of the output table that a batch needs are taken out of it once, and logits are
    computed of these alone; each row chooses among its own lists, whatever its neighbours are. The
    result is that of the search by all logits, where those of tokens that are not listed are minus
    infinity: scores are normalised over the list. (`Sampling` draws from the same distribution; by
    the same random numbers it draws the same where ids that constraints name are the smallest.)
    Ids that constraints name, those of a prompt, START and END are in every list.

    Jean et al. 2015, https://arxiv.org/abs/1412.2007, section 3.3; as Marian and others decode.

    Args:
        shortlist: A `Shortlist` of the model's two vocabularies.
        search: `Greedy()`, `BeamSearch(...)` or `Sampling(...)`.

    Raises:
        ValueError: If `search` is `Speculative` or has a list; while searching, if the list is of
            other vocabularies than the model, or the model is no translator.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import Shortlist, Shortlisted, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> pairs = [[5, 7], [7, 6]], [[15, 17], [17, 16]]
    >>> shortlist = Shortlist.learn(*pairs, 31, 31, likeliest=1, frequent=0, shared=False)
    >>> found = generate(model, np.array([[5, 7, 2]]), search=Shortlisted(shortlist), max_length=6)
    >>> set(found["tokens"].ravel().tolist()) <= {0, 1, 2, 15, 17}
    True
    """

    shortlist: Shortlist
    search: Search = Greedy()

    def __post_init__(self) -> None:
        if isinstance(self.search, Speculative | Shortlisted):
            raise ValueError(
                "Shortlisted: `search` must be `Greedy()`, `BeamSearch(...)` or `Sampling(...)`. "
                f"Received: {type(self.search).__name__}"
            )

    @property
    def constraints(self) -> Constraints:  # type: ignore[override]
        """Those of `search`."""
        return self.search.constraints

    @property
    def beams(self) -> int:
        return self.search.beams

    def check(self, model: Decodable) -> None:
        """ValueError if the list is not for a model, or constraints name what is no token of it."""
        if not hasattr(model, "step_within"):
            raise ValueError(
                "Shortlisted: the model must have `step_within`, as translators have. "
                f"Received: {type(model).__name__}"
            )
        expected = vocabularies_of(model)
        received = (self.shortlist.source_vocab, self.shortlist.vocab_size)
        if received != expected:
            raise ValueError(
                "Shortlisted: `shortlist` must have the (source, target) vocabularies of the "
                f"model, {expected}. Received: {received}"
            )
        wrong = [token for token in self.named(0, 0) if token >= self.shortlist.vocab_size]
        if wrong:
            raise ValueError(
                "Shortlisted: ids of `constraints` must be below the vocabulary's size, "
                f"{self.shortlist.vocab_size}. Received: {wrong}"
            )

    def starting_with(self, start_id: Any) -> Self:
        """The search that knows START, where it is one for all rows and an int."""
        if not isinstance(start_id, int):
            return self
        of: Any = self.search
        boundaries = dataclasses.replace(of.constraints.boundaries, start=start_id)
        constraints = dataclasses.replace(of.constraints, boundaries=boundaries)
        search = dataclasses.replace(of, constraints=constraints)
        return dataclasses.replace(self, search=search)

    def named(self, padding_id: int, end_id: int, start_id: int | None = None) -> tuple[int, ...]:
        """Ids that are in every list, in their order: padding, START, END, those of constraints."""
        of = self.constraints
        sequences = [token for sequence in of.banned_sequences for token in sequence]
        ids = (*of.boundaries.ids, *of.banned_ids, *sequences, *of.required)
        rest = sorted({*ids, end_id, *(() if start_id is None else (start_id,))} - {padding_id})
        return (padding_id, *rest)

    def of_batch(
        self, model: Decodable, source: Array, forced: Array, start_ids: Array, end_id: int
    ) -> Within:
        """The `Within` of a batch: sources, what is forced, START of each row."""
        self.check(model)
        padding = padding_of(model)
        given = ops.convert_to_numpy(ops.concatenate([forced, start_ids[:, None]], axis=1))
        return self.shortlist.within(source, self.named(padding, end_id), given)

    def listed(self, model: Decodable, request: Request, within: Within) -> Listed:
        """The request and the step of a model as `search` sees them: tokens by positions.

        The search itself is that with constraints on positions, too.
        """
        self.check(model)
        if getattr(request, "phrases", None) is not None:
            raise ValueError("Shortlisted: phrases of a request are not taken within a list.")
        start, padding, vocab = request.start_id, request.padding_id, self.shortlist.vocab_size
        known = isinstance(start, int)
        named = self.named(padding, request.end_id, cast(int, start) if known else None)
        positions = {token: position for position, token in enumerate(named)}
        at = functools.partial(_positions, within.ids, padding_id=padding, vocab=vocab)
        start, forced = positions[cast(int, start)] if known else at(start), at(request.forced)
        changes: dict[str, Any] = {"end_id": positions[request.end_id], "padding_id": 0}
        changes |= {"forced": forced, "start_id": start}
        if request.stop_table is not None:
            of_listed = ops.take(request.stop_table, within.ids, axis=1)
            changes["stop_table"] = ops.concatenate([of_listed, request.stop_table[:, -1:]], axis=1)
        search: Any = self.search
        constraints = _by_positions(search.constraints, positions)
        step = _Step(cast(Any, model).step_within(within.ids), within.ids)
        return Listed(
            step,
            dataclasses.replace(search, constraints=constraints),
            request._replace(**changes),
            within,
        )


class _Step:
    """A model's step, of tokens by their positions in a list; what a row may not choose is low."""

    def __init__(self, step: Step, ids: Tensor) -> None:
        self.step, self.ids = step, ids

    def __call__(
        self,
        positions: Tensor,
        index: Index,
        state: Any,
        shared: Any,
        back_pointers: BackPointers | None,
    ) -> tuple[Tensor, Any]:
        shared, allowed = shared
        ids = ops.take(self.ids, positions, axis=0)
        logits, state = self.step(ids, index, state, shared, back_pointers)
        return ops.where(allowed[:, None], ops.cast(logits, "float32"), MASKED), state


def _positions(listed: Tensor, ids: Any, padding_id: int, vocab: int) -> Tensor:
    """Where ids stand in a list, integers of the same shape; padding stands first."""
    number = ops.shape(listed)[0]
    at = ops.where(ops.logical_or(listed < 0, listed == padding_id), vocab, listed)
    found = ops.scatter_update(
        ops.zeros((vocab + 1,), "int32"), at[:, None], ops.arange(number, dtype="int32")
    )
    ids = ops.cast(ids, "int32")
    none = ops.logical_or(ids < 0, ids == padding_id)
    return ops.where(none, 0, ops.take(found, ops.maximum(ids, 0), axis=0))


def _by_positions(constraints: Constraints, positions: dict[int, int]) -> Constraints:
    """Constraints whose ids are positions."""

    def each(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(positions[token] for token in ids)

    of = constraints.boundaries
    boundaries = dataclasses.replace(
        of,
        ends=each(of.ends),
        first=None if of.first is None else positions[of.first],
        last=None if of.last is None else positions[of.last],
        banned_first=each(of.banned_first),
        start=None,
    )
    banned = tuple(
        each(token) if isinstance(token, tuple) else positions[token]
        for token in constraints.banned
    )
    required = each(constraints.required)
    return dataclasses.replace(constraints, boundaries=boundaries, banned=banned, required=required)
