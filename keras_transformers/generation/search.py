"""The interface of a search, and the hypotheses that it keeps."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.core.types import BackPointers, Index, Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.phrases import first_progress
from keras_transformers.generation.request import (
    MASKED,
    Batch,
    Begun,
    Decoded,
    Prefilled,
    Request,
    prompt_lengths,
    put_back,
    requested,
    take_beams,
    take_rows,
)

MaybeProgress: TypeAlias = Any  # `Progress`, or () where no phrase is demanded


class Unfinished(NamedTuple):
    """The `beams` hypotheses of each source that go on, best first."""

    ids: Tensor  # (batch, beams): the last token of each
    tokens: Tensor  # (batch, beams, max_length)
    logp: Tensor  # (batch, beams)
    coverage: Tensor  # (batch, beams): penalties
    back_pointers: BackPointers
    prompt_lengths: Tensor  # (batch,)
    prompt_logp: Tensor  # (batch,): of those of the prompt's tokens that have been taken
    progress: MaybeProgress


class Candidates(NamedTuple):
    """Continuations of the unfinished hypotheses, best first."""

    ids: Tensor  # (batch, candidates): the new token of each
    tokens: Tensor  # (batch, candidates, max_length)
    logp: Tensor
    coverage: Tensor
    parents: Tensor  # the beam that each continues
    ends: Tensor  # whether the new token ends it
    progress: MaybeProgress

    def at(self, positions: Tensor) -> Self:
        """Those at `positions` (batch, number)."""
        found: Self = keras.tree.map_structure(lambda each: take_beams(each, positions), self)
        return found


class Finished(NamedTuple):
    """The best `beams` hypotheses of each source that have ended, best first."""

    tokens: Tensor  # (batch, beams, max_length)
    logp: Tensor  # (batch, beams)
    scores: Tensor  # (batch, beams): `MASKED` where there are fewer
    number: Tensor  # (batch,): how many have ended so far
    done: Tensor  # (batch,): whether the source needs no further step


class Hypotheses(NamedTuple):
    """Both kinds."""

    unfinished: Unfinished
    finished: Finished


def first_hypotheses(beams: int, request: Request, prefilled: Prefilled) -> Hypotheses:
    """Those before the first step: beams that are all equal, and nothing finished."""
    batch, max_length = ops.shape(request.forced)
    shape = (batch, beams)
    ids, tokens, scores = (ops.repeat(part, beams, axis=1) for part in prefilled.sequences(request))
    own = ops.broadcast_to(ops.arange(beams, dtype="int32"), shape)
    slots = ops.broadcast_to(own[..., None], (*shape, max_length))
    # All beams start equal, so that one of them is enough.
    first = ops.where(ops.arange(beams) == 0, 0.0, MASKED)
    unfinished = Unfinished(
        ids=ids,
        tokens=tokens,
        logp=scores + first,
        coverage=ops.zeros(shape, "float32"),
        back_pointers=BackPointers(own, slots),
        prompt_lengths=prompt_lengths(request),
        prompt_logp=prefilled.scores,
        progress=progress_of(request, tokens, prefilled.length),
    )
    finished = Finished(
        tokens=ops.full((*shape, max_length), request.padding_id, "int32"),
        logp=ops.full(shape, MASKED, "float32"),
        scores=ops.full(shape, MASKED, "float32"),
        number=ops.zeros((batch,), "int32"),
        done=ops.zeros((batch,), "bool"),
    )
    return Hypotheses(unfinished, finished)


def progress_of(request: Request, tokens: Tensor, length: Index) -> MaybeProgress:
    """How far tokens `(batch, beams, max_length)` have come with what is demanded."""
    return () if request.phrases is None else first_progress(request, tokens, length)


def progress_at(progress: MaybeProgress, positions: Tensor) -> MaybeProgress:
    """That at `positions` (batch, number)."""
    found: MaybeProgress = keras.tree.map_structure(lambda x: take_beams(x, positions), progress)
    return found


SearchState: TypeAlias = Any  # what a search keeps of its sequences: a named tuple of its own


class Step(Protocol):
    """One step of a model: the signature of `decode_step`."""

    def __call__(
        self,
        ids: Tensor,
        index: Index,
        state: Any,
        shared: Any,
        back_pointers: BackPointers | None,
        /,
    ) -> tuple[Tensor, Any]:
        """Gives logits `(batch, beams, vocab)` for ids `(batch, beams)`, and the new state."""
        ...


class Capacity(NamedTuple):
    """For how many tokens the state of a model has room.

    Args:
        length: Number of tokens, an int or a scalar tensor.
        grow: `grow(state, number) -> state`, with room for `number` more; called where that many
            have been decoded. None where there is room for all.
    """

    length: Index
    grow: Callable[[Any, Index], Any] | None = None


class Search:
    """A way of choosing tokens: what a subclass says about one step, turned into a whole search.

    A subclass has `constraints`, `beams` and the four methods that are not implemented here; every
    tensor of `hypotheses`, a named tuple, starts with the batch.
    """

    constraints: Constraints

    @property
    def beams(self) -> int:
        """Number of sequences that are kept of each source."""
        raise NotImplementedError

    def start(self, request: Request, prefilled: Prefilled) -> SearchState:
        """Gives the hypotheses before the first step."""
        raise NotImplementedError

    def advance(
        self,
        step: Step,
        index: Index,
        hypotheses: SearchState,
        state: Any,
        shared: Any,
        request: Request,
    ) -> tuple[SearchState, Any]:
        """Takes a step; gives the hypotheses and the model's state after it."""
        raise NotImplementedError

    def done(self, hypotheses: SearchState) -> Tensor:
        """Gives bool `(batch,)`: which sources need no further step."""
        raise NotImplementedError

    def finish(self, hypotheses: SearchState, length: Index, request: Request) -> Decoded[Tensor]:
        """Gives the results."""
        raise NotImplementedError

    def __call__(
        self,
        step: Step,
        state: Any,
        request: Request,
        shared: Any = None,
        stages: int | None = 1,
        prefilled: Prefilled | None = None,
        capacity: Capacity | None = None,
    ) -> Decoded[Tensor]:
        """Searches.

        Args:
            step: A model's `decode_step`, or any `Step`.
            state: Its first state, tensors that start with the batch or a multiple of it.
            request: A `Request`.
            shared: Tensors like those of `state` that no step changes.
            stages: Loops, each to be compiled: from one to the next the batch is halved, when half
                of its sequences are done, and the others go on without them. None for as many as it
                takes, where nothing is compiled and the batch is of any size.
            prefilled: A `Prefilled`, where the model has taken in the first tokens already.
            capacity: A `Capacity`, where the state has room for fewer tokens than there may be.

        Returns:
            Dict of `tokens` `(batch, [n,] max_length)`, padding after END; `scores` `(batch, [n])`;
            `lengths`, END included; from `BeamSearch` also `log_probabilities`.
        """
        request = self.constraints.demanding(request)
        index, batch = self.begin(state, request, shared, prefilled)
        if stages is None:
            index, hypotheses = self._in_dwindling_batches(step, index, batch, request, capacity)
        else:
            index, hypotheses = self._in_stages(step, index, batch, request, stages)
        return self.finish(hypotheses, index, request)

    def begin(
        self, state: Any, request: Request, shared: Any = None, prefilled: Prefilled | None = None
    ) -> Begun:
        """Returns the search before its first step.

        Args:
            state, request, shared, prefilled: As for a whole search.
        """
        request = self.constraints.demanding(request)
        if prefilled is None:
            nothing = ops.zeros((ops.shape(request.forced)[0],), "float32")
            prefilled = Prefilled(ops.convert_to_tensor(0, "int32"), nothing)
        shared = () if shared is None else shared
        batch = Batch(self.start(request, prefilled), state, shared, requested(request))
        return Begun(prefilled.length, batch)

    def go_on(self, step: Step, begun: Begun, request: Request, number: Index) -> Begun:
        """Takes at most a number of steps; fewer where the search ends before.

        Args:
            step: As for a whole search.
            begun: The search from `begin`, or from here.
            request: The `Request`; its tensors with a row for each sequence are those of `begun`.
            number: The number, an int or a scalar tensor: another one compiles nothing anew.
        """
        index, batch = begun
        end = ops.minimum(index + number, ops.shape(batch.requested["forced"])[1])
        return Begun(*self._loop(step, index, batch, request, 0, end))

    def _in_stages(
        self, step: Step, index: Index, batch: Batch, request: Request, stages: int
    ) -> tuple[Index, SearchState]:
        """As many loops, each on half as many rows as the one before."""
        size, end = ops.shape(request.forced)
        left = []
        for stage in range(stages):
            most = 0 if stage == stages - 1 else size // 2
            index, batch = self._loop(step, index, batch, request, most, end)
            if most:
                # Those that are not done come first; when all positions are filled, nobody goes on.
                order = ops.argsort(ops.cast(self.done(batch.hypotheses), "int32"), axis=0)
                order = ops.cast(order, "int32")
                left.append((order, take_rows(batch.hypotheses, order[most:], size)))
                batch, size = take_rows(batch, order[:most], size), most
        hypotheses = batch.hypotheses
        for order, done in reversed(left):
            hypotheses = put_back(hypotheses, done, order)
        return index, hypotheses

    def _in_dwindling_batches(
        self, step: Step, index: Index, batch: Batch, request: Request, capacity: Capacity | None
    ) -> tuple[Index, SearchState]:
        """Loops until half of the rows are done, then goes on with the others alone.

        Rows of a batch of known size stay, since it would be known no longer.
        """
        size, max_length = ops.shape(request.forced)
        stay = isinstance(size, int)
        length, grow = Capacity(max_length) if capacity is None else capacity

        def more(index: Index, length: Index, rows: Tensor, kept: SearchState, batch: Batch) -> Any:
            unfinished = ops.logical_not(self.done(batch.hypotheses))
            return ops.logical_and(index < max_length, ops.any(unfinished))

        def advance(
            index: Index, length: Index, rows: Tensor, kept: SearchState, batch: Batch
        ) -> tuple[Any, ...]:
            size = ops.shape(rows)[0]
            most, end = 0 if stay else size // 2, ops.minimum(length, max_length)
            index, batch = self._loop(step, index, batch, request, most, end)
            if grow is not None:
                new = ops.where(index == length, ops.minimum(length, max_length - length), 0)
                length, batch = length + new, batch._replace(state=grow(batch.state, new))
            if stay:
                return index, length, rows, batch.hypotheses, batch
            kept = keras.tree.map_structure(
                lambda all, some: ops.scatter_update(all, rows[:, None], some),
                kept,
                batch.hypotheses,
            )
            (going_on,) = ops.nonzero(ops.logical_not(self.done(batch.hypotheses)))
            rows, batch = take_rows((rows, batch), going_on, size)
            return index, length, rows, kept, batch

        rows = ops.arange(size, dtype="int32")
        first = (index, length, rows, batch.hypotheses, batch)
        index, _, _, kept, _ = ops.while_loop(more, advance, first)
        return index, kept

    def _loop(
        self, step: Step, index: Index, batch: Batch, request: Request, most: Index, end: Index
    ) -> tuple[Index, Batch]:
        """Until at most `most` rows are unfinished, or the position `end` is reached."""
        request = request._replace(**batch.requested)

        def more(index: Index, hypotheses: SearchState, state: Any) -> Tensor:
            number = ops.sum(ops.cast(ops.logical_not(self.done(hypotheses)), "int32"))
            return ops.logical_and(index < end, number > most)

        def advance(index: Index, hypotheses: SearchState, state: Any) -> tuple[Any, ...]:
            after = self.advance(step, index, hypotheses, state, batch.shared, request)
            known = keras.tree.map_structure(_of_known_shape, after, (hypotheses, state))
            return index + 1, *known

        first = (index, batch.hypotheses, batch.state)
        index, hypotheses, state = ops.while_loop(more, advance, first)
        return index, batch._replace(hypotheses=hypotheses, state=state)


def _of_known_shape(after: Tensor, before: Tensor) -> Tensor:
    """A tensor of the loop with the sizes that were known when it entered, as loops want."""
    sizes = [-1 if size is None else size for size in before.shape]
    if after.shape == before.shape or sizes.count(-1) > 1:
        return after
    return ops.reshape(after, sizes)
