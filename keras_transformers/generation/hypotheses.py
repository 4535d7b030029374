"""What beam search keeps of its hypotheses; logarithms of probabilities are float32."""

from typing import Any, NamedTuple, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.annotations import BackPointers, Index, Tensor
from keras_transformers.generation.phrases import first_progress
from keras_transformers.generation.request import (
    MASKED,
    Prefilled,
    Request,
    prompt_lengths,
    take_beams,
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
