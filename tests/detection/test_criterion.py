"""Claims about the loss of a set of boxes, and about answers."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from scipy.optimize import linear_sum_assignment

from keras_transformers.detection import SetCriterion, best_answers
from tests.contract import ON_JAX, assert_close, to_numpy

LAYERS, BATCH, QUERIES, CLASSES, MOST = 2, 5, 7, 3, 4
RNG = np.random.default_rng(6)
BOXES = RNG.uniform(0.1, 0.9, (LAYERS, BATCH, QUERIES, 4)).astype("float32")
NUMBERS = np.array([4, 1, 0, 3, 2])
LABELS = np.where(np.arange(MOST) < NUMBERS[:, None], RNG.integers(0, CLASSES, (BATCH, MOST)), -1)
TRUE = RNG.uniform(0.1, 0.9, (BATCH, MOST, 4)).astype("float32")
TRUE[0, 1, 2] = 0  # a box of width 0
KINDS = {
    "softmax": SetCriterion(),
    "focal": SetCriterion("focal", class_cost=2.0, class_weight=2.0),
    "other weights": SetCriterion("softmax", 2.0, 3.0, 1.5, 0.7, 4.0, 1.0, no_object=0.3),
}


def logits(criterion):
    width = CLASSES + (criterion.classification == "softmax")
    shape = (LAYERS, BATCH, QUERIES, width)
    return np.random.default_rng(7).normal(0, 2, shape).astype("float32")


def fast(function):
    """Where every operation is compiled anyway, all of them at once."""
    if ON_JAX:
        import jax

        return jax.jit(function)
    return function


def generalized_iou(one, other):
    """Of two centre boxes."""
    (left, right), (left_, right_) = ((b[:2] - b[2:] / 2, b[:2] + b[2:] / 2) for b in (one, other))
    inside = np.prod(np.maximum(np.minimum(right, right_) - np.maximum(left, left_), 0))
    union = np.prod(one[2:]) + np.prod(other[2:]) - inside
    hull = np.prod(np.maximum(right, right_) - np.minimum(left, left_))
    return inside / union - (hull - union) / hull


def focal(x, there):
    share = 1 / (1 + np.exp(-x))
    if there:
        return -0.25 * (1 - share) ** 2 * np.log(share)
    return -0.75 * share**2 * np.log(1 - share)


def image(criterion, x, boxes, labels, true):
    """Sum of class losses, of their weights, and of the losses of boxes, in one image."""
    softmax = criterion.classification == "softmax"
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    cost = np.zeros((len(true), len(x)))
    for i, (label, box) in enumerate(zip(labels, true, strict=True)):
        for j, found in enumerate(boxes):
            of_class = (
                -shares[j, label] if softmax else focal(x[j, label], 1) - focal(x[j, label], 0)
            )
            cost[i, j] = criterion.class_cost * of_class
            cost[i, j] += criterion.box_cost * np.abs(box - found).sum()
            cost[i, j] -= criterion.giou_cost * generalized_iou(box, found)
    pairs = dict(zip(*linear_sum_assignment(cost)[::-1], strict=True))  # query -> true box
    class_loss = weights = distance = overlap = 0.0
    for j, found in enumerate(boxes):
        label = labels[pairs[j]] if j in pairs else None
        if softmax:
            weight = 1.0 if j in pairs else criterion.no_object
            class_loss -= weight * np.log(shares[j, -1 if label is None else label])
            weights += weight
        else:
            class_loss += sum(focal(x[j, c], c == label) for c in range(x.shape[-1]))
        if j in pairs:
            distance += np.abs(true[pairs[j]] - found).sum()
            overlap += 1 - generalized_iou(true[pairs[j]], found)
    return class_loss, weights, distance, overlap


def expected_parts(criterion, x, boxes, labels, true, weights=None):
    """The losses once more, in float64, one image after the other."""
    weights = np.ones(len(labels)) if weights is None else weights
    rows = []
    for layer in range(len(x)):
        sums = np.zeros(4)
        for i, present in enumerate(labels >= 0):
            args = (np.float64(x[layer, i]), np.float64(boxes[layer, i]))
            found = image(criterion, *args, labels[i][present], np.float64(true[i][present]))
            sums += np.multiply(found, [weights[i], 1, weights[i], weights[i]])
        number = max((labels >= 0).sum(), 1)
        by = sums[1] if criterion.classification == "softmax" else number
        rows.append([sums[0] / by, sums[2] / number, sums[3] / number])
    return dict(zip(("class", "box", "giou"), np.array(rows).T, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_and_their_sum_are_those_of_the_definition(kind):
    criterion = KINDS[kind]
    arguments = (logits(criterion), BOXES, LABELS, TRUE)
    expected = expected_parts(criterion, *arguments)
    parts = fast(criterion.parts)(*map(ops.convert_to_tensor, arguments))
    for name, values in expected.items():
        assert_close(parts[name], np.float32(values), 1e-5)
    total = sum(
        getattr(criterion, f"{name}_weight") * values.sum() for name, values in expected.items()
    )
    assert_close(fast(criterion)(*map(ops.convert_to_tensor, arguments)), np.float32(total), 1e-4)


@pytest.mark.parametrize("kind", ["softmax", "focal"])
def test_neither_true_boxes_nor_queries_have_an_order(kind):
    criterion, x = fast(KINDS[kind]), logits(KINDS[kind])
    expected = float(criterion(x, BOXES, LABELS, TRUE))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        true, queries = rng.permutation(MOST), rng.permutation(QUERIES)
        found = criterion(x[:, :, queries], BOXES[:, :, queries], LABELS[:, true], TRUE[:, true])
        assert abs(float(found) / expected - 1) < 1e-6


@pytest.mark.parametrize("kind", ["softmax", "focal"])
@pytest.mark.parametrize("room", [0, MOST])
def test_images_without_boxes_are_all_background(kind, room):
    criterion, x = KINDS[kind], logits(KINDS[kind])
    labels = np.full((BATCH, room), -1)
    true = np.full((BATCH, room, 4), np.nan, "float32")
    parts = fast(criterion.parts)(x, BOXES, labels, true)
    expected = expected_parts(criterion, x, BOXES, labels, np.zeros((BATCH, room, 4)))
    for name, values in expected.items():
        assert_close(parts[name], np.float32(values), 1e-5)
    assert not to_numpy(parts["box"]).any() and not to_numpy(parts["giou"]).any()


@functools.cache
def compiled(kind):
    """Loss and gradients by logits and boxes, as XLA computes them."""
    if ON_JAX:
        import jax

        return jax.jit(jax.value_and_grad(KINDS[kind], (0, 1)))
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def run(x, boxes, labels, true):
        with tf.GradientTape() as tape:
            tape.watch((x, boxes))
            loss = KINDS[kind](x, boxes, labels, true)
        return loss, tape.gradient(loss, (x, boxes))

    return run


def loss_and_gradients(kind, true):
    made = (logits(KINDS[kind]), BOXES, np.int32(LABELS), true)
    return to_numpy(compiled(kind)(*map(ops.convert_to_tensor, made)))


@pytest.mark.parametrize("kind", ["softmax", "focal"])
def test_what_stands_at_padding_changes_neither_loss_nor_gradients(kind):
    expected, (of_logits, of_boxes) = loss_and_gradients(kind, TRUE)
    for content in (np.nan, np.inf, 1e30):
        other = np.where(LABELS[..., None] >= 0, TRUE, content).astype("float32")
        found, gradients = loss_and_gradients(kind, other)
        assert_close(found, expected, 0)
        for one, same in zip(gradients, (of_logits, of_boxes), strict=True):
            assert np.isfinite(one).all() and np.any(one)
            assert_close(one, same, 0)
    # No gradient reaches the boxes of queries that stand for nothing.
    assert (np.any(of_boxes, axis=-1).sum(axis=-1) == NUMBERS).all()


@pytest.mark.parametrize("kind", ["softmax", "focal"])
def test_the_gradient_is_the_slope(kind):
    criterion, x = KINDS[kind], logits(KINDS[kind])
    _, gradients = loss_and_gradients(kind, TRUE)
    rng, step = np.random.default_rng(8), 1e-6
    ways = [rng.normal(size=made.shape) for made in (x, BOXES)]

    def loss(sign):
        made = [np.float64(m) + sign * step * way for m, way in zip((x, BOXES), ways, strict=True)]
        parts = expected_parts(criterion, *made, LABELS, TRUE)
        weights = {"class": criterion.class_weight, "box": 5.0, "giou": 2.0}
        return sum(weights[name] * values.sum() for name, values in parts.items())

    expected = sum((g * way).sum() for g, way in zip(gradients, ways, strict=True))
    slope = (loss(1) - loss(-1)) / (2 * step)
    assert abs(slope - expected) < 1e-4 * abs(expected)


@pytest.mark.parametrize("kind", ["softmax", "focal"])
def test_a_perfect_answer_costs_next_to_nothing(kind):
    criterion = KINDS[kind]
    width = CLASSES + (kind == "softmax")
    x = np.full((1, 1, QUERIES, width), -20.0, "float32")
    if kind == "softmax":
        x[..., -1] = 20
    boxes, labels = BOXES[:1, :1].copy(), LABELS[:1]
    for i, label in enumerate(labels[0]):
        x[0, 0, 6 - i] = -20
        x[0, 0, 6 - i, label] = 20
        boxes[0, 0, 6 - i] = TRUE[3, i]
    criterion = fast(criterion)
    assert float(criterion(x, boxes, labels, TRUE[3:4])) < 1e-5
    assert float(criterion(x / 40, boxes, labels, TRUE[3:4])) > 0.05


def test_low_precision_is_computed_in_float32():
    criterion = KINDS["softmax"]
    x, boxes = (ops.cast(made, "bfloat16") for made in (logits(criterion), BOXES))
    rounded = [to_numpy(made) for made in (x, boxes)]
    found = criterion(x, boxes, LABELS, TRUE)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    assert_close(found, criterion(*rounded, LABELS, TRUE), 1e-5)


X = logits(KINDS["softmax"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SetCriterion("hinge"), '"softmax" or "focal".*hinge'),
        (lambda: SetCriterion(box_cost=-1), "`box_cost` must not be negative.*-1"),
        (lambda: KINDS["softmax"](X[0], BOXES, LABELS, TRUE), r"must be \(layers,.*\(5, 7, 4\)"),
        (lambda: KINDS["softmax"](X[:, :, 1:], BOXES, LABELS, TRUE), r"shapes \(2, 5, 6, 4\)"),
        (
            lambda: KINDS["softmax"](X[:, :, :3], BOXES[:, :, :3], LABELS, TRUE),
            "as many queries.*3 queries, room for 4",
        ),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------ answers


def corners(boxes):
    centers, sizes = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=1).clip(0, 1)


def test_answers_are_sorted_by_the_share_of_the_best_class():
    x = np.float64(logits(KINDS["softmax"])[0])
    shares = (np.exp(x) / np.exp(x).sum(-1, keepdims=True))[..., :-1]
    found = to_numpy(best_answers(np.float32(x), BOXES[0], "softmax"))
    for i in range(BATCH):
        order = np.argsort(-shares[i].max(-1))
        np.testing.assert_array_equal(found["labels"][i], shares[i].argmax(-1)[order])
        assert_close(found["scores"][i], shares[i].max(-1)[order].astype("float32"), 1e-6)
        assert_close(found["boxes"][i], corners(BOXES[0, i, order]), 1e-6)


def test_with_a_sigmoid_for_each_class_a_query_may_answer_several_times():
    x = np.float64(logits(KINDS["focal"])[0])
    queries, classes = x.shape[1:]
    found = to_numpy(best_answers(np.float32(x), BOXES[0], "focal"))
    several = 0
    for i in range(BATCH):
        pairs = [(x[i, q, c], q, c) for q in range(queries) for c in range(classes)]
        surest = sorted(pairs, reverse=True)[:queries]
        several += queries - len({q for _, q, _ in surest})
        np.testing.assert_array_equal(found["labels"][i], [c for *_, c in surest])
        scores = [1 / (1 + np.exp(-logit)) for logit, *_ in surest]
        assert_close(found["scores"][i], np.float32(scores), 1e-6)
        assert_close(found["boxes"][i], corners(BOXES[0, i, [q for _, q, _ in surest]]), 1e-6)
    assert several


def test_answers_stay_inside_the_image_and_in_float32():
    boxes = np.float32([[[0.1, 0.9, 0.5, 0.4], [0.5, 0.5, 2.0, 0.1]]])
    found = best_answers(ops.zeros((1, 2, 3), "bfloat16"), ops.cast(boxes, "bfloat16"), "focal")
    assert {keras.backend.standardize_dtype(found[name].dtype) for name in ("scores", "boxes")} == {
        "float32"
    }
    boxes = to_numpy(found["boxes"])
    assert boxes.min() == 0 and boxes.max() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_sample_weights_multiply_the_losses_of_their_images(kind):
    criterion, weights = KINDS[kind], np.array([0.0, 2.0, 1.0, 0.5, 3.0], "float32")
    arguments = (logits(criterion), BOXES, LABELS, TRUE)
    expected = expected_parts(criterion, *arguments, np.float64(weights))
    for given in (weights, weights[:, None]):
        parts = fast(criterion.parts)(*map(ops.convert_to_tensor, (*arguments, given)))
        for name, values in expected.items():
            assert_close(parts[name], np.float32(values), 1e-5)
    with pytest.raises(ValueError, match=r"`sample_weight` must have shape \(batch,\).*\(5, 4\)"):
        criterion(*arguments, np.ones((BATCH, MOST)))


@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_that_is_no_class_is_refused(kind, number):
    criterion = KINDS[kind]
    labels = LABELS.copy()
    labels[3, 1] = CLASSES + number
    message = rf"SetCriterion: `labels` must be below {CLASSES}.* Received: {CLASSES + number}"
    with pytest.raises(ValueError, match=message):
        criterion(logits(criterion), BOXES, labels, TRUE)
    if keras.backend.backend() == "jax":
        run = fast(criterion)
        assert np.isnan(to_numpy(run(logits(criterion), BOXES, labels, TRUE)))
