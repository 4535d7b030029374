"""Beam search, with penalties and demanded phrases."""

import dataclasses
from typing import Any, Literal

import numpy as np
from keras import ops

from keras_transformers.core.types import BackPointers, Index, Tensor
from keras_transformers.generation.constraints import (
    Constraints,
    Progress,
    after,
    next_ids,
    standing,
)
from keras_transformers.generation.request import (
    MASKED,
    SMALLEST,
    DecodedBeams,
    Demands,
    Prefilled,
    Request,
    is_finite,
    is_whole,
    lengths_of,
    limits_of,
    log_normalizer,
    take_beams,
    top_tokens,
    write_at,
)
from keras_transformers.generation.search import (
    Candidates,
    Finished,
    Hypotheses,
    Search,
    Step,
    Unfinished,
    first_hypotheses,
    progress_at,
)


def length_penalty(length: Index, alpha: float) -> Tensor:
    """What a hypothesis' log-probability is divided by: `((5 + |y|) / 6) ** alpha`.

    Args:
        length: `|y|`, its number of tokens, END included.
        alpha: 0 for none; 0.6 in Vaswani et al. 2017.

    Returns:
        float32 of the shape of `length` (Wu et al. 2016, https://arxiv.org/abs/1609.08144, eq. 14).

    Example:
    >>> from keras_transformers.generation import length_penalty
    >>> float(length_penalty(7, alpha=1.0))
    2.0
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def coverage_penalty(coverage: Tensor, beta: float) -> Tensor:
    """What is added to a hypothesis' score for source tokens it never looked at.

    `beta * sum_i log(min(sum_j p_ij, 1))` over source tokens i, where `p_ij` is the attention of
    the j-th target token to it (Wu et al. 2016, https://arxiv.org/abs/1609.08144, eq. 14).

    Args:
        coverage: `(..., source_length)`, `sum_j p_ij`; 1 at padding.
        beta: 0 for none; 0.2 in the paper.

    Returns:
        float32 `(...)`, at most 0.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.generation import coverage_penalty
    >>> round(float(coverage_penalty(ops.array([0.5, 1.3, 1.0]), beta=1.0)), 3)
    -0.693
    """
    covered = ops.clip(ops.cast(coverage, "float32"), 1e-9, 1.0)  # 0 would give minus infinity
    return beta * ops.sum(ops.log(covered), axis=-1)


DEMANDED = 3.0  # nats that a demanded token is expected to cost


def with_phrases(
    demands: Demands, progress: Progress, best: Tensor, ids: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Puts the next token of each phrase behind the best, where it is not among them."""
    more = next_ids(demands, progress)
    number = ops.arange(ops.shape(more)[-1])
    earlier = number[:, None] > number
    again = ops.any(ops.logical_and(more[..., None] == more[..., None, :], earlier), axis=-1)
    among = ops.any(ids[..., None] == more[..., None, :], axis=-2)
    extra = ops.take_along_axis(logits, ops.maximum(more, 0), axis=-1)
    new = ops.logical_not(ops.logical_or(ops.logical_or(among, again), more < 0))
    extra = ops.where(new, extra, MASKED)
    return ops.concatenate([best, extra], -1), ops.concatenate([ids, more], -1)


def by_banks(demands: Demands, progress: Progress, logp: Tensor, beams: int, most: int) -> Tensor:
    """Positions of candidates: first the best few of each bank, then the others.

    A bank is for those with so many phrases, or so many and one that is begun: banks by tokens, as
    in the paper, are too many for a few beams. In a bank, what a hypothesis will still pay for
    demanded tokens is counted as `DEMANDED` each: otherwise one that has just begun a phrase would
    always go before one that has paid for most of it, and none would end it before it must. Where
    banks are too many still, those with more go before those with fewer, which would be the more
    probable ones to the end.

    Args:
        demands: The `Demands`.
        progress: That of the candidates.
        logp: Their log-probabilities `(batch, candidates)`, sorted.
        beams: Number of positions, shared equally by the banks that there are.
        most: Number of candidates to keep.

    Returns:
        Integers `(batch, most)`.
    """
    bank, tokens = standing(demands, progress)
    possible = logp > MASKED / 2
    size = logp.shape[1]
    position = ops.arange(size, dtype="int32")
    same = ops.logical_and(bank[..., None] == bank[:, None], possible[:, None])
    value = logp + DEMANDED * ops.cast(tokens, logp.dtype)
    higher = value[:, None] > value[..., None]
    equal = ops.logical_and(value[:, None] == value[..., None], position[:, None] > position)
    better = ops.logical_and(same, ops.logical_or(higher, equal))
    rank = ops.sum(ops.cast(better, "int32"), axis=-1)  # in its bank
    banks = ops.sum(ops.cast(ops.logical_and(rank == 0, possible), "int32"), axis=1, keepdims=True)
    quota = ops.maximum(1, beams // ops.maximum(banks, 1))
    first = ops.logical_and(rank < quota, possible)
    order = ops.argsort(position - ops.where(first, size * (bank + 1), 0), axis=1)
    order = ops.cast(order, "int32")
    kept = ops.sort(order[:, :beams], axis=1)  # best first again
    return ops.concatenate([kept, order[:, beams:most]], axis=1)


@dataclasses.dataclass(frozen=True)
class BeamSearch(Search):
    """Keeps the `beam_size` most probable unfinished sequences, and sets finished ones aside.

    A sequence whose END ranks among the best `beam_size` continuations is finished: it is frozen,
    scored by `log p / length_penalty + coverage_penalty`, and its slot goes to the next unfinished
    one. A source is done when `beam_size` sequences have finished. With one beam this is greedy
    search.

    With `normalization="length"` this is the beam search of Hugging Face's `generate`, to the
    token, for every `early_stopping` and `length_penalty`; its defaults are `BeamSearch(4, 1.0,
    normalization="length", early_stopping=False)`.

    Args:
        beam_size: Number of unfinished sequences (4 in Vaswani et al. 2017).
        length_penalty: `alpha` in `((5 + |y|) / 6) ** alpha`; 0 ranks by log-probability. `|y|`
            counts the tokens of a prompt only if the score does (`prompt_scores` of `generate`).
        normalization: "gnmt" for that penalty, or "length" for `|y| ** alpha`, where neither the
            length nor the probability of a prompt is counted, and sequences cut at the limit
            compete with those that finished.
        early_stopping: Whether a source is done as soon as `beam_size` sequences have finished;
            then, with "gnmt", those cut at the limit come after all that finished. If not, better
            ones take their slots until the best unfinished one, scored at its present length, is
            no better than the worst of them; "never" scores it at the length that suits it best,
            the limit where `length_penalty` is positive. Cut sequences compete.
        coverage_penalty: `beta` of `generation.coverage_penalty`; needs a model whose
            `start_decoding` knows `coverage`.
        n_best: Number of sequences to return for each source, best first. If constraints leave
            fewer, the others are empty: padding alone, with a score of minus infinity. A sequence
            whose log-probability is below -5e8 counts as one that is not allowed.
        constraints: `Constraints` on what may be chosen.

    Raises:
        ValueError: If `beam_size` is no positive integer, `n_best` none between 1 and `beam_size`,
            a penalty no finite number, or `normalization` or `early_stopping` unknown.

    Example:
    >>> from keras_transformers.generation import BeamSearch
    >>> BeamSearch(beam_size=4, n_best=2).beams
    4
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0
    n_best: int = 1
    constraints: Constraints = Constraints()
    normalization: Literal["gnmt", "length"] = "gnmt"
    early_stopping: bool | Literal["never"] = True

    def __post_init__(self) -> None:
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(
                'BeamSearch: `early_stopping` must be True, False or "never". '
                f"Received: {self.early_stopping!r}"
            )
        if self.normalization not in ("gnmt", "length"):
            raise ValueError(
                'BeamSearch: `normalization` must be "gnmt" or "length". '
                f"Received: {self.normalization!r}"
            )
        sizes = is_whole(self.beam_size, 1) and is_whole(self.n_best, 1)
        if not sizes or self.n_best > self.beam_size:
            raise ValueError(
                "BeamSearch: `beam_size` must be an integer of at least 1 and `n_best` one between "
                f"1 and `beam_size`. Received: beam_size={self.beam_size}, n_best={self.n_best}"
            )
        if not (is_finite(self.length_penalty) and is_finite(self.coverage_penalty)):
            raise ValueError(
                "BeamSearch: `length_penalty` and `coverage_penalty` must be finite numbers. "
                f"Received: {self.length_penalty} and {self.coverage_penalty}"
            )

    @property
    def beams(self) -> int:
        return self.beam_size

    def start(self, request: Request, prefilled: Prefilled) -> Hypotheses:
        return first_hypotheses(self.beam_size, request, prefilled)

    @property
    def _stops_at_once(self) -> bool:
        return self.early_stopping not in (False, "never")

    @property
    def _truncated_compete(self) -> bool:
        return self.normalization == "length" or not self._stops_at_once

    def done(self, hypotheses: Hypotheses) -> Tensor:
        return hypotheses.finished.done

    def advance(
        self,
        step: Step,
        index: Index,
        hypotheses: Hypotheses,
        state: Any,
        shared: Any,
        request: Request,
    ) -> tuple[Hypotheses, Any]:
        unfinished, finished = hypotheses
        logits, state = step(unfinished.ids, index, state, shared, unfinished.back_pointers)
        if self.coverage_penalty:
            coverage = coverage_penalty(state.coverage, self.coverage_penalty)
            unfinished = unfinished._replace(coverage=coverage)
        candidates = self._extend(unfinished, logits, index, request)
        finished = self._finish_candidates(finished, candidates, unfinished, index, request)
        unfinished = self._continue_candidates(unfinished, candidates, index)
        done = self._done(finished, unfinished, index, request)
        if request.cut_lengths is not None:
            now = index + 1 >= request.cut_lengths
            cut = ops.logical_and(now, ops.logical_not(finished.done))
            finished = self._with_truncated(finished, unfinished, index + 1, cut, request)
            done = ops.logical_or(done, now)
        return Hypotheses(unfinished, finished._replace(done=done)), state

    def _done(
        self, finished: Finished, unfinished: Unfinished, index: Index, request: Request
    ) -> Tensor:
        """Which sources need no further step."""
        enough, most = finished.number >= self.beam_size, ops.shape(request.forced)[1]
        if not self._stops_at_once:
            length = index + 1
            if self.early_stopping == "never" and self.length_penalty > 0:
                length = ops.reshape(limits_of(request), (-1, 1))
            best = ops.max(self._score(unfinished, unfinished, length, request), axis=1)
            enough = ops.logical_and(enough, best <= ops.min(finished.scores, axis=1))
        elif self._truncated_compete:  # also with those that finish in the last step
            enough = ops.logical_and(enough, index + 1 < most)
        return ops.logical_or(finished.done, enough)

    def _extend(
        self, unfinished: Unfinished, logits: Tensor, index: Index, request: Request
    ) -> Candidates:
        """The best, enough for `beam_size` that do not end; with one END twice as many."""
        beams, vocab = self.beam_size, logits.shape[-1]
        logits = ops.cast(logits, "float32")
        normalizer = log_normalizer(logits)
        if self.constraints.repetition_penalty != 1.0:
            most, log_sum = normalizer
            logits = logits - most[..., None] - log_sum[..., None]
            normalizer = ops.zeros_like(most), ops.zeros_like(log_sum)
            logits = self.constraints.penalize(logits, unfinished.tokens, index, request)
        demands, progress = request.phrases, unfinished.progress
        logits = self.constraints.restrict(logits, unfinished.tokens, index, request, progress)
        # Of one beam no more can be needed: its ENDs, and as many others as there are beams.
        boundaries = self.constraints.boundaries
        ends = max(1, len(boundaries.ends))
        best, ids = top_tokens(logits, min(beams + ends, vocab or SMALLEST))
        if demands is not None:
            best, ids = with_phrases(demands, progress, best, ids, logits)
            progress = after(request, progress, ids)
        # What is not allowed stays below all that is, however unlikely.
        logp = self.constraints.log_probabilities(logits, best, normalizer, index, request)
        # Nor does NaN, which compares with nothing, come through.
        sound = ops.logical_and(best > MASKED / 2, logp > MASKED)
        logp = ops.where(sound, logp, MASKED)
        number, most = ids.shape[-1], (1 + ends) * beams
        logp = ops.reshape(unfinished.logp[..., None] + logp, (-1, beams * number))
        enough = beams * number if demands is not None else min(most, beams * number)
        sorted_logp, positions = ops.top_k(logp, enough)
        positions = ops.cast(positions, "int32")
        if demands is not None:
            best = by_banks(demands, progress_at(progress, positions), sorted_logp, beams, most)
            sorted_logp, positions = (take_beams(x, best) for x in (sorted_logp, positions))
        parents = positions // number
        ids = ops.take_along_axis(ops.reshape(ids, (-1, beams * number)), positions, axis=1)
        tokens = write_at(take_beams(unfinished.tokens, parents), ids, index)
        ended = boundaries.ended(ids, tokens, index, request)
        return Candidates(
            ids=ids,
            tokens=tokens,
            logp=sorted_logp,
            coverage=ops.take_along_axis(unfinished.coverage, parents, axis=1),
            parents=parents,
            ends=ops.logical_and(ended, sorted_logp > MASKED / 2),
            progress=progress_at(progress, positions),
        )

    def _finish_candidates(
        self,
        finished: Finished,
        candidates: Candidates,
        unfinished: Unfinished,
        index: Index,
        request: Request,
    ) -> Finished:
        """Freezes the continuations that end among the best `beam_size`."""
        rank = ops.arange(candidates.ids.shape[1])
        ends = ops.logical_and(candidates.ends, (rank < self.beam_size)[None])
        ends = ops.logical_and(ends, ops.logical_not(finished.done)[:, None])
        scores = self._score(candidates, unfinished, index + 1, request)
        scores = ops.concatenate([finished.scores, ops.where(ends, scores, MASKED)], axis=1)
        logp = ops.concatenate([finished.logp, candidates.logp], axis=1)
        tokens = ops.concatenate([finished.tokens, candidates.tokens], axis=1)
        best = ops.cast(ops.top_k(scores, self.beam_size)[1], "int32")
        # A source that is done keeps its order: sequences that were cut stand behind those that
        # finished, whatever their scores.
        unchanged = ops.arange(self.beam_size, dtype="int32")[None]
        best = ops.where(finished.done[:, None], unchanged, best)
        return Finished(
            tokens=take_beams(tokens, best),
            logp=ops.take_along_axis(logp, best, axis=1),
            scores=ops.take_along_axis(scores, best, axis=1),
            number=finished.number + ops.sum(ops.cast(ends, "int32"), axis=1),
            done=finished.done,
        )

    def _score(
        self,
        sequences: Candidates | Unfinished,
        unfinished: Unfinished,
        length: Index,
        request: Request,
    ) -> Tensor:
        """Scores of sequences of a length, a scalar or `(batch, 1)`.

        `unfinished` knows what their prompts were. A length penalty is for the tokens whose
        log-probabilities count.
        """
        own = ops.maximum(length - unfinished.prompt_lengths[:, None], 1)
        if self.normalization == "gnmt":
            length = length if request.prompt_scores else own
            penalty = length_penalty(length, self.length_penalty)
            return sequences.logp / penalty + sequences.coverage
        own_logp = sequences.logp - unfinished.prompt_logp[:, None]
        penalty = ops.power(ops.cast(own, "float32"), self.length_penalty)
        return own_logp / penalty + sequences.coverage

    def _continue_candidates(
        self, unfinished: Unfinished, candidates: Candidates, index: Index
    ) -> Unfinished:
        """The first `beam_size` of the candidates that go on."""
        size = candidates.ids.shape[1]
        positions = ops.arange(size, dtype="int32") + size * ops.cast(candidates.ends, "int32")
        best = ops.cast(ops.argsort(positions, axis=1), "int32")[:, : self.beam_size]
        going_on = candidates.at(best)
        parents = going_on.parents
        logp = ops.where(going_on.ends, 2 * MASKED, going_on.logp)
        own = ops.broadcast_to(ops.arange(self.beam_size, dtype="int32"), ops.shape(best))
        slots = write_at(take_beams(unfinished.back_pointers.slots, parents), own, index + 1)
        inside = index < unfinished.prompt_lengths
        return Unfinished(
            ids=going_on.ids,
            tokens=going_on.tokens,
            logp=logp,
            coverage=going_on.coverage,
            back_pointers=BackPointers(parents, slots),
            prompt_lengths=unfinished.prompt_lengths,
            prompt_logp=ops.where(inside, logp[:, 0], unfinished.prompt_logp),
            progress=going_on.progress,
        )

    def finish(
        self, hypotheses: Hypotheses, length: Index, request: Request
    ) -> DecodedBeams[Tensor]:
        """The `n_best` of each source."""
        unfinished, finished = hypotheses
        cut = ops.logical_not(finished.done)
        finished = self._with_truncated(finished, unfinished, length, cut, request)
        best = 0 if self.n_best == 1 else slice(self.n_best)
        tokens, scores, logp = finished.tokens[:, best], finished.scores[:, best], finished.logp
        logp = logp[:, best]
        # There may be fewer sequences than beams: all others are empty.
        there = logp > MASKED / 2
        tokens = ops.where(there[..., None], tokens, request.padding_id)
        return {
            "tokens": tokens,
            "scores": ops.where(there, scores, -np.inf),
            "lengths": lengths_of(tokens, request.padding_id),
            "finished": self.constraints.boundaries.finished(tokens, request),
            "log_probabilities": ops.where(there, logp, -np.inf),
        }

    def _with_truncated(
        self,
        finished: Finished,
        unfinished: Unfinished,
        length: Index,
        rows: Tensor,
        request: Request,
    ) -> Finished:
        """The best of what has finished and, in `rows` of the batch, of what is cut at a length."""
        cut = self._score(unfinished, unfinished, length, request)
        cut, order = ops.top_k(cut, self.beam_size)
        order = ops.cast(order, "int32")
        if self._truncated_compete:
            competing = ops.where(rows[:, None], cut, 2 * MASKED)
            scores = ops.concatenate([finished.scores, competing], axis=1)
            best = ops.cast(ops.top_k(scores, self.beam_size)[1], "int32")
        else:
            # Both halves are sorted: the finished ones that there are, then the best of the cut.
            position = ops.arange(self.beam_size, dtype="int32")[None]
            ended = ops.where(rows, ops.minimum(finished.number, self.beam_size), self.beam_size)
            ended = ended[:, None]
            best = ops.where(position < ended, position, position + self.beam_size - ended)

        def joined(finished: Tensor, cut: Tensor) -> Tensor:
            return take_beams(ops.concatenate([finished, cut], axis=1), best)

        return finished._replace(
            tokens=joined(finished.tokens, take_beams(unfinished.tokens, order)),
            logp=joined(finished.logp, ops.take_along_axis(unfinished.logp, order, axis=1)),
            scores=joined(finished.scores, cut),
        )
