"""Claims about boxes and how well they agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from keras_transformers.detection import (
    box_areas,
    box_iou,
    center_boxes,
    corner_boxes,
    generalized_iou,
    pairwise_iou,
)
from tests.contract import assert_close, to_numpy

RNG = np.random.default_rng(0)
# Of all sizes, and on a grid, so that borders touch.
CENTERS = np.concatenate(
    [RNG.random((31, 4)), RNG.integers(0, 3, (23, 4)) / 4, RNG.random((7, 4)) * [1, 1, 0, 1]]
).astype("float32")
BOXES = arrays("float32", (5, 4), elements=st.floats(0, 1, width=16))


def corners(boxes):
    boxes = np.float64(boxes)
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)


def agreement(one, other):
    """Intersection over union, plain and generalised, of two corner boxes, number by number."""

    def area(left, top, right, bottom):
        return max(right - left, 0.0) * max(bottom - top, 0.0)

    inside = area(*np.maximum(one[:2], other[:2]), *np.minimum(one[2:], other[2:]))
    union = area(*one) + area(*other) - inside
    hull = area(*np.minimum(one[:2], other[:2]), *np.maximum(one[2:], other[2:]))
    iou = inside / union if union else 0.0
    return iou, iou - ((hull - union) / hull if hull else 0.0)


def test_centres_and_corners_are_two_names_of_a_box():
    assert_close(corner_boxes(CENTERS), corners(CENTERS).astype("float32"), 1e-6)
    assert_close(center_boxes(corner_boxes(CENTERS)), CENTERS, 1e-6)


def test_both_measures_are_those_of_their_definitions():
    boxes = corners(CENTERS).astype("float32")
    expected = np.array([[agreement(one, other) for other in boxes] for one in boxes])
    assert_close(pairwise_iou(boxes, boxes), expected[..., 0].astype("float32"), 1e-5)
    assert_close(
        generalized_iou(boxes[:, None], boxes[None]), expected[..., 1].astype("float32"), 1e-5
    )
    assert_close(box_iou(boxes[:60], boxes[1:]), np.float32(expected[..., 0].diagonal(1)), 1e-5)


@given(boxes=BOXES)
def test_both_measures_are_symmetric_and_within_their_bounds(boxes):
    boxes = to_numpy(corner_boxes(boxes))
    for measure, least in ((box_iou, 0.0), (generalized_iou, -1.0)):
        found = to_numpy(measure(boxes[:, None], boxes[None]))
        assert_close(found, found.T, 1e-6)
        assert np.isfinite(found).all() and found.min() >= least - 1e-6 and found.max() <= 1 + 1e-6
    plain = to_numpy(pairwise_iou(boxes, boxes))
    assert (to_numpy(generalized_iou(boxes[:, None], boxes[None])) <= plain + 1e-6).all()


@given(boxes=BOXES)
def test_a_box_agrees_with_itself_unless_it_is_empty(boxes):
    boxes = to_numpy(corner_boxes(boxes))
    full = to_numpy(box_areas(boxes)) > 1e-4
    for measure in (box_iou, generalized_iou):
        found = to_numpy(measure(boxes, boxes))[full]
        assert_close(found, np.ones(full.sum(), "float32"), 1e-5)


def test_empty_boxes_agree_with_nothing_and_give_numbers():
    point, line = np.float32([0.5, 0.5, 0.5, 0.5]), np.float32([0.5, 0.25, 0.5, 0.75])
    wrong = np.float32([0.7, 0.7, 0.5, 0.9])  # the right border left of the left one
    around = np.float32([0.25, 0.25, 0.75, 0.75])
    for empty in (point, line, wrong):
        assert float(box_areas(empty)) == 0
        for other in (point, line, wrong, around):
            assert float(box_iou(empty, other)) == 0
            assert -1 <= float(generalized_iou(empty, other)) <= 0


@pytest.mark.parametrize(("gap", "expected"), [(0, 0.0), (1, -1 / 3), (8, -0.8), (98, -0.98)])
def test_the_generalised_measure_still_falls_where_boxes_do_not_touch(gap, expected):
    """Two unit squares `gap` apart: minus the share of their hull that is between them."""
    one, other = np.float32([0, 0, 1, 1]), np.float32([1 + gap, 0, 2 + gap, 1])
    assert abs(float(generalized_iou(one, other)) - expected) < 1e-6
