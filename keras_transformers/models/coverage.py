"""How much each source token was attended to, summed up while decoding."""

from keras import ops

from keras_transformers.annotations import BackPointers, Tensor


def start_coverage(source_mask: Tensor, beams: int) -> Tensor:
    """float32 `(batch, beams, source_length)`: 0 at real tokens, 1 at padding."""
    padding = ops.cast(ops.logical_not(source_mask), "float32")[:, None]
    batch, _, length = ops.shape(padding)
    return ops.broadcast_to(padding, (batch, beams, length))


def add_coverage(coverage: Tensor, weights: Tensor, back_pointers: BackPointers | None) -> Tensor:
    """Each beam's coverage after a step with attention weights `(batch, beams, source_length)`."""
    if back_pointers is not None:
        coverage = ops.take_along_axis(coverage, back_pointers.parents[..., None], axis=1)
    return coverage + ops.cast(weights, "float32")
