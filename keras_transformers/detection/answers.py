"""From what a detector computes to what it says."""

from typing import Literal, TypedDict

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.detection.boxes import corner_boxes


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
