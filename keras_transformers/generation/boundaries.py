"""What stands at the beginning and at the end of a decoded sequence."""

import dataclasses
import functools
from typing import TypeVar

from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.generation.request import (
    Request,
    in_prompt,
    is_whole,
    lengths_of,
    limits_of,
    prompt_lengths,
    take_at,
)
from keras_transformers.generation.stop_strings import completed

StartId = TypeVar("StartId", int, int | None)


@dataclasses.dataclass(frozen=True)
class Boundaries:
    """Tokens at the beginning and at the end of a sequence.

    `first` and `last` count nothing: their log-probability is taken for 0.

    Args:
        ends: Ids each of which ends a sequence, in place of the request's `end_id`; () for that one
            alone.
        first: Id that a sequence without a prompt begins with, such as that of a language.
        last: Id that stands where a sequence reaches its limit on tokens, mostly END's. None leaves
            it cut.
        banned_first: Ids that are not chosen first: behind the prompt, or behind `first`.
        start: Id that stands before the first token, in place of the `start_id` that is asked for;
            it is none of the result. Where that is None, texts have no such token.

    Raises:
        ValueError: If an id is no integer from 0 on; while searching, if one is beyond the
            vocabulary.

    Example:
    >>> from keras_transformers.generation import Boundaries, Constraints, Greedy
    >>> search = Greedy(Constraints(boundaries=Boundaries(ends=(2, 7), last=2)))
    >>> search.constraints.boundaries.ends
    (2, 7)
    """

    ends: tuple[int, ...] = ()
    first: int | None = None
    last: int | None = None
    banned_first: tuple[int, ...] = ()
    start: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", tuple(dict.fromkeys(self.ends)))
        object.__setattr__(self, "banned_first", tuple(sorted(set(self.banned_first))))
        if not all(map(is_whole, self.ids)):
            raise ValueError(f"Boundaries: ids must be from 0 on. Received: {self}")

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids that are named here."""
        named = (self.first, self.last, self.start)
        single = tuple(token for token in named if token is not None)
        return (*self.ends, *single, *self.banned_first)

    def start_of(self, start_id: StartId) -> int | StartId:
        """The id before the first token, where `start_id` is asked for."""
        return start_id if start_id is None or self.start is None else self.start

    def end_of(self, request: Request) -> int:
        """The id that is forced where a sequence must end."""
        if not self.ends or request.end_id in self.ends:
            return request.end_id
        return self.ends[0]

    def is_end(self, ids: Tensor, request: Request) -> Tensor:
        """Which of integer `ids` end a sequence."""
        end, *others = self.ends or (request.end_id,)
        found = ids == end
        for other in others:
            found = ops.logical_or(found, ids == other)
        return found

    def ended(self, ids: Tensor, tokens: Tensor, index: Index, request: Request) -> Tensor:
        """Tells which sequences end with their tokens at `index`, bool `(batch, beams)`.

        A token of the prompt ends nothing, even if it is END.

        Args:
            ids: Integers `(batch, beams)`, those tokens.
            tokens: Integers `(batch, beams, max_length)`, the sequences with them.
            index: Position, or `(batch,)`, one for each row.
            request: The `Request`.
        """
        chosen = ops.logical_not(in_prompt(index, request))
        ends = self.is_end(ids, request)
        if request.stop_table is not None:
            ends = ops.logical_or(ends, completed(tokens, index, request.stop_table))
        return ops.logical_and(ends, chosen[:, None])

    def finished(self, tokens: Tensor, request: Request) -> Tensor:
        """Tells which sequences the search has ended itself.

        Not one that was cut at its limit or must end there: that END says nothing of the model.

        Args:
            tokens: Integers `(batch, ..., max_length)`.
            request: The `Request`.

        Returns:
            Bool `(batch, ...)`.
        """
        positions = ops.arange(ops.shape(tokens)[-1], dtype="int32")
        chosen = positions >= prompt_lengths(request)[:, None]  # (batch, max_length)
        if request.max_lengths is not None:
            early = positions + 1 < ops.cast(request.max_lengths, "int32")[:, None]
            chosen = ops.logical_and(chosen, early)
        if self.last is not None:
            limits = ops.reshape(ops.cast(limits_of(request), "int32"), (-1, 1))
            chosen = ops.logical_and(chosen, positions + 1 < limits)
        ends = self.is_end(tokens, request)
        several = len(tokens.shape) == 3
        if request.stop_table is not None:
            beams = tokens if several else tokens[:, None]
            last = ops.cast(lengths_of(beams, request.padding_id), "int32") - 1
            stopped = completed(beams, ops.maximum(last, 0), request.stop_table)
            stopped = ops.logical_and(stopped[..., None], positions == last[..., None])
            ends = ops.logical_or(ends, stopped if several else stopped[:, 0])
        chosen = chosen[:, None] if several else chosen
        return ops.any(ops.logical_and(ends, chosen), axis=-1)

    def forced(self, index: Index, request: Request) -> Tensor:
        """The token that must be taken at `index`, `(batch,)`; padding where there is a choice."""
        given = take_at(request.forced, index)
        free, forced = given == request.padding_id, given
        if request.max_lengths is not None:
            due = ops.logical_and(free, index + 1 >= request.max_lengths)
            forced = ops.where(due, self.end_of(request), forced)
        if self.first is not None:
            forced = ops.where(ops.logical_and(free, index == 0), self.first, forced)
        if self.last is not None:
            due = ops.logical_and(free, index + 1 >= limits_of(request))
            forced = ops.where(due, self.last, forced)
        return forced

    def not_scored(self, index: Index, request: Request) -> Tensor | None:
        """Where `first` or `last` decides, or a prompt whose scores are not asked for, `(batch,)`.

        None where there is neither.
        """
        found = []
        if not request.prompt_scores:
            found.append(in_prompt(index, request))
        if self.first is not None or self.last is not None:
            due = index < 0 if self.first is None else index == 0
            if self.last is not None:
                due = ops.logical_or(due, index + 1 >= limits_of(request))
            free = take_at(request.forced, index) == request.padding_id
            found.append(ops.logical_and(free, due))
        return functools.reduce(ops.logical_or, found) if found else None

    def begins(self, index: Index, request: Request) -> Tensor:
        """Whether the token at `index` is the first that is chosen, bool `(batch,)`."""
        before = prompt_lengths(request)
        return ops.equal(index, before if self.first is None else ops.maximum(before, 1))
