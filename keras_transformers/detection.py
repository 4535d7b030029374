"""Boxes, how they are matched one to one, and what a set of them costs: tensors in, tensors out."""

import dataclasses
import math
import typing
from typing import Any, Literal, NamedTuple, TypedDict

from keras import ops

from keras_transformers.core.backend import require_values
from keras_transformers.core.types import Index, Scalar, Tensor

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


IMPOSSIBLE = 1e9  # in place of costs that are not finite, so that the search ends


def match(cost: Tensor, valid: Tensor | None = None) -> Tensor:
    """The cheapest assignment of a column of its own to every row, for a batch of cost matrices.

    The Hungarian method by shortest augmenting paths (Kuhn 1955; Jonker & Volgenant 1987,
    https://doi.org/10.1007/BF02278710), exact, in `O(rows^2 columns)`; the batch goes in step. It
    is made of `keras.ops` alone, so that XLA compiles it into a training step, where SciPy's
    `linear_sum_assignment` cannot be called. The result has no gradient.

    Args:
        cost: Floating `(batch, rows, columns)`, at least as many columns as rows. What is not
            finite counts as 1e9.
        valid: Optional bool `(batch, rows)`; rows that are False (padding) get no column.

    Returns:
        int32 `(batch, rows)`, the column of each row, -1 where it has none.

    Raises:
        ValueError: If there are fewer columns than rows.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import match
    >>> cost = np.array([[[1.0, 2.0, 9.0], [1.0, 4.0, 9.0]]])
    >>> np.asarray(match(cost)).tolist()
    [[1, 0]]
    """
    cost = ops.stop_gradient(ops.cast(cost, "float32"))
    cost = ops.where(ops.isfinite(cost), cost, IMPOSSIBLE)
    rows, columns = cost.shape[1:]
    if rows > columns:
        raise ValueError(
            "match: `cost` must have at least as many columns as rows. Received: shape "
            f"{tuple(cost.shape)}"
        )
    batch = ops.shape(cost)[0]
    if valid is None:
        valid = ops.ones((batch, rows), "bool")
    column_of = ops.full((batch, rows), -1, "int32")
    if not rows:
        return column_of

    def assign(row: Index, *state: Any) -> tuple[Any, ...]:
        return row + 1, *_assign(cost, ops.take(valid, row, axis=1), row, *state)

    start = (
        ops.convert_to_tensor(0, "int32"),
        ops.zeros((batch, rows), "float32"),
        ops.zeros((batch, columns), "float32"),
        ops.full((batch, columns), -1, "int32"),
        column_of,
    )
    return ops.while_loop(lambda row, *_: row < rows, assign, start, maximum_iterations=rows)[-1]


def _assign(
    cost: Tensor,
    wanted: Tensor,
    row: Index,
    row_prices: Tensor,
    column_prices: Tensor,
    row_of: Tensor,
    column_of: Tensor,
) -> tuple[Tensor, ...]:
    """Gives one more row a column, by way of other rows' columns where that is cheaper.

    Args:
        cost: `(batch, rows, columns)`.
        wanted: bool `(batch,)`, whether the row is to have a column.
        row: Number of the row, a scalar.
        row_prices, column_prices: `(batch, rows)` and `(batch, columns)`: what is matched costs
            nothing beyond their sum, and nothing else costs less.
        row_of, column_of: `(batch, columns)` and `(batch, rows)`, -1 where there is none.

    Returns:
        The four, with the row.
    """
    paths = _search(cost, wanted, row, row_prices, column_prices, row_of)
    least = paths.least[:, None]
    owned = ops.maximum(column_of, 0)
    passed = ops.logical_and(column_of >= 0, _at(paths.scanned, owned))
    own = ops.logical_and(ops.arange(cost.shape[1])[None] == row, wanted[:, None])
    gain = ops.where(passed, least - _at(paths.lengths, owned), 0.0)
    row_prices = row_prices + gain + ops.where(own, least, 0.0)
    column_prices = column_prices - ops.where(paths.scanned, least - paths.lengths, 0.0)
    matched = _shift(row, paths.end, wanted, paths.origin, row_of, column_of)
    return row_prices, column_prices, *matched


class _Paths(NamedTuple):
    """Shortest paths from a row to columns, over columns that rows hold already (Dijkstra)."""

    end: Tensor  # (batch,): the free column that was reached, -1 while there is none
    current: Tensor  # (batch,): the row that holds the column reached last
    least: Tensor  # (batch,): the length of the path to it
    scanned: Tensor  # (batch, columns): which columns were reached
    lengths: Tensor  # (batch, columns): of the shortest paths known to each
    origin: Tensor  # (batch, columns): the row before each on its path


def _search(
    cost: Tensor,
    wanted: Tensor,
    row: Index,
    row_prices: Tensor,
    column_prices: Tensor,
    row_of: Tensor,
) -> _Paths:
    """The shortest path from the row to a free column."""

    def searching(end: Tensor, *_: Any) -> Tensor:
        return ops.any(end < 0)

    def search(*paths: Tensor) -> _Paths:
        return _nearest(_Paths(*paths), cost, row_prices, column_prices, row_of)

    batch, columns = ops.shape(cost)[0], cost.shape[2]
    start = _Paths(
        end=ops.where(wanted, -1, 0),
        current=ops.broadcast_to(ops.cast(row, "int32"), (batch,)),
        least=ops.zeros((batch,), "float32"),
        scanned=ops.zeros((batch, columns), "bool"),
        lengths=ops.full((batch, columns), float("inf"), "float32"),
        origin=ops.zeros((batch, columns), "int32"),
    )
    return _Paths(*ops.while_loop(searching, search, tuple(start), maximum_iterations=columns))


def _nearest(
    paths: _Paths, cost: Tensor, row_prices: Tensor, column_prices: Tensor, row_of: Tensor
) -> _Paths:
    """Takes the nearest column that was not yet reached, in every search not at its end."""
    end, current, least, scanned, lengths, origin = paths
    going = end < 0
    reduced = _rows(cost, current) - _at(row_prices, current)[:, None] - column_prices
    through = least[:, None] + reduced
    better = ops.logical_and(ops.logical_not(scanned), through < lengths)
    better = ops.logical_and(better, going[:, None])
    lengths = ops.where(better, through, lengths)
    origin = ops.where(better, current[:, None], origin)
    nearest = ops.argmin(ops.where(scanned, float("inf"), lengths), axis=1)
    nearest = ops.cast(nearest, "int32")
    here = ops.logical_and(ops.arange(cost.shape[2])[None] == nearest[:, None], going[:, None])
    owner = _at(row_of, nearest)
    free = owner < 0
    return _Paths(
        end=ops.where(ops.logical_and(going, free), nearest, end),
        current=ops.where(ops.logical_and(going, ops.logical_not(free)), owner, current),
        least=ops.where(going, _at(lengths, nearest), least),
        scanned=ops.logical_or(scanned, here),
        lengths=lengths,
        origin=origin,
    )


def _shift(
    row: Index, end: Tensor, wanted: Tensor, origin: Tensor, row_of: Tensor, column_of: Tensor
) -> tuple[Tensor, ...]:
    """`row_of` and `column_of` after the rows on the path have handed their columns back."""
    rows, columns = column_of.shape[1], row_of.shape[1]

    def shifting(_: Tensor, going: Tensor, *__: Any) -> Tensor:
        return ops.any(going)

    def shift(
        column: Tensor, going: Tensor, row_of: Tensor, column_of: Tensor
    ) -> tuple[Tensor, ...]:
        taker = _at(origin, column)
        here = ops.logical_and(ops.arange(columns)[None] == column[:, None], going[:, None])
        row_of = ops.where(here, taker[:, None], row_of)
        left = _at(column_of, taker)
        mine = ops.logical_and(ops.arange(rows)[None] == taker[:, None], going[:, None])
        column_of = ops.where(mine, column[:, None], column_of)
        going = ops.logical_and(going, taker != row)
        return ops.where(going, left, column), going, row_of, column_of

    start = (end, wanted, row_of, column_of)
    return ops.while_loop(shifting, shift, start, maximum_iterations=rows)[2:]


def _at(table: Tensor, indices: Tensor) -> Tensor:
    """`table[b, indices[b, ...]]` for int indices `(batch,)` or `(batch, n)`."""
    if len(indices.shape) == 1:
        return ops.take_along_axis(table, indices[:, None], axis=1)[:, 0]
    return ops.take_along_axis(table, indices, axis=1)


def _rows(cost: Tensor, rows: Tensor) -> Tensor:
    """`cost[b, rows[b]]`."""
    return ops.take_along_axis(cost, rows[:, None, None], axis=1)[:, 0]


@dataclasses.dataclass(frozen=True)
class SetCriterion:
    """The set loss of DETR: match predictions and true boxes one to one, then compare the pairs.

    Matching minimises `class_cost C + box_cost |b - b'|_1 - giou_cost GIoU(b, b')` summed over the
    true boxes; the loss is `class_weight L + box_weight |b - b'|_1 + giou_weight (1 - GIoU)`, the
    last two summed over the pairs and divided by the number of true boxes of the batch (Carion et
    al. 2020, https://arxiv.org/abs/2005.12872, eq. 1 and 2). With "softmax", `C = -p(class)` and
    `L` is the cross-entropy over classes and "no object", the latter weighted, divided by the sum
    of weights. With "focal", every class has a sigmoid of its own and there is no "no object":
    `C` and `L` are the focal loss (Lin et al. 2017, https://arxiv.org/abs/1708.02002, alpha 0.25,
    gamma 2), as in Deformable DETR (Zhu et al. 2021, https://arxiv.org/abs/2010.04159), for which
    `class_cost` and `class_weight` of 2 are usual.

    Args:
        classification: "softmax" or "focal".
        class_cost, box_cost, giou_cost: Weights in the matching.
        class_weight, box_weight, giou_weight: Weights in the loss.
        no_object: Weight of "no object" in the cross-entropy.

    Call arguments:
        logits: `(layers, batch, queries, classes)`, with one class more, the last, for "no object"
            with "softmax". Every layer is matched and compared on its own (auxiliary losses); their
            losses are added.
        boxes: `(layers, batch, queries, 4)`, centre boxes as shares of the image.
        labels: int `(batch, most)`, -1 where an image has fewer boxes; `most <= queries`. A
            image may have none at all.
        true_boxes: `(batch, most, 4)`, centre boxes; anything where labels are -1.
        sample_weight: Optional `(batch,)`: what the losses of each image are multiplied by. What
            they are divided by stays, as in Keras's losses: the loss is linear in the weights. Or a
            dict of such of `labels`, for the class losses, and of `boxes`.

    Returns:
        Scalar float32, the weighted sum; `parts` gives its parts.

    Raises:
        ValueError: If `classification` is unknown or a weight negative; when called, if shapes do
            not fit or there are more true boxes than queries.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import SetCriterion
    >>> logits = np.array([[[[9.0, -9.0], [-9.0, 9.0]]]], "float32")  # of one class and "none"
    >>> boxes = np.array([[[[0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1]]]], "float32")
    >>> loss = SetCriterion()(logits, boxes, np.array([[0]]), boxes[0, :, :1])
    >>> bool(loss < 1e-5)
    True
    """

    classification: typing.Literal["softmax", "focal"] = "softmax"
    class_cost: float = 1.0
    box_cost: float = 5.0
    giou_cost: float = 2.0
    class_weight: float = 1.0
    box_weight: float = 5.0
    giou_weight: float = 2.0
    no_object: float = 0.1

    def __post_init__(self) -> None:
        if self.classification not in ("softmax", "focal"):
            raise ValueError(
                'SetCriterion: `classification` must be "softmax" or "focal". '
                f"Received: {self.classification!r}"
            )
        numbers = {k: v for k, v in dataclasses.asdict(self).items() if k != "classification"}
        for name, value in numbers.items():
            if value < 0:
                raise ValueError(f"SetCriterion: `{name}` must not be negative. Received: {value}")

    def __call__(
        self,
        logits: Tensor,
        boxes: Tensor,
        labels: Tensor,
        true_boxes: Tensor,
        sample_weight: Tensor | dict[str, Tensor] | None = None,
    ) -> Scalar:
        parts = self.parts(logits, boxes, labels, true_boxes, sample_weight)
        return (
            self.class_weight * ops.sum(parts["class"])
            + self.box_weight * ops.sum(parts["box"])
            + self.giou_weight * ops.sum(parts["giou"])
        )

    @property
    def _has_no_object(self) -> bool:
        """True if the last logit of a query stands for "no object"."""
        return self.classification == "softmax"

    def parts(
        self,
        logits: Tensor,
        boxes: Tensor,
        labels: Tensor,
        true_boxes: Tensor,
        sample_weight: Tensor | dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Dict of "class", "box" and "giou" to the unweighted losses `(layers,)`."""
        self._check(logits, boxes, labels, true_boxes)
        layers, _, queries, classes = logits.shape
        logits = ops.reshape(ops.cast(logits, "float32"), (-1, queries, classes))
        boxes = ops.reshape(ops.cast(boxes, "float32"), (-1, queries, 4))
        labels, number = ops.convert_to_tensor(labels), classes - self._has_no_object
        sentence = f"SetCriterion: `labels` must be below {number}, or negative at padding."
        labels = require_values(labels, labels < number, sentence)
        targets, weights = _targets(labels, true_boxes), _weights(sample_weight, labels)
        labels, real, true_boxes = (_for_each_layer(x, layers) for x in targets)
        of_labels, of_boxes = (_for_each_layer(x, layers) for x in weights)
        pairs = self._pairs(logits, boxes, labels, real, true_boxes)
        kept = ops.cast(real, "float32")  # (layers * batch, most)
        chosen = ops.where(real[..., None], ops.matmul(pairs, boxes), true_boxes)
        distance = ops.sum(ops.abs(chosen - true_boxes), axis=-1) * kept
        giou = (1 - generalized_iou(corner_boxes(chosen), corner_boxes(true_boxes))) * kept
        number = ops.maximum(ops.sum(kept) / layers, 1.0)
        # Which class each query is to name: (layers * batch, queries, classes), rows of zeros where
        # it stands for nothing.
        named = ops.one_hot(ops.maximum(labels, 0), classes) * kept[..., None]
        target = ops.matmul(ops.transpose(pairs, (0, 2, 1)), named)
        if self.classification == "focal":
            class_loss = _by_layer(_focal_loss(logits, target), layers, of_labels) / number
        else:
            class_loss = self._cross_entropy(logits, target, layers, of_labels)
        class_loss = ops.where(
            ops.all(labels < classes - self._has_no_object), class_loss, math.nan
        )
        return {
            "class": class_loss,
            "box": _by_layer(distance, layers, of_boxes) / number,
            "giou": _by_layer(giou, layers, of_boxes) / number,
        }

    def _pairs(
        self, logits: Tensor, boxes: Tensor, labels: Tensor, real: Tensor, true_boxes: Tensor
    ) -> Tensor:
        """1 where a true box is matched with a query: float32 `(batch, most, queries)`."""
        chosen = match(self.costs(logits, boxes, labels, true_boxes), real)
        pairs = chosen[..., None] == ops.arange(logits.shape[1])
        return ops.cast(ops.logical_and(pairs, real[..., None]), "float32")

    def costs(self, logits: Tensor, boxes: Tensor, labels: Tensor, true_boxes: Tensor) -> Tensor:
        """What each true box would cost with each prediction: `(batch, most, queries)`.

        Args:
            logits: `(batch, queries, classes)`.
            boxes: `(batch, queries, 4)`.
            labels, true_boxes: As in a call; what stands at padding is of no meaning.
        """
        if self.classification == "softmax":
            of_class = -ops.softmax(logits, axis=-1)
        else:
            positive, negative = _focal_parts(logits)
            of_class = positive - negative
        queries = logits.shape[1]
        indices = ops.broadcast_to(
            ops.maximum(labels, 0)[:, None], (ops.shape(labels)[0], queries, labels.shape[1])
        )
        of_class = ops.take_along_axis(of_class, indices, axis=2)  # (batch, queries, most)
        predicted, true = boxes[:, :, None], true_boxes[:, None]
        distance = ops.sum(ops.abs(predicted - true), axis=-1)
        giou = generalized_iou(corner_boxes(predicted), corner_boxes(true))
        cost = self.class_cost * of_class + self.box_cost * distance - self.giou_cost * giou
        return ops.transpose(cost, (0, 2, 1))

    def _cross_entropy(
        self, logits: Tensor, target: Tensor, layers: int, of_labels: Tensor
    ) -> Tensor:
        """Weighted by class, and divided by the sum of weights."""
        nothing = 1 - ops.sum(target, axis=-1)  # (layers * batch, queries)
        logs = ops.log_softmax(logits, axis=-1)
        loss = -ops.sum(target * logs, axis=-1) - self.no_object * nothing * logs[..., -1]
        weights = 1 - nothing + self.no_object * nothing
        return _by_layer(loss, layers, of_labels) / _by_layer(weights, layers)

    def _check(self, logits: Tensor, boxes: Tensor, labels: Tensor, true_boxes: Tensor) -> None:
        shapes = [tuple(x.shape) for x in (logits, boxes, labels, true_boxes)]
        if [len(shape) for shape in shapes] != [4, 4, 2, 3] or shapes[0][:-1] != shapes[1][:-1]:
            raise ValueError(
                "SetCriterion: `logits` must be (layers, batch, queries, classes), `boxes` (layers,"
                " batch, queries, 4), `labels` (batch, most), `true_boxes` (batch, most, 4). "
                f"Received: shapes {', '.join(map(str, shapes))}"
            )
        if shapes[2][1] > shapes[0][2]:
            raise ValueError(
                "SetCriterion: there must be as many queries as true boxes in an image, or more. "
                f"Received: {shapes[0][2]} queries, room for {shapes[2][1]} true boxes"
            )


def _targets(labels: Tensor, true_boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, which of them are real, and boxes that are finite at padding too."""
    labels, true_boxes = ops.cast(labels, "int32"), ops.cast(true_boxes, "float32")
    if not labels.shape[1]:  # no image has any, and later shapes need one
        labels = ops.pad(labels, ((0, 0), (0, 1)), constant_values=-1)
        true_boxes = ops.pad(true_boxes, ((0, 0), (0, 1), (0, 0)))
    real = labels >= 0
    return labels, real, ops.where(real[..., None], true_boxes, 0.5)


def _for_each_layer(x: Tensor, layers: int) -> Tensor:
    """As often as there are layers, along the batch."""
    return ops.tile(x, (layers, *(1 for _ in x.shape[1:])))


def _by_layer(x: Tensor, layers: int, weight: Tensor | float = 1.0) -> Tensor:
    """Sums `(layers,)` of `(layers * batch, ...)`, with weights `(layers * batch,)`."""
    x = ops.sum(x, axis=tuple(range(1, len(x.shape)))) * weight
    return ops.sum(ops.reshape(x, (layers, -1)), axis=1)


def _weights(sample_weight: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Those of the images for their labels and for their boxes, 1 where none are given."""
    if sample_weight is None:
        ones = ops.ones((ops.shape(labels)[0],), "float32")
        return ones, ones
    given = sample_weight if isinstance(sample_weight, dict) else {}
    of_labels, of_boxes = (given.get(name, sample_weight) for name in ("labels", "boxes"))
    return of_images(of_labels, "SetCriterion"), of_images(of_boxes, "SetCriterion")


def of_images(sample_weight: Any, owner: str) -> Tensor:
    """`sample_weight` as Keras hands it over, float32 `(batch,)`; ValueError if of other shape."""
    weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    if len(weight.shape) == 2 and weight.shape[1] == 1:
        weight = weight[:, 0]
    if len(weight.shape) != 1:
        raise ValueError(
            f"{owner}: `sample_weight` must have shape (batch,), a weight for each image. "
            f"Received: shape {tuple(weight.shape)}"
        )
    return weight


def _focal_parts(logits: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> tuple[Tensor, Tensor]:
    """The focal loss of every logit, if its class is there and if it is not."""
    share = ops.sigmoid(logits)
    positive = alpha * (1 - share) ** gamma * ops.softplus(-logits)
    negative = (1 - alpha) * share**gamma * ops.softplus(logits)
    return positive, negative


def _focal_loss(logits: Tensor, target: Tensor) -> Tensor:
    positive, negative = _focal_parts(logits)
    return target * positive + (1 - target) * negative
