"""Searches among the target tokens of a list instead of the whole vocabulary."""

import dataclasses
import functools
from typing import Any, NamedTuple, Self, cast

from keras import ops

from keras_transformers.annotations import Array, BackPointers, Index, Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.request import (
    MASKED,
    Decodable,
    Decoded,
    Request,
    padding_of,
    vocabularies_of,
)
from keras_transformers.generation.search import Search, Step
from keras_transformers.generation.shortlists import Shortlist, Within
from keras_transformers.generation.speculative import Speculative
from keras_transformers.generation.stepwise import Greedy


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
