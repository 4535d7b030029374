"""From the logits of a classifier to what is said of its classes."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.core.types import ClassProblem
from keras_transformers.models.base import SEVERAL, SINGLE

THRESHOLD = 0.5  # probability from which on one of several labels is taken to be present


class Classes:
    """Names of classes, and how logits become their probabilities.

    One of several classes: a softmax. Several labels at once (`problem_type`
    "multi_label_classification"), or one logit: a sigmoid of each. One logit and two names: the
    sigmoid is the second one's probability, and the first has the rest.

    Args:
        exporter: Name of the exporter, for messages.
        model: The model; its `problem_type`, where it has one, is the default of the next argument.
        width: Number of its logits.
        labels: Names of the classes.
        problem_type: "single_label_classification", "multi_label_classification", or None.

    Raises:
        ValueError: If the names are not as many as the logits, or the model is no classifier.
    """

    def __init__(
        self,
        exporter: str,
        model: Any,
        width: int,
        labels: Sequence[str],
        problem_type: ClassProblem | None = None,
    ) -> None:
        self.names = [str(label) for label in labels]
        problem_type = problem_type or getattr(model, "problem_type", None)
        if problem_type not in (None, SINGLE, SEVERAL):
            raise ValueError(
                f"{exporter}: `problem_type` must be {SINGLE!r}, {SEVERAL!r} or None, for a model "
                f"that tells classes. Received: {problem_type!r}"
            )
        self.of_two = width == 1 and len(self.names) == 2 and problem_type != SEVERAL
        if width != len(self.names) and not self.of_two:
            raise ValueError(
                f"{exporter}: `labels` must have a name for each of the model's {width} "
                f"logits. Received: {len(self.names)}"
            )
        self.several = problem_type == SEVERAL or width == len(self.names) == 1

    def __len__(self) -> int:
        return len(self.names)

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """float32 `(batch, classes)`."""
        logits = tf.cast(logits, tf.float32)
        if self.of_two:
            return tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=1)
        return tf.sigmoid(logits) if self.several else tf.nn.softmax(logits)

    def answer(self, probabilities: tf.Tensor) -> dict[str, tf.Tensor]:
        """What is said: a dict of tensors, the batch first; `label` is an int32 position.

        Of several labels `present` tells which have a probability of a half or more.
        """
        found = {
            "label": tf.argmax(probabilities, axis=1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
        }
        return found | ({"present": probabilities >= THRESHOLD} if self.several else {})

    def named_answer(self, probabilities: tf.Tensor) -> dict[str, tf.Tensor]:
        """The same, `label` being a name."""
        found = self.answer(probabilities)
        return found | {"label": tf.gather(tf.constant(self.names), found["label"])}
