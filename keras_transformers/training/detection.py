"""Scores of detectors: average precision of COCO, and precision and recall of answers."""

import contextlib
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array

BEST = 100  # answers of an image that COCO counts


@dataclasses.dataclass(frozen=True)
class DetectionScores:
    """Scores of predicted boxes against true ones.

    Args:
        ap: COCO's average precision, the mean over IoU thresholds 0.50, 0.55 .. 0.95 and classes,
            in [0, 1].
        ap50, ap75: The same at one threshold.
        precision: Share of the answers that are right.
        recall: Share of the true boxes that are answered.
        threshold: Score from which on a box counted as an answer, for precision and recall.

    Example:
    >>> from keras_transformers.training import DetectionScores
    >>> scores = DetectionScores(0.2, 0.5, 0.1, precision=0.75, recall=0.5, threshold=0.5)
    >>> f"{scores.precision:.0%} of the answers are right"
    '75% of the answers are right'
    """

    ap: float
    ap50: float
    ap75: float
    precision: float
    recall: float
    threshold: float


def score_boxes(
    predicted: Sequence[Mapping[str, Any]],
    true: Sequence[Mapping[str, Any]],
    classes: int,
    threshold: float = 0.5,
    iou: float = 0.4,
) -> DetectionScores:
    """Scores the boxes predicted for a set of images.

    Average precision is that of pycocotools (Lin et al. 2014, https://arxiv.org/abs/1405.0312).
    Precision and recall are those of the literature on tree crowns (Weinstein et al. 2019,
    https://doi.org/10.3390/rs11111309): in each image and class the boxes with a score of at
    least `threshold` are paired one to one with the true ones so that the sum of their
    intersections over union is largest, and a pair with at least `iou` is right.

    Args:
        predicted: For each image a dict of `boxes` `(k, 4)`, corner boxes in pixels, `scores`
            `(k,)` and `labels` `(k,)`.
        true: For each image a dict of `boxes` and `labels`, as `vision.DetectionCorpus.truths`
            gives it. An optional `crowds`, bool `(k,)`, marks boxes around crowds: they need not be
            found, and boxes inside of them are no errors, as in pycocotools.
        classes: Number of classes.
        threshold: Score of an answer.
        iou: Intersection over union of a right answer.

    Returns:
        A `DetectionScores`. Where there are no true boxes average precisions are 0.

    Raises:
        ValueError: If there are not as many images in both.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import score_boxes
    >>> box = np.array([[2.0, 3.0, 12.0, 23.0]])
    >>> found = score_boxes([{"boxes": box, "scores": [0.9], "labels": [0]}],
    ...                     [{"boxes": box, "labels": [0]}], classes=1)
    >>> round(found.ap, 3), found.precision, found.recall
    (1.0, 1.0, 1.0)
    """
    _check(predicted, true)
    averages = _average_precisions(predicted, true, classes)
    right, answers, boxes = _counts(predicted, true, threshold, iou)
    return DetectionScores(
        *averages,
        precision=right / max(answers, 1),
        recall=right / max(boxes, 1),
        threshold=float(threshold),
    )


def best_threshold(
    predicted: Sequence[Mapping[str, Any]],
    true: Sequence[Mapping[str, Any]],
    iou: float = 0.4,
    thresholds: Iterable[float] | None = None,
) -> float:
    """The score from which on boxes are best counted as answers: the one of the highest F1.

    To be chosen on other images than those that are scored with it.

    Args:
        predicted, true, iou: As for `score_boxes`.
        thresholds: Scores to choose from; by default 0.05, 0.07 .. 0.95.

    Returns:
        A float.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import best_threshold
    >>> boxes = np.array([[0.0, 0, 9, 9], [20, 20, 30, 30]])
    >>> predicted = [{"boxes": boxes, "scores": [0.6, 0.3], "labels": [0, 0]}]
    >>> best_threshold(predicted, [{"boxes": boxes[:1], "labels": [0]}], thresholds=[0.2, 0.5])
    0.5
    """
    _check(predicted, true)
    thresholds = np.arange(0.05, 0.96, 0.02) if thresholds is None else thresholds

    def f1(threshold: float) -> float:
        right, answers, boxes = _counts(predicted, true, threshold, iou)
        return 2 * right / max(answers + boxes, 1)

    return float(max(thresholds, key=f1))


def _check(predicted: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]]) -> None:
    if len(predicted) != len(true):
        raise ValueError(
            "`predicted` and `true` must have as many images. "
            f"Received: {len(predicted)} and {len(true)}"
        )


def _average_precisions(
    predicted: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]], classes: int
) -> tuple[float, float, float]:
    """AP, AP50 and AP75."""
    with needed_by("scoring boxes"):
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

    def rows(images: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for number, image in enumerate(images, start=1):
            boxes = np.asarray(image["boxes"], float).reshape(-1, 4)
            crowds = image.get("crowds", np.zeros(len(boxes), bool))
            for i, (left, top, right, bottom) in enumerate(boxes):
                width, height = right - left, bottom - top
                yield {
                    "image_id": number,
                    "category_id": int(image["labels"][i]) + 1,
                    "bbox": [left, top, width, height],
                    "area": width * height,
                    "iscrowd": int(crowds[i]),
                    **({"score": float(image["scores"][i])} if "scores" in image else {}),
                }

    truths = [{**row, "id": i} for i, row in enumerate(rows(true), start=1)]
    answers = list(rows(predicted))
    if not truths or not answers:
        return 0.0, 0.0, 0.0
    with contextlib.redirect_stdout(io.StringIO()):  # it prints tables
        coco = COCO()
        coco.dataset = {
            "images": [{"id": number + 1} for number in range(len(true))],
            "categories": [{"id": number + 1} for number in range(classes)],
            "annotations": truths,
            "info": {},
        }
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(answers), "bbox")
        evaluation.params.maxDets = [1, 10, BEST]
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    ap, ap50, ap75 = (max(float(value), 0.0) for value in evaluation.stats[:3])
    return ap, ap50, ap75


def _counts(
    predicted: Sequence[Mapping[str, Any]],
    true: Sequence[Mapping[str, Any]],
    threshold: float,
    iou: float,
) -> tuple[int, int, int]:
    """Returns how many answers are right, how many there are, and how many true boxes.

    Answers that are not right and lie in a crowd of their class are not counted.
    """
    with needed_by("scoring boxes"):
        from scipy.optimize import linear_sum_assignment

    right = answers = boxes = 0
    for found, truth in zip(predicted, true, strict=True):
        sure = np.asarray(found["scores"]) >= threshold
        found_boxes = np.asarray(found["boxes"], float).reshape(-1, 4)[sure]
        found_labels = np.asarray(found["labels"])[sure]
        true_boxes = np.asarray(truth["boxes"], float).reshape(-1, 4)
        same_class = found_labels[:, None] == np.asarray(truth["labels"])
        is_crowd = np.asarray(truth.get("crowds", np.zeros(len(true_boxes), bool)), bool)

        overlap = _overlaps(found_boxes, true_boxes[~is_crowd]) * same_class[:, ~is_crowd]
        rows, columns = linear_sum_assignment(-overlap)
        is_right = np.zeros(len(found_boxes), bool)
        is_right[rows] = overlap[rows, columns] >= iou

        inside = _overlaps(found_boxes, true_boxes[is_crowd], of_first=True)
        in_crowd = (inside * same_class[:, is_crowd] >= iou).any(axis=1)
        right += int(is_right.sum())
        answers += int((is_right | ~in_crowd).sum())
        boxes += int((~is_crowd).sum())
    return right, answers, boxes


def _overlaps(boxes: Array, others: Array, of_first: bool = False) -> Array:
    """Intersection over union, or over the area of the first box, float64 `(n, m)`."""
    boxes, others = boxes[:, None].astype(float), others[None].astype(float)
    first = np.maximum(boxes[..., :2], others[..., :2])
    second = np.minimum(boxes[..., 2:], others[..., 2:])
    inside = np.prod(np.maximum(second - first, 0), axis=-1)
    areas = [np.prod(each[..., 2:] - each[..., :2], axis=-1) for each in (boxes, others)]
    union = np.broadcast_to(areas[0], inside.shape) if of_first else sum(areas) - inside
    return np.divide(inside, union, out=np.zeros_like(inside), where=union > 0)
