"""The interface of a search, its hypotheses, and the searches that go token by token.

Greedy search and sampling decide each token once and never look back.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.core.types import BackPointers, Index, Tensor
from keras_transformers.generation.constraints import Constraints, after_each, first_progress
from keras_transformers.generation.request import (
    MASKED,
    Batch,
    Begun,
    Decoded,
    Prefilled,
    Request,
    is_finite,
    is_whole,
    lengths_of,
    log_normalizer,
    number_of,
    prompt_lengths,
    put_back,
    requested,
    take_beams,
    take_rows,
    top_tokens,
    write_at,
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


SMALLEST_NORMAL = 2.0**-126  # of float32: smaller temperatures may count as 0


class Sequences(NamedTuple):
    """What these searches keep: tensors `(batch, beams, ...)`."""

    ids: Tensor  # the last token of each
    tokens: Tensor  # (batch, beams, max_length)
    scores: Tensor
    finished: Tensor
    progress: MaybeProgress


class _Stepwise(Search):
    """The loop; `_choose` says which token each sequence takes."""

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def start(self, request: Request, prefilled: Prefilled) -> Sequences:
        ids, tokens, scores = (
            ops.repeat(part, self.beams, axis=1) for part in prefilled.sequences(request)
        )
        finished = ops.zeros_like(ids, "bool")
        progress = progress_of(request, tokens, prefilled.length)
        return Sequences(ids, tokens, scores, finished, progress)

    def done(self, hypotheses: Sequences) -> Tensor:
        return ops.all(hypotheses.finished, axis=1)

    def advance(
        self,
        step: Step,
        index: Index,
        hypotheses: Sequences,
        state: Any,
        shared: Any,
        request: Request,
    ) -> tuple[Sequences, Any]:
        ids, tokens, scores, finished, progress = hypotheses
        logits, state = step(ids, index, state, shared, None)
        logits = ops.cast(logits, "float32")
        constraints = self.constraints
        penalized = constraints.penalize(logits, tokens, index, request)
        allowed = constraints.restrict(penalized, tokens, index, request, progress)
        logit, ids = self._choose(allowed, index, request)
        if constraints.repetition_penalty != 1.0 and not constraints.renormalize:
            logit = ops.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]  # the model's own
        gained = self.constraints.log_probabilities(
            allowed, logit, log_normalizer(logits), index, request
        )
        if request.phrases is not None:
            progress = after_each(request, progress, ids)
        ids = ops.where(finished, request.padding_id, ids)
        tokens = write_at(tokens, ids, index)
        ended = constraints.boundaries.ended(ids, tokens, index, request)
        if request.cut_lengths is not None:
            ended = ops.logical_or(ended, (index + 1 >= request.cut_lengths)[:, None])
        hypotheses = Sequences(
            ids,
            tokens,
            scores + ops.where(finished, 0.0, gained),
            ops.logical_or(finished, ended),
            progress,
        )
        return hypotheses, state

    def finish(self, hypotheses: Sequences, length: Index, request: Request) -> Decoded[Tensor]:
        tokens, scores = hypotheses.tokens, hypotheses.scores
        if self.beams == 1:
            tokens, scores = tokens[:, 0], scores[:, 0]
        return {
            "tokens": tokens,
            "scores": scores,
            "lengths": lengths_of(tokens, request.padding_id),
            "finished": self.constraints.boundaries.finished(tokens, request),
        }


@dataclasses.dataclass(frozen=True)
class Greedy(_Stepwise):
    """Takes the most probable token at every step, until END.

    The score of a sequence is its log-probability.

    Args:
        constraints: `Constraints` on what may be chosen.

    Example:
    >>> from keras_transformers.generation import Greedy
    >>> Greedy().beams
    1
    """

    constraints: Constraints = Constraints()
    beams = 1

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        logit, ids = top_tokens(logits, 1)
        return logit[..., 0], ids[..., 0]


@dataclasses.dataclass(frozen=True)
class Sampling(_Stepwise):
    """Draws every token at random from the model's distribution, sharpened and cut to the probable.

    Logits are divided by the temperature, then cut by `top_k`, then by `top_p`, then by `min_p`;
    what is left is drawn from in proportion. The score of a sequence is its log-probability under
    the model itself, without any of these.

    Args:
        temperature: Above 1 flattens the distribution, below 1 sharpens it.
        top_k: Number of most probable tokens to keep (Fan et al. 2018,
            https://arxiv.org/abs/1805.04833, section 5.4); None keeps all.
        top_p: Keeps the fewest most probable tokens whose probabilities sum to this (Holtzman et
            al. 2020, https://arxiv.org/abs/1904.09751, section 3.1); None keeps all.
        min_p: Keeps tokens at least this share as probable as the most probable one (Nguyen et al.
            2024, https://arxiv.org/abs/2407.01082); None keeps all.
        num_samples: Number of sequences for each source.
        seed: Integer for the same tokens every time; None draws anew with every call. The random
            numbers of a sequence then follow from the seed and its place among the sources alone.
        constraints: `Constraints` on what may be chosen.

    Raises:
        ValueError: If a number is out of its range.

    Example:
    >>> from keras_transformers.generation import Sampling
    >>> Sampling(temperature=0.7, top_p=0.9, num_samples=3, seed=1).beams
    3
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    num_samples: int = 1
    seed: int | None = None
    constraints: Constraints = Constraints()

    def __post_init__(self) -> None:
        wrong = [
            name
            for name, fine in {
                "temperature": is_finite(self.temperature) and self.temperature >= SMALLEST_NORMAL,
                "top_k": self.top_k is None or is_whole(self.top_k, 1),
                "top_p": self.top_p is None or (is_finite(self.top_p) and 0 < self.top_p <= 1),
                "min_p": self.min_p is None or (is_finite(self.min_p) and 0 <= self.min_p <= 1),
                "num_samples": is_whole(self.num_samples, 1),
                "seed": self.seed is None or is_whole(self.seed),
            }.items()
            if not fine
        ]
        if wrong:
            raise ValueError(
                "Sampling: `temperature` must be positive and finite, and at least "
                f"{SMALLEST_NORMAL:.3g}, the smallest normal number of float32; `top_k` and "
                "`num_samples` integers of at least 1, `top_p` in (0, 1] and `min_p` in [0, 1], "
                f"and `seed` an integer from 0 on. Received: {wrong[0]}={vars(self)[wrong[0]]}"
            )

    @property
    def beams(self) -> int:
        return self.num_samples

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        if self.top_k or self.top_p:
            kept, ids = top_tokens(logits, self._number(logits))
        else:
            kept, ids = logits, None
        weights = self._weights(kept, self.top_p)
        position = drawn(weights, ops.take(request.uniform, index, axis=1))[..., None]
        logit = ops.take_along_axis(kept, position, axis=-1)[..., 0]
        chosen = position if ids is None else ops.take_along_axis(ids, position, axis=-1)
        return logit, chosen[..., 0]

    def _number(self, logits: Tensor) -> Index:
        """How many tokens `top_k` keeps."""
        vocab = number_of(logits)
        if self.top_k is None:
            return vocab
        return min(self.top_k, vocab) if isinstance(vocab, int) else ops.minimum(self.top_k, vocab)

    def probabilities(self, logits: Tensor) -> Tensor:
        """What each token of the vocabulary is drawn with, for logits `(..., vocab)`."""
        vocab = logits.shape[-1]
        weights = self._weights(logits)
        if self.top_k or self.top_p:
            kept, ids = top_tokens(logits, self._number(logits))
            last = _last(self._weights(kept, self.top_p))[..., None]
            least, last_id = (ops.take_along_axis(x, last, axis=-1) for x in (kept, ids))
            # Of equal ones those with the smaller ids come first.
            alike = ops.logical_and(logits == least, ops.arange(vocab, dtype="int32") <= last_id)
            weights = ops.where(ops.logical_or(logits > least, alike), weights, 0.0)
        return weights / ops.sum(weights, axis=-1, keepdims=True)

    def _weights(self, kept: Tensor, top_p: float | None = None) -> Tensor:
        """What is drawn in proportion to: `exp` of `(..., number)`; of sorted ones the `top_p`."""
        weights = ops.exp((kept - ops.max(kept, axis=-1, keepdims=True)) / self.temperature)
        weights = ops.where(kept > MASKED / 2, weights, 0.0)
        if top_p:
            before = ops.cumsum(weights, axis=-1) - weights
            enough = top_p * ops.sum(weights, axis=-1, keepdims=True)
            weights = ops.where(before < enough, weights, 0.0)
        if self.min_p:
            weights = ops.where(weights >= self.min_p, weights, 0.0)  # the largest is 1
        return weights


def drawn(weights: Tensor, uniform: Tensor) -> Tensor:
    """Positions on the last axis, drawn in proportion to weights `(..., number)`.

    Inverse of the cumulative distribution at uniform numbers `(...)`: the same on every backend.
    """
    cumulative = ops.cumsum(weights, axis=-1)
    below = ops.cast(cumulative <= uniform[..., None] * cumulative[..., -1:], "int32")
    # Rounding may carry the number past the last weight that is not zero.
    return ops.minimum(ops.sum(below, axis=-1), _last(weights))


def _last(weights: Tensor) -> Tensor:
    """Position of the last weight that is not zero."""
    positions = ops.where(weights > 0, ops.arange(number_of(weights)), -1)
    return ops.cast(ops.argmax(positions, axis=-1), "int32")
