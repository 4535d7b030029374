"""What a predicted set of boxes costs against the true one."""

import dataclasses
import math
import typing
from typing import Any

from keras import ops

from keras_transformers.core.assertions import require_values
from keras_transformers.core.types import Scalar, Tensor
from keras_transformers.detection.boxes import corner_boxes, generalized_iou
from keras_transformers.detection.matching import match


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
