"""Boxes: formats, overlap, and the answers of a detector."""

from typing import Literal, TypedDict

from keras import ops

from keras_transformers.core.types import Tensor


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


class Answers(TypedDict):
    """What a detector finds, the surest first."""

    labels: Tensor  # int32 (batch, queries)
    scores: Tensor  # float32 (batch, queries), in [0, 1]
    boxes: Tensor  # (batch, queries, 4), corner boxes inside the image


def best_answers(
    logits: Tensor, boxes: Tensor, classification: Literal["softmax", "focal"] = "softmax"
) -> Answers:
    """The surest classes and their boxes, as many as there are queries; nothing is suppressed.

    With "softmax" each query answers once, with its best class (Carion et al. 2020,
    https://arxiv.org/abs/2005.12872). With "focal", where classes do not exclude one another, the
    surest pairs of a query and a class are the answers, so that a query may give several (Zhu et
    al. 2021, https://arxiv.org/abs/2010.04159, whose authors take the first 100).

    Args:
        logits: `(batch, queries, classes)`, the last class "no object" with "softmax".
        boxes: `(batch, queries, 4)`, centre boxes as shares of the image.
        classification: "softmax" or "focal", see `SetCriterion`.

    Returns:
        Dict of `labels` int32 `(batch, queries)`, `scores` float32 in [0, 1] `(batch, queries)` and
        `boxes` `(batch, queries, 4)`, corner boxes inside the image, the surest first.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import best_answers
    >>> logits = np.array([[[0.0, 9.0], [3.0, 0.0]]], "float32")  # "cat" and no object
    >>> found = best_answers(logits, np.full((1, 2, 4), 0.5, "float32"))
    >>> round(float(found["scores"][0, 0]), 2), np.asarray(found["boxes"])[0, 0].tolist()
    (0.95, [0.25, 0.25, 0.75, 0.75])
    """
    logits = ops.cast(logits, "float32")
    queries, classes = logits.shape[1:]
    if classification == "softmax":
        shares = ops.softmax(logits, axis=-1)[..., :-1]
        best = ops.max(shares, axis=-1)
        query = ops.argsort(-best, axis=-1)
        scores = ops.take_along_axis(best, query, axis=1)
        labels = ops.cast(ops.top_k(shares, 1)[1][..., 0], "int32")
        labels = ops.take_along_axis(labels, query, axis=1)
    else:
        pairs = ops.reshape(ops.sigmoid(logits), (-1, queries * classes))
        scores, pair = ops.top_k(pairs, queries)
        pair = ops.cast(pair, "int32")
        query, labels = pair // classes, pair % classes
    corners = ops.clip(corner_boxes(ops.cast(boxes, "float32")), 0.0, 1.0)
    return {
        "labels": labels,
        "scores": scores,
        "boxes": ops.take_along_axis(corners, query[..., None], axis=1),
    }
