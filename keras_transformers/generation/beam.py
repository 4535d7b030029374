"""Beam search over a step function, as a loop that XLA can compile."""

import dataclasses

from keras import ops

from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.request import (
    NEVER,
    Ancestry,
    lengths_of,
    log_normalizer,
    put,
    take_beams,
    top_tokens,
)
from keras_transformers.generation.search import Search


def length_penalty(length, alpha):
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


def coverage_penalty(coverage, beta):
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


@dataclasses.dataclass(frozen=True)
class BeamSearch(Search):
    """Keeps the `beam_size` most probable unfinished sequences, and sets finished ones aside.

    A sequence whose END ranks among the best `beam_size` continuations is finished: it is frozen,
    scored by `log p / length_penalty + coverage_penalty`, and its place goes to the next unfinished
    one. A source is done when `beam_size` sequences have finished. With one beam this is greedy
    search.

    `BeamSearch(4, 1.0, normalization="length", early_stopping=False)` is the beam search of Hugging
    Face's `generate` with its defaults, to the token.

    Args:
        beam_size: Number of unfinished sequences (4 in Vaswani et al. 2017).
        length_penalty: `alpha` in `((5 + |y|) / 6) ** alpha`; 0 ranks by log-probability.
        normalization: "gnmt" for that penalty, or "length" for `|y| ** alpha`, where neither the
            length nor the probability of a prompt is counted.
        early_stopping: Whether a source is done as soon as `beam_size` sequences have finished.
            If not, better ones take their places until the best unfinished one, scored at its
            present length, is no better than the worst of them; and sequences cut at the limit
            compete with those that finished.
        coverage_penalty: `beta` of `generation.coverage_penalty`; needs a model whose
            `start_decoding` knows `coverage`.
        n_best: Number of sequences to return for each source, best first.
        constraints: `Constraints` on what may be chosen.

    Raises:
        ValueError: If `beam_size` is not positive, `n_best` not between 1 and `beam_size`, or
            `normalization` unknown.

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
    normalization: str = "gnmt"
    early_stopping: bool = True

    def __post_init__(self):
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
    def beams(self):
        return self.beam_size

    def start(self, request, opening):
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

    def _prompt(self, request, opening):
        """Length of each prompt, and the log-probability of what of it has been taken."""
        if self.normalization != "length":
            return {}
        given = ops.cast(request.forced != request.padding_id, "int32")
        return {"prompt": ops.sum(ops.cumprod(given, axis=1), axis=1), "given": opening.scores}

    def done(self, found):
        return found["finished"]["done"]

    def advance(self, step, index, found, state, request):
        alive = found["alive"]
        ancestry = Ancestry(alive["parents"], alive["slots"])
        logits, state = step(alive["ids"], index, state, ancestry)
        covered = alive["covered"]
        if self.coverage_penalty:
            covered = coverage_penalty(state["coverage"], self.coverage_penalty)
        candidates = self._extend(alive, logits, covered, index, request)
        finished = self._set_aside(found["finished"], candidates, alive, index)
        alive = self._keep(alive, candidates, index)
        enough = finished["count"] >= self.beam_size
        if not self.early_stopping:
            best = ops.max(self._score(alive, alive, index + 1), axis=1)
            hopeless = best <= ops.min(finished["scores"], axis=1)
            enough = ops.logical_and(enough, hopeless)
        finished["done"] = ops.logical_or(finished["done"], enough)
        return {"alive": alive, "finished": finished}, state

    def _extend(self, alive, logits, covered, index, request):
        """The best `2 * beam_size` continuations, sorted: enough for as many that do not end."""
        beams, vocab = self.beam_size, logits.shape[-1]
        logits = ops.cast(logits, "float32")
        most, log_sum = log_normalizer(logits)
        logits = self.constraints.restrict(logits, alive["tokens"], index, request)
        # Of one beam no more can be needed: its END, and as many others as there are beams.
        best, ids = top_tokens(logits, min(beams + 1, vocab))
        if self.constraints.required:
            best, ids = self._with_required(best, ids, logits)
        # What is not allowed stays below all that is, however unlikely.
        logp = ops.where(best > NEVER / 2, best - most[..., None] - log_sum[..., None], NEVER)
        number = ids.shape[-1]
        logp = ops.reshape(alive["logp"][..., None] + logp, (-1, beams * number))
        # Banks are filled from all of them.
        enough = beams * number if self.constraints.required else min(2 * beams, beams * number)
        sorted_logp, places = ops.top_k(logp, enough)
        places = ops.cast(places, "int32")
        parents = places // number
        ids = ops.take_along_axis(ops.reshape(ids, (-1, beams * number)), places, axis=1)
        candidates = {
            "logp": sorted_logp,
            "parents": parents,
            "ids": ids,
            "covered": ops.take_along_axis(covered, parents, axis=1),
            "tokens": put(take_beams(alive["tokens"], parents), ids, index),
            "ends": ops.logical_and(ids == request.end_id, sorted_logp > NEVER / 2),
        }
        return self._by_banks(candidates) if self.constraints.required else candidates

    def _with_required(self, best, ids, logits):
        """Puts the required tokens behind the best, where they are not among them."""
        required = ops.convert_to_tensor(self.constraints.required, "int32")
        among = ops.any(ids[..., None] == required, axis=-2)
        extra = ops.where(among, NEVER, ops.take(logits, required, axis=-1))
        required = ops.broadcast_to(required, ops.shape(extra))
        return ops.concatenate([best, extra], -1), ops.concatenate([ids, required], -1)

    def _by_banks(self, candidates):
        """Puts first the best few of those with 0, 1, 2 ... required tokens, then the others."""
        met = ops.sum(ops.cast(self.constraints.met(candidates["tokens"]), "int32"), axis=-1)
        banks = len(self.constraints.required) + 1
        bank = ops.cast(met[..., None] == ops.arange(banks), "int32")
        rank = ops.sum(ops.cumsum(bank, axis=1) * bank, axis=-1)  # from 1, inside its bank
        quota = max(1, self.beam_size // banks)
        possible = candidates["logp"] > NEVER / 2
        first = ops.cast(ops.logical_and(rank <= quota, possible), "int32")
        size = first.shape[1]
        order = ops.argsort(ops.arange(size) - size * first, axis=1)[:, : 2 * self.beam_size]
        order = ops.cast(order, "int32")
        return {name: take_beams(each, order) for name, each in candidates.items()}

    def _set_aside(self, finished, candidates, alive, index):
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

    def _score(self, sequences, alive, length):
        """Scores of sequences of a length; `alive` knows what their prompts were."""
        if self.normalization == "gnmt":
            penalty = length_penalty(length, self.length_penalty)
            return sequences["logp"] / penalty + sequences["covered"]
        own = ops.cast(ops.maximum(length - alive["prompt"], 1), "float32")[:, None]
        own_logp = sequences["logp"] - alive["given"][:, None]
        return own_logp / ops.power(own, self.length_penalty) + sequences["covered"]

    def _keep(self, alive, candidates, index):
        """The first `beam_size` of the candidates that go on."""
        size = candidates["ids"].shape[1]
        places = ops.arange(size, dtype="int32") + size * ops.cast(candidates["ends"], "int32")
        best = ops.cast(ops.argsort(places, axis=1), "int32")[:, : self.beam_size]
        kept = {
            name: take_beams(candidates[name], best)
            for name in ("ids", "tokens", "covered", "parents")
        }
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

    def finish(self, found, length, request):
        """The `n_best` of each source.

        With `early_stopping` sequences cut at the limit come after finished ones.
        """
        alive, finished = found["alive"], found["finished"]
        cut = self._score(alive, alive, length)
        cut, order = ops.top_k(cut, self.beam_size)
        order = ops.cast(order, "int32")
        joined = {
            "tokens": [finished["tokens"], take_beams(alive["tokens"], order)],
            "scores": [finished["scores"], cut],
            "log_probabilities": [
                finished["logp"], ops.take_along_axis(alive["logp"], order, axis=1)
            ],
        }
        if self.early_stopping:
            # Both halves are sorted: the finished ones that there are, then the best of the cut.
            place = ops.arange(self.n_best, dtype="int32")[None]
            ended = ops.minimum(finished["count"], self.beam_size)[:, None]
            best = ops.where(place < ended, place, place + self.beam_size - ended)
        else:
            cut = ops.where(finished["done"][:, None], 2 * NEVER, cut)
            _, best = ops.top_k(ops.concatenate([finished["scores"], cut], axis=1), self.n_best)
            best = ops.cast(best, "int32")
        result = {
            name: take_beams(ops.concatenate(halves, axis=1), best)
            for name, halves in joined.items()
        }
        if self.n_best == 1:
            result = {name: value[:, 0] for name, value in result.items()}
        return {**result, "lengths": lengths_of(result["tokens"], request.padding_id)}
