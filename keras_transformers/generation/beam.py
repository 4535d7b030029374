"""Beam search over a step function, as a loop that XLA can compile."""

import dataclasses
from typing import Any, Literal

from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.generation.banks import by_banks, with_required
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.penalties import coverage_penalty, length_penalty
from keras_transformers.generation.request import (
    NEVER,
    Ancestry,
    Beams,
    DecodedBeams,
    Found,
    Opening,
    Request,
    lengths_of,
    limits_of,
    log_normalizer,
    prompt_lengths,
    put,
    take_beams,
    top_tokens,
)
from keras_transformers.generation.search import Search, Step


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
        length_penalty: `alpha` in `((5 + |y|) / 6) ** alpha`; 0 ranks by log-probability.
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
        n_best: Number of sequences to return for each source, best first.
        constraints: `Constraints` on what may be chosen.

    Raises:
        ValueError: If `beam_size` is not positive, `n_best` not between 1 and `beam_size`, or
            `normalization` or `early_stopping` unknown.

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
        if self.beam_size < 1 or not 1 <= self.n_best <= self.beam_size:
            raise ValueError(
                "BeamSearch: `beam_size` must be at least 1 and `n_best` between 1 and "
                f"`beam_size`. Received: beam_size={self.beam_size}, n_best={self.n_best}"
            )

    @property
    def beams(self) -> int:
        return self.beam_size

    def start(self, request: Request, opening: Opening) -> Found:
        batch, max_length = ops.shape(request.forced)
        shape = (batch, self.beam_size)
        ids, tokens, scores = (
            ops.repeat(part, self.beam_size, axis=1) for part in opening.sequences(request)
        )
        own = ops.broadcast_to(ops.arange(self.beam_size, dtype="int32"), shape)
        # All beams start equal, so that one of them is enough.
        first = ops.where(ops.arange(self.beam_size) == 0, 0.0, NEVER)
        alive = {
            "ids": ids,
            "tokens": tokens,
            "logp": scores + first,
            "covered": ops.zeros(shape, "float32"),
            "parents": own,
            "slots": ops.broadcast_to(own[..., None], (*shape, max_length)),
            **self._prompt(request, opening),
        }
        finished = {
            "tokens": ops.full((*shape, max_length), request.padding_id, "int32"),
            "scores": ops.full(shape, NEVER, "float32"),
            "logp": ops.full(shape, NEVER, "float32"),
            "count": ops.zeros((batch,), "int32"),
            "done": ops.zeros((batch,), "bool"),
        }
        return {"alive": alive, "finished": finished}

    def _prompt(self, request: Request, opening: Opening) -> Beams:
        """Length of each prompt, and the log-probability of what of it has been taken."""
        if self.normalization != "length":
            return {}
        return {"prompt": prompt_lengths(request), "given": opening.scores}

    @property
    def _stops_at_once(self) -> bool:
        return self.early_stopping not in (False, "never")

    @property
    def _cut_compete(self) -> bool:
        return self.normalization == "length" or not self._stops_at_once

    def done(self, found: Found) -> Tensor:
        return found["finished"]["done"]

    def advance(
        self, step: Step, index: Index, found: Found, state: Any, request: Request
    ) -> tuple[Found, Any]:
        alive = found["alive"]
        ancestry = Ancestry(alive["parents"], alive["slots"])
        logits, state = step(alive["ids"], index, state, ancestry)
        covered = alive["covered"]
        if self.coverage_penalty:
            covered = coverage_penalty(state["coverage"], self.coverage_penalty)
        candidates = self._extend(alive, logits, covered, index, request)
        finished = self._set_aside(found["finished"], candidates, alive, index)
        alive = self._keep(alive, candidates, index)
        done = self._done(finished, alive, index, request)
        if request.cut_lengths is not None:
            now = index + 1 >= request.cut_lengths
            cut = ops.logical_and(now, ops.logical_not(finished["done"]))
            finished = {**finished, **self._with_cut(finished, alive, index + 1, cut)}
            done = ops.logical_or(done, now)
        finished["done"] = done
        return {"alive": alive, "finished": finished}, state

    def _done(self, finished: Beams, alive: Beams, index: Index, request: Request) -> Tensor:
        """Which sources need no further step."""
        enough, most = finished["count"] >= self.beam_size, ops.shape(request.forced)[1]
        if not self._stops_at_once:
            length = index + 1
            if self.early_stopping == "never" and self.length_penalty > 0:
                length = ops.reshape(limits_of(request), (-1, 1))
            best = ops.max(self._score(alive, alive, length), axis=1)
            enough = ops.logical_and(enough, best <= ops.min(finished["scores"], axis=1))
        elif self._cut_compete:  # also with those that finish in the last step
            enough = ops.logical_and(enough, index + 1 < most)
        return ops.logical_or(finished["done"], enough)

    def _extend(
        self, alive: Beams, logits: Tensor, covered: Tensor, index: Index, request: Request
    ) -> Beams:
        """The best continuations, sorted: enough for `beam_size` that do not end.

        With one END those are `2 * beam_size`.
        """
        beams, vocab = self.beam_size, logits.shape[-1]
        logits = ops.cast(logits, "float32")
        normalizer = log_normalizer(logits)
        logits = self.constraints.restrict(logits, alive["tokens"], index, request)
        # Of one beam no more can be needed: its ENDs, and as many others as there are beams.
        boundaries = self.constraints.boundaries
        ends = max(1, len(boundaries.ends))
        best, ids = top_tokens(logits, min(beams + ends, vocab))
        if self.constraints.required:
            best, ids = with_required(self.constraints, best, ids, logits)
        # What is not allowed stays below all that is, however unlikely.
        logp = self.constraints.log_probabilities(logits, best, normalizer, index, request)
        logp = ops.where(best > NEVER / 2, logp, NEVER)
        number = ids.shape[-1]
        logp = ops.reshape(alive["logp"][..., None] + logp, (-1, beams * number))
        enough = beams * number  # banks are filled from all of them
        if not self.constraints.required:
            enough = min((1 + ends) * beams, enough)
        sorted_logp, positions = ops.top_k(logp, enough)
        positions = ops.cast(positions, "int32")
        parents = positions // number
        ids = ops.take_along_axis(ops.reshape(ids, (-1, beams * number)), positions, axis=1)
        candidates = {
            "logp": sorted_logp,
            "parents": parents,
            "ids": ids,
            "covered": ops.take_along_axis(covered, parents, axis=1),
            "tokens": put(take_beams(alive["tokens"], parents), ids, index),
            "ends": ops.logical_and(boundaries.ended(ids, index, request), sorted_logp > NEVER / 2),
        }
        if not self.constraints.required:
            return candidates
        return by_banks(self.constraints, candidates, beams, (1 + ends) * beams)

    def _set_aside(self, finished: Beams, candidates: Beams, alive: Beams, index: Index) -> Beams:
        """Freezes the continuations that end among the best `beam_size`."""
        rank = ops.arange(candidates["ids"].shape[1])
        ends = ops.logical_and(candidates["ends"], (rank < self.beam_size)[None])
        ends = ops.logical_and(ends, ops.logical_not(finished["done"])[:, None])
        scores = self._score(candidates, alive, index + 1)
        scores = ops.concatenate([finished["scores"], ops.where(ends, scores, NEVER)], axis=1)
        logp = ops.concatenate([finished["logp"], candidates["logp"]], axis=1)
        tokens = ops.concatenate([finished["tokens"], candidates["tokens"]], axis=1)
        scores, best = ops.top_k(scores, self.beam_size)
        best = ops.cast(best, "int32")
        return {
            "tokens": take_beams(tokens, best),
            "scores": scores,
            "logp": ops.take_along_axis(logp, best, axis=1),
            "count": finished["count"] + ops.sum(ops.cast(ends, "int32"), axis=1),
            "done": finished["done"],
        }

    def _score(self, sequences: Beams, alive: Beams, length: Index) -> Tensor:
        """Scores of sequences of a length, a scalar or `(batch, 1)`.

        `alive` knows what their prompts were.
        """
        if self.normalization == "gnmt":
            penalty = length_penalty(length, self.length_penalty)
            return sequences["logp"] / penalty + sequences["covered"]
        own = ops.cast(ops.maximum(length - alive["prompt"][:, None], 1), "float32")
        own_logp = sequences["logp"] - alive["given"][:, None]
        return own_logp / ops.power(own, self.length_penalty) + sequences["covered"]

    def _keep(self, alive: Beams, candidates: Beams, index: Index) -> Beams:
        """The first `beam_size` of the candidates that go on."""
        size = candidates["ids"].shape[1]
        positions = ops.arange(size, dtype="int32") + size * ops.cast(candidates["ends"], "int32")
        best = ops.cast(ops.argsort(positions, axis=1), "int32")[:, : self.beam_size]
        names = ("ids", "tokens", "covered", "parents")
        kept = {name: take_beams(candidates[name], best) for name in names}
        logp = ops.where(candidates["ends"], 2 * NEVER, candidates["logp"])
        logp = ops.take_along_axis(logp, best, axis=1)
        own = ops.broadcast_to(ops.arange(self.beam_size, dtype="int32"), ops.shape(best))
        if "prompt" in alive:
            inside = index < alive["prompt"]
            kept["prompt"] = alive["prompt"]
            kept["given"] = ops.where(inside, logp[:, 0], alive["given"])
        return {
            **kept,
            "logp": logp,
            "slots": put(take_beams(alive["slots"], kept["parents"]), own, index + 1),
        }

    def finish(self, found: Found, length: Index, request: Request) -> DecodedBeams[Tensor]:
        """The `n_best` of each source."""
        finished = found["finished"]
        going_on = ops.logical_not(finished["done"])
        result = self._with_cut(finished, found["alive"], length, going_on)
        best = 0 if self.n_best == 1 else slice(self.n_best)
        tokens, scores, logp = (result[name][:, best] for name in ("tokens", "scores", "logp"))
        lengths = lengths_of(tokens, request.padding_id)
        return {"tokens": tokens, "scores": scores, "lengths": lengths, "log_probabilities": logp}

    def _with_cut(self, finished: Beams, alive: Beams, length: Index, rows: Tensor) -> Beams:
        """The best of what has finished and, in `rows` of the batch, of what is cut at a length."""
        cut = self._score(alive, alive, length)
        cut, order = ops.top_k(cut, self.beam_size)
        order = ops.cast(order, "int32")
        joined = {
            "tokens": [finished["tokens"], take_beams(alive["tokens"], order)],
            "scores": [finished["scores"], cut],
            "logp": [finished["logp"], ops.take_along_axis(alive["logp"], order, axis=1)],
        }
        if self._cut_compete:
            cut = ops.where(rows[:, None], cut, 2 * NEVER)
            scores = ops.concatenate([finished["scores"], cut], axis=1)
            best = ops.cast(ops.top_k(scores, self.beam_size)[1], "int32")
        else:
            # Both halves are sorted: the finished ones that there are, then the best of the cut.
            position = ops.arange(self.beam_size, dtype="int32")[None]
            ended = ops.where(rows, ops.minimum(finished["count"], self.beam_size), self.beam_size)
            ended = ended[:, None]
            best = ops.where(position < ended, position, position + self.beam_size - ended)
        return {n: take_beams(ops.concatenate(two, axis=1), best) for n, two in joined.items()}
