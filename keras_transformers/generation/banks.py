"""Beams that are kept for sequences with some of the required tokens.

Post and Vilar 2018, https://arxiv.org/abs/1804.06609.
"""

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.hypotheses import Candidates
from keras_transformers.generation.request import MASKED, take_beams


def with_required(
    constraints: Constraints, best: Tensor, ids: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Puts the required tokens behind the best, where they are not among them."""
    required = ops.convert_to_tensor(constraints.required, "int32")
    among = ops.any(ids[..., None] == required, axis=-2)
    extra = ops.where(among, MASKED, ops.take(logits, required, axis=-1))
    required = ops.broadcast_to(required, ops.shape(extra))
    return ops.concatenate([best, extra], -1), ops.concatenate([ids, required], -1)


def by_banks(constraints: Constraints, candidates: Candidates, beams: int, most: int) -> Candidates:
    """Puts first the best few of those with 0, 1, 2 ... required tokens, then the others.

    Args:
        constraints: `Constraints`.
        candidates: `Candidates`.
        beams: Number of positions.
        most: Number of candidates to keep.
    """
    met = ops.sum(ops.cast(constraints.met(candidates.tokens), "int32"), axis=-1)
    banks = len(constraints.required) + 1
    bank = ops.cast(met[..., None] == ops.arange(banks), "int32")
    rank = ops.sum(ops.cumsum(bank, axis=1) * bank, axis=-1)  # from 1, inside its bank
    quota = max(1, beams // banks)
    possible = candidates.logp > MASKED / 2
    first = ops.cast(ops.logical_and(rank <= quota, possible), "int32")
    size = first.shape[1]
    order = ops.argsort(ops.arange(size) - size * first, axis=1)[:, :most]
    order = ops.cast(order, "int32")
    return Candidates(*(take_beams(each, order) for each in candidates))
