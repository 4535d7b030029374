"""Boxes, how they are matched one to one, and what a set of them costs: tensors in, tensors out."""

from keras_transformers.detection.boxes import (
    best_answers,
    box_areas,
    box_iou,
    center_boxes,
    corner_boxes,
    generalized_iou,
    pairwise_iou,
)
from keras_transformers.detection.criterion import SetCriterion
from keras_transformers.detection.matching import match

__all__ = [
    "SetCriterion",
    "best_answers",
    "box_areas",
    "box_iou",
    "center_boxes",
    "corner_boxes",
    "generalized_iou",
    "match",
    "pairwise_iou",
]
