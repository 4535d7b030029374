"""What the score of a hypothesis is besides its log-probability."""

from keras import ops

from keras_transformers.annotations import Index, Tensor


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
