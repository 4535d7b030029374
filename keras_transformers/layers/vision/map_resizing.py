"""Maps of features at other sizes."""

from keras import ops

from keras_transformers.annotations import Index, Tensor


def resize_map(x: Tensor, rows: Index, columns: Index) -> Tensor:
    """A map at another size, bilinear, by the centres of its positions; not antialiased.

    Each axis is multiplied by a matrix of shares, so that sizes may be known in the call only and
    gradients are products of matrices, too. What PyTorch computes with `align_corners=False`.

    Args:
        x: `(batch, rows, columns, width)`, floating.
        rows, columns: Of the result.

    Returns:
        `(batch, rows, columns, width)`, of the dtype of `x`; computed in float32.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import resize_map
    >>> np.asarray(resize_map(np.array([[[[0.0], [1.0]]]], "float32"), 1, 4))[0, 0, :, 0].tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    x = ops.convert_to_tensor(x)
    _, old_rows, old_columns, _ = ops.shape(x)
    y = ops.cast(x, "float32")
    y = ops.einsum("ri,bijw->brjw", _shares(old_rows, rows), y)
    y = ops.einsum("cj,brjw->brcw", _shares(old_columns, columns), y)
    return ops.cast(y, x.dtype)


def old_positions(old: Index, new: Index) -> Tensor:
    """Where the centre of each new position lies among the old ones: float32 `(new,)`."""
    scale = ops.cast(old, "float32") / ops.cast(new, "float32")
    positions = (ops.arange(new, dtype="float32") + 0.5) * scale - 0.5
    return ops.clip(positions, 0.0, ops.cast(old, "float32") - 1.0)


def _shares(old: Index, new: Index) -> Tensor:
    """How much of each old position is in each new one: float32 `(new, old)`."""
    distances = old_positions(old, new)[:, None] - ops.arange(old, dtype="float32")
    return ops.maximum(1.0 - ops.abs(distances), 0.0)
