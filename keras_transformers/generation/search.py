"""Greedy and beam search over a step function, as loops that XLA can compile.

A search sees no model, only `step(ids, index, state) -> (logits, state)`, where `ids` are
`(batch, beams)`, logits `(batch, beams, vocab)` and every tensor of `state` starts with
`(batch, beams)`. Scores are natural logarithms, in float32.
"""

import dataclasses

import keras
from keras import ops

NEVER = -1e9  # score of what must not be chosen; finite, so that sums stay finite


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


def _log_probabilities(logits, forced):
    """Log-softmax in float32; allows `forced` (batch,) alone or, where it is 0, all but padding."""
    logp = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    tokens = ops.arange(logp.shape[-1], dtype="int32")
    allowed = ops.where(forced[:, None] == 0, tokens != 0, forced[:, None] == tokens)
    return ops.where(allowed[:, None, :], logp, NEVER)


def _put(tokens, ids, index):
    """Writes `ids` (..., ) at place `index` of the last axis of `tokens` (..., length)."""
    here = ops.arange(tokens.shape[-1]) == index
    return ops.where(here, ids[..., None], tokens)


def _take_beams(tensor, beams):
    """Picks `beams` (batch, n) along axis 1 of `tensor` (batch, beams, ...)."""
    batch, width = ops.shape(tensor)[0], tensor.shape[1]
    rows = beams + width * ops.arange(batch, dtype="int32")[:, None]
    flat = ops.reshape(tensor, (-1, *ops.shape(tensor)[2:]))
    return ops.take(flat, rows, axis=0)


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Takes the most probable token at every step, until END.

    The score of a sequence is its log-probability.

    Example:
    >>> from keras_transformers.generation import Greedy
    >>> Greedy().beams
    1
    """

    beams = 1

    def __call__(self, step, state, forced, start_id, end_id):
        """Searches.

        Args:
            step: The step function of this module's docstring.
            state: Its first state.
            forced: Integers `(batch, max_length)`: tokens that must be taken; 0 leaves the choice.
            start_id: The token before the first.
            end_id: The token that ends a sequence.

        Returns:
            Dict of `tokens` `(batch, max_length)`, 0 after END, `scores` `(batch,)` and `lengths`
            `(batch,)`, END included.
        """
        batch, max_length = ops.shape(forced)[0], forced.shape[1]

        def unfinished(index, ids, tokens, scores, finished, state):
            return ops.logical_and(index < max_length, ops.logical_not(ops.all(finished)))

        def advance(index, ids, tokens, scores, finished, state):
            logits, state = step(ids[:, None], index, state)
            logp = _log_probabilities(logits, ops.take(forced, index, axis=1))[:, 0]
            ids = ops.where(finished, 0, ops.cast(ops.argmax(logp, axis=-1), "int32"))
            scores = scores + ops.where(finished, 0.0, ops.max(logp, axis=-1))
            finished = ops.logical_or(finished, ids == end_id)
            return index + 1, ids, _put(tokens, ids, index), scores, finished, state

        _, _, tokens, scores, _, _ = ops.while_loop(
            unfinished,
            advance,
            (
                ops.convert_to_tensor(0, "int32"),
                ops.full((batch,), start_id, "int32"),
                ops.zeros((batch, max_length), "int32"),
                ops.zeros((batch,), "float32"),
                ops.zeros((batch,), "bool"),
                state,
            ),
        )
        lengths = ops.sum(ops.cast(tokens != 0, "int32"), axis=-1)
        return {"tokens": tokens, "scores": scores, "lengths": lengths}


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Keeps the `beam_size` most probable unfinished sequences, and sets finished ones aside.

    A sequence whose END ranks among the best `beam_size` continuations is finished: it is frozen,
    with its log-probability divided by `length_penalty`, and its place goes to the next unfinished
    one. A source is done when `beam_size` sequences have finished. With one beam this is greedy
    search.

    Args:
        beam_size: Number of unfinished sequences (4 in Vaswani et al. 2017).
        length_penalty: `alpha` in `((5 + |y|) / 6) ** alpha`; 0 ranks by log-probability.
        n_best: Number of sequences to return for each source, best first.

    Raises:
        ValueError: If `beam_size` is not positive or `n_best` not between 1 and `beam_size`.

    Example:
    >>> from keras_transformers.generation import BeamSearch
    >>> BeamSearch(beam_size=4, n_best=2).beams
    4
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1

    def __post_init__(self):
        if self.beam_size < 1 or not 1 <= self.n_best <= self.beam_size:
            raise ValueError(
                "BeamSearch: `beam_size` must be at least 1 and `n_best` between 1 and "
                f"`beam_size`. Received: beam_size={self.beam_size}, n_best={self.n_best}"
            )

    @property
    def beams(self):
        return self.beam_size

    def __call__(self, step, state, forced, start_id, end_id):
        """Searches; arguments as for `Greedy`.

        Returns:
            Dict of `tokens` `(batch, [n_best,] max_length)`, 0 after END, `scores`
            `(batch, [n_best])`, penalised, best first, and `lengths` `(batch, [n_best])`.
        """
        batch, max_length, beams = ops.shape(forced)[0], forced.shape[1], self.beam_size
        first = ops.where(ops.arange(beams) == 0, 0.0, NEVER)  # all beams start equal: use one
        alive = {
            "ids": ops.full((batch, beams), start_id, "int32"),
            "tokens": ops.zeros((batch, beams, max_length), "int32"),
            "logp": ops.broadcast_to(first, (batch, beams)),
        }
        finished = {
            "tokens": ops.zeros((batch, beams, max_length), "int32"),
            "scores": ops.full((batch, beams), NEVER, "float32"),
            "count": ops.zeros((batch,), "int32"),
        }

        def unfinished(index, alive, finished, state):
            return ops.logical_and(index < max_length, ops.any(finished["count"] < beams))

        def advance(index, alive, finished, state):
            logits, state = step(alive["ids"], index, state)
            logp = _log_probabilities(logits, ops.take(forced, index, axis=1))
            candidates = self._extend(alive, logp, index, end_id)
            finished = self._set_aside(finished, candidates, index)
            alive, parents = self._keep(candidates)
            reorder = keras.tree.map_structure(lambda tensor: _take_beams(tensor, parents), state)
            return index + 1, alive, finished, reorder

        index, alive, finished, _ = ops.while_loop(
            unfinished, advance, (ops.convert_to_tensor(0, "int32"), alive, finished, state)
        )
        return self._best(alive, finished, index)

    def _extend(self, alive, logp, index, end_id):
        """The best `2 * beams` continuations: enough for `beams` that do not end."""
        batch, beams, vocab = ops.shape(logp)[0], self.beam_size, logp.shape[-1]
        total = ops.reshape(alive["logp"][:, :, None] + logp, (batch, beams * vocab))
        logp, places = ops.top_k(total, min(2 * beams, beams * vocab))
        places = ops.cast(places, "int32")
        parents, ids = places // vocab, places % vocab
        tokens = _put(_take_beams(alive["tokens"], parents), ids, index)
        ends = ops.logical_and(ids == end_id, logp > NEVER / 2)
        return {"logp": logp, "parents": parents, "ids": ids, "tokens": tokens, "ends": ends}

    def _set_aside(self, finished, candidates, index):
        """Freezes the continuations that end among the best `beams`."""
        rank = ops.arange(candidates["ids"].shape[1])
        open_source = (finished["count"] < self.beam_size)[:, None]
        ends = ops.logical_and(candidates["ends"], (rank < self.beam_size)[None])
        ends = ops.logical_and(ends, open_source)
        scores = candidates["logp"] / length_penalty(index + 1, self.length_penalty)
        scores = ops.concatenate([finished["scores"], ops.where(ends, scores, NEVER)], axis=1)
        tokens = ops.concatenate([finished["tokens"], candidates["tokens"]], axis=1)
        scores, best = ops.top_k(scores, self.beam_size)
        return {
            "tokens": _take_beams(tokens, ops.cast(best, "int32")),
            "scores": scores,
            "count": finished["count"] + ops.sum(ops.cast(ends, "int32"), axis=1),
        }

    def _keep(self, candidates):
        """The best `beams` continuations that go on, and the beams they came from."""
        logp = ops.where(candidates["ends"], 2 * NEVER, candidates["logp"])
        logp, best = ops.top_k(logp, self.beam_size)
        best = ops.cast(best, "int32")
        alive = {
            "ids": ops.take_along_axis(candidates["ids"], best, axis=1),
            "tokens": _take_beams(candidates["tokens"], best),
            "logp": logp,
        }
        return alive, ops.take_along_axis(candidates["parents"], best, axis=1)

    def _best(self, alive, finished, length):
        """The `n_best` of each source; sequences cut at the limit come after finished ones."""
        cut = alive["logp"] / length_penalty(length, self.length_penalty)
        scores = ops.concatenate([finished["scores"], cut], axis=1)
        tokens = ops.concatenate([finished["tokens"], alive["tokens"]], axis=1)
        # Both halves are sorted: the finished ones that there are, then the best of the cut.
        place = ops.arange(self.n_best, dtype="int32")[None]
        ended = ops.minimum(finished["count"], self.beam_size)[:, None]
        best = ops.where(place < ended, place, place + self.beam_size - ended)
        tokens, scores = _take_beams(tokens, best), ops.take_along_axis(scores, best, axis=1)
        if self.n_best == 1:
            tokens, scores = tokens[:, 0], scores[:, 0]
        lengths = ops.sum(ops.cast(tokens != 0, "int32"), axis=-1)
        return {"tokens": tokens, "scores": scores, "lengths": lengths}
