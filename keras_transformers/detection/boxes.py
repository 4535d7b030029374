"""Boxes as corners or as centres, and how well two of them agree."""

from keras import ops

from keras_transformers.annotations import Tensor


def corner_boxes(boxes: Tensor) -> Tensor:
    """`(..., 4)` boxes `(x centre, y centre, width, height)` -> `(left, top, right, bottom)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import corner_boxes
    >>> np.asarray(corner_boxes(np.array([0.5, 0.5, 0.25, 1.0]))).tolist()
    [0.375, 0.0, 0.625, 1.0]
    """
    centers, sizes = boxes[..., :2], boxes[..., 2:]
    return ops.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)


def center_boxes(boxes: Tensor) -> Tensor:
    """The inverse of `corner_boxes`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import center_boxes
    >>> np.asarray(center_boxes(np.array([0.375, 0.0, 0.625, 1.0]))).tolist()
    [0.5, 0.5, 0.25, 1.0]
    """
    first, second = boxes[..., :2], boxes[..., 2:]
    return ops.concatenate([(first + second) / 2, second - first], axis=-1)


def box_areas(boxes: Tensor) -> Tensor:
    """Areas `(...)` of corner boxes `(..., 4)`; 0 where a side is negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import box_areas
    >>> float(box_areas(np.array([1.0, 1.0, 3.0, 4.0])))
    6.0
    """
    sides = ops.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def _overlap(boxes: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of intersection and of union of corner boxes that broadcast."""
    first = ops.maximum(boxes[..., :2], others[..., :2])
    second = ops.minimum(boxes[..., 2:], others[..., 2:])
    inside = box_areas(ops.concatenate([first, second], axis=-1))
    return inside, box_areas(boxes) + box_areas(others) - inside


def box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of corner boxes, one by one.

    Args:
        boxes, others: `(..., 4)`, which broadcast: `pairwise_iou` is `box_iou(boxes[:, None],
            others[None])`.

    Returns:
        `(...)` in [0, 1]; 0 where both boxes are empty.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import box_iou
    >>> round(float(box_iou(np.array([0.0, 0, 2, 2]), np.array([1.0, 0, 3, 2]))), 4)
    0.3333
    """
    inside, union = _overlap(boxes, others)
    return inside / ops.where(union > 0, union, ops.ones_like(union))


def pairwise_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of all pairs of corner boxes, `(..., n, 4)` and `(..., m, 4)`.

    Returns:
        `(..., n, m)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import pairwise_iou
    >>> tuple(pairwise_iou(np.ones((3, 4)), np.ones((5, 4))).shape)
    (3, 5)
    """
    return box_iou(boxes[..., :, None, :], others[..., None, :, :])


def generalized_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Generalised intersection over union of corner boxes, one by one.

    `IoU - |hull without union| / |hull|` with the smallest box around both (Rezatofighi et al.
    2019, https://arxiv.org/abs/1902.09630, algorithm 1): in (-1, 1], with a gradient where boxes do
    not touch.

    Args:
        boxes, others: `(..., 4)`, which broadcast.

    Returns:
        `(...)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import generalized_iou
    >>> float(generalized_iou(np.array([0.0, 0, 1, 1]), np.array([3.0, 0, 4, 1])))
    -0.5
    """
    inside, union = _overlap(boxes, others)
    first = ops.minimum(boxes[..., :2], others[..., :2])
    second = ops.maximum(boxes[..., 2:], others[..., 2:])
    hull = box_areas(ops.concatenate([first, second], axis=-1))
    one = ops.ones_like(union)
    iou = inside / ops.where(union > 0, union, one)
    return iou - (hull - union) / ops.where(hull > 0, hull, one)
