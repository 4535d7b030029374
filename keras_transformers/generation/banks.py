"""Beams that are kept for hypotheses with some of the phrases that are demanded.

Post and Vilar 2018, https://arxiv.org/abs/1804.06609.
"""

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.generation.phrases import Progress, next_ids, standing
from keras_transformers.generation.request import MASKED, Demands

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
