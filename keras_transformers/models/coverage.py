"""How much each source token was attended to, summed up while decoding."""

from keras import ops


def start_coverage(source_mask, beams):
    """float32 `(batch, beams, source_length)`: 0 at real tokens, 1 at padding."""
    padding = ops.cast(ops.logical_not(source_mask), "float32")[:, None]
    batch, _, length = ops.shape(padding)
    return ops.broadcast_to(padding, (batch, beams, length))


def add_coverage(coverage, weights, ancestry):
    """Each beam's coverage after a step with attention weights `(batch, beams, source_length)`."""
    if ancestry is not None:
        coverage = ops.take_along_axis(coverage, ancestry.parents[..., None], axis=1)
    return coverage + ops.cast(weights, "float32")
