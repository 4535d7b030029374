"""Claims about scores of boxes."""

import numpy as np
import pytest

from keras_transformers.training import best_threshold, score_boxes

BOXES = np.array([[0.0, 0, 10, 10], [20, 20, 40, 40], [50, 0, 60, 30]])


def found(boxes, scores, labels=None):
    labels = np.zeros(len(boxes), int) if labels is None else np.array(labels)
    return {"boxes": np.asarray(boxes, float), "scores": np.asarray(scores), "labels": labels}


def truth(boxes, labels=None):
    labels = np.zeros(len(boxes), int) if labels is None else np.array(labels)
    return {"boxes": np.asarray(boxes, float).reshape(-1, 4), "labels": labels}


def test_all_right_scores_one_and_nothing_scores_zero():
    scores = score_boxes([found(BOXES, [0.9, 0.8, 0.7])], [truth(BOXES)], 1)
    np.testing.assert_allclose([scores.ap, scores.ap50, scores.ap75], 1.0)
    assert (scores.precision, scores.recall) == (1, 1)
    nothing = score_boxes([found(np.zeros((0, 4)), [])], [truth(BOXES)], 1)
    assert (nothing.ap, nothing.ap50, nothing.precision, nothing.recall) == (0, 0, 0, 0)
    empty = score_boxes([found(BOXES, [0.9, 0.8, 0.7])], [truth([])], 1)
    assert (empty.ap, empty.precision, empty.recall) == (0, 0, 0)


def test_average_precision_of_a_case_worked_by_hand():
    """Of three boxes two are found, a false answer ranks between them.

    Precision is 1 up to a recall of 1/3 and 2/3 up to 2/3: 34 of COCO's 101 recalls, then 33.
    """
    answers = [BOXES[0], [80, 80, 90, 90], BOXES[1]]
    scores = score_boxes([found(answers, [0.9, 0.8, 0.7])], [truth(BOXES)], 1)
    assert scores.ap50 == pytest.approx((34 + 33 * 2 / 3) / 101, abs=1e-6)
    assert scores.precision == pytest.approx(2 / 3) and scores.recall == pytest.approx(2 / 3)


def test_a_box_is_right_from_the_given_overlap_on():
    half = [[0, 0, 10, 5]]  # IoU 0.5 with the first
    one = [found(half, [0.9])], [truth(BOXES[:1])], 1
    assert score_boxes(*one, iou=0.4).recall == 1
    assert score_boxes(*one, iou=0.6).recall == 0
    assert score_boxes(*one).ap50 == pytest.approx(1) and score_boxes(*one).ap75 == 0


def test_two_answers_for_one_box_are_one_right_and_one_wrong():
    scores = score_boxes([found(BOXES[[0, 0]], [0.9, 0.8])], [truth(BOXES[:1])], 1)
    assert (scores.precision, scores.recall) == (0.5, 1)


def test_pairs_are_chosen_for_the_most_overlap_and_classes_are_not_mixed():
    answers = [[0, 0, 10, 9], [0, 0, 10, 6]]
    true = [[0, 0, 10, 8], [0, 0, 10, 10]]
    assert score_boxes([found(answers, [0.9, 0.9])], [truth(true)], 1, iou=0.7).recall == 1
    other = score_boxes([found(BOXES, [0.9] * 3, [0, 1, 1])], [truth(BOXES, [0, 1, 0])], 2)
    assert other.recall == pytest.approx(2 / 3)


def test_the_threshold_is_that_of_the_best_f1():
    answers = found(np.concatenate([BOXES, BOXES + 100]), [0.9, 0.8, 0.4, 0.3, 0.2, 0.1])
    assert 0.3 < best_threshold([answers], [truth(BOXES)]) <= 0.4
    scores = score_boxes([answers], [truth(BOXES)], 1, threshold=0.85)
    assert (scores.precision, scores.recall) == (1, pytest.approx(1 / 3))


def test_what_is_found_in_a_crowd_is_no_error_as_in_pycocotools():
    """A crowd need not be found either. Answers: a right one, one in the crowd, one elsewhere."""
    crowd = [60, 60, 100, 100]
    true = truth([BOXES[0], crowd]) | {"crowds": np.array([False, True])}
    answers = found([BOXES[0], [70, 70, 80, 80], [30, 0, 40, 10]], [0.9, 0.95, 0.5])
    scores = score_boxes([answers], [true], 1)
    assert (scores.precision, scores.recall) == (0.5, 1)
    assert scores.ap == pytest.approx(1)  # the answer in the crowd ranks first and counts nothing
    plain = score_boxes([answers], [truth([BOXES[0]])], 1)
    assert plain.ap == pytest.approx(0.5, abs=0.01) and plain.precision == pytest.approx(1 / 3)
    other = score_boxes([answers], [true | {"labels": np.array([0, 1])}], 2)
    assert other.precision == pytest.approx(1 / 3)  # a crowd of another class excuses nothing


def test_images_must_be_as_many():
    with pytest.raises(ValueError, match="as many images. Received: 1 and 2"):
        score_boxes([found(BOXES, [1, 1, 1])], [truth(BOXES)] * 2, 1)
