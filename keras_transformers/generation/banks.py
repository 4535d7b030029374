"""Beams that are kept for hypotheses with some of the phrases that are demanded.

Post and Vilar 2018, https://arxiv.org/abs/1804.06609.
"""

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.generation.hypotheses import Candidates
from keras_transformers.generation.phrases import Demands, Progress, levels, next_ids
from keras_transformers.generation.request import MASKED


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


def by_banks(demands: Demands, candidates: Candidates, beams: int, most: int) -> Candidates:
    """Puts first the best few of each bank, then the others.

    Args:
        demands: The `Demands`.
        candidates: `Candidates`, best first.
        beams: Number of positions, shared equally by the banks that there are.
        most: Number of candidates to keep.
    """
    level = levels(demands, candidates.progress)
    possible = candidates.logp > MASKED / 2
    size = candidates.ids.shape[1]
    before = ops.arange(size)[:, None] > ops.arange(size)
    same = ops.logical_and(level[..., None] == level[:, None], possible[:, None])
    rank = ops.sum(ops.cast(ops.logical_and(same, before), "int32"), axis=-1)  # in its bank
    banks = ops.sum(ops.cast(ops.logical_and(rank == 0, possible), "int32"), axis=1, keepdims=True)
    quota = ops.maximum(1, beams // ops.maximum(banks, 1))
    first = ops.cast(ops.logical_and(rank < quota, possible), "int32")
    order = ops.argsort(ops.arange(size) - size * first, axis=1)[:, :most]
    return candidates.at(ops.cast(order, "int32"))
