"""Classes: their names, their probabilities, and labels as they stand in data."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, ClassProblem, ProblemType
from keras_transformers.data.labels import indicated_classes, indicated_names, several_hot
from keras_transformers.data.table_files import LABELS, TEXTS, Chosen
from keras_transformers.data.tables import read_rows
from keras_transformers.models.base import SEVERAL, SINGLE
from keras_transformers.text import TextCorpus

THRESHOLD = 0.5  # a label of several is present if its probability is this or more


class Classes:
    """Names of classes, and how logits become their probabilities.

    If a row has one of several classes, probabilities are a softmax. If it can have several labels
    (`problem_type` "multi_label_classification"), or there is one logit, they are sigmoids. With
    one logit and two names, the sigmoid is the probability of the second name.

    Args:
        exporter: Name of the exporter, for messages.
        model: The model.
        width: Number of its logits.
        labels: Names of the classes.
        problem_type: "single_label_classification" or "multi_label_classification"; None for the
            `problem_type` of the model.

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
        problem_type = problem_type or getattr(model, "problem_type", None)
        if problem_type not in (None, SINGLE, SEVERAL):
            raise ValueError(
                f"{exporter}: `problem_type` must be {SINGLE!r}, {SEVERAL!r} or None, for a model "
                f"that tells classes. Received: {problem_type!r}"
            )
        self.is_binary = width == 1 and len(labels) == 2 and problem_type != SEVERAL
        number = 2 if self.is_binary else width
        self.names = named_labels(exporter, labels, number, f"the model's {width} logits")
        self.has_several = problem_type == SEVERAL or width == len(labels) == 1

    def __len__(self) -> int:
        return len(self.names)

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of the classes, float32 `(batch, classes)`."""
        logits = tf.cast(logits, tf.float32)
        if self.is_binary:
            return tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=1)
        return tf.sigmoid(logits) if self.has_several else tf.nn.softmax(logits)

    def answer(self, probabilities: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answer, a dict of tensors, the batch first; `label` is an int32 position.

        If there can be several labels, `present` tells which have a probability of a half or more.
        """
        answer = {
            "label": tf.argmax(probabilities, axis=1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
        }
        if self.has_several:
            answer["present"] = probabilities >= THRESHOLD
        return answer

    def named_answer(self, probabilities: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answer with a name as `label`."""
        answer = self.answer(probabilities)
        return answer | {"label": tf.gather(tf.constant(self.names), answer["label"])}


def named_labels(exporter: str, labels: Sequence[str], number: int, outputs: str) -> list[str]:
    """Returns the names of classes as a list of str.

    Args:
        exporter: Name of the exporter, for messages.
        labels: The names.
        number: Number of the model's classes.
        outputs: The classes or logits in a message, such as "the model's 3 classes".

    Raises:
        ValueError: If the names are more or fewer.
    """
    if len(labels) != number:
        raise ValueError(
            f"{exporter}: `labels` must have a name for each of {outputs}. Received: {len(labels)}"
        )
    return [str(label) for label in labels]


SEPARATOR = ","  # between several labels in one str, by default
REGRESSION = "regression"


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of numbers, which are learned with mean 0 and spread 1."""

    mean: float = 0.0
    spread: float = 1.0

    def scaled(self, values: Array) -> Array:
        """Returns values as the model learns them."""
        return values if (self.mean, self.spread) == (0, 1) else (values - self.mean) / self.spread

    def fold_into(self, layer: Any) -> None:
        """Changes the last layer so that it gives the numbers themselves."""
        layer.kernel.assign(layer.kernel * self.spread)
        layer.bias.assign(layer.bias * self.spread + self.mean)

    def take_out_of(self, layer: Any) -> None:
        """Changes a layer that gives the numbers themselves so that it gives scaled numbers."""
        layer.kernel.assign(layer.kernel / self.spread)
        layer.bias.assign((layer.bias - self.mean) / self.spread)


@dataclasses.dataclass(frozen=True)
class Targets:
    """Texts with their labels or numbers.

    Args:
        corpus: The texts; its labels are numbers of classes, lists of them, or floats.
        problem_type: Kind of the labels.
    """

    corpus: TextCorpus
    problem_type: ProblemType

    def __len__(self) -> int:
        return len(self.corpus)

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return self.corpus.texts

    @property
    def values(self) -> list[Any]:
        """The label or number of each text."""
        return self.corpus.labels or []

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; None for numbers."""
        return self.corpus.classes

    def summary(self) -> str:
        """Tells how many texts were read, and how many were left out."""
        return self.corpus.summary()

    def split(self, seed: int) -> tuple[Self, Self]:
        """Returns a part for training and a part for validation."""
        parts = self.corpus.split(seed)
        first, second = (dataclasses.replace(self, corpus=part) for part in parts)
        return first, second

    def array(self) -> Array:
        """Returns float32 `(n, classes)` of 0 and 1, or `(n, 1)` for numbers."""
        if self.problem_type == REGRESSION:
            return np.array(self.values, "float32")[:, None]
        lists = self.values
        if self.problem_type != SEVERAL:
            lists = [[label] for label in self.values]
        return several_hot(lists, len(self.classes or ()), "float32")

    def scale(self) -> Scale:
        """Returns the scale of numbers; a scale that changes nothing for classes."""
        if self.problem_type != REGRESSION:
            return Scale()
        values = np.array(self.values)
        return Scale(float(values.mean()), float(values.std()) or 1.0)


def targets_of(
    data: Any,
    columns: Chosen,
    problem_type: ProblemType | None,
    separator: str | None,
    classes: Sequence[str] | None,
    strict: bool = False,
    keeps_unknown: bool = False,
) -> Targets:
    """Reads texts and their labels.

    Args:
        data, columns: See `text.read_labelled`.
        problem_type: Kind of the labels. With None, lists are several labels (lists of 0 and 1 with
            a single 1 are one class, see `labels.indicated_classes`), numbers with a point are
            numbers, and all others are one class each.
        separator: Separator of several labels in one str.
        classes: Names of the model's classes. They stay if the labels are among them.
        strict: Whether the names stay in any case: texts of other classes are left out and counted.
        keeps_unknown: With `strict`, whether texts of other classes stay instead. Their classes
            come after the known ones, so that a score counts them as errors.

    Raises:
        ValueError: If nothing is usable, or there is a single class.
    """
    rows = read_rows(data, (TEXTS, LABELS), "text TAB class", columns).without_names()
    pairs = [(text, label) for _, (text, label) in rows.kept]
    labels = [label for _, label in pairs]
    problem = problem_type or problem_of(labels, separator)
    if problem == REGRESSION:
        return Targets(_read_numbers(rows.name, pairs, rows.left_out), problem)
    separator = (separator or SEPARATOR) if problem == SEVERAL else None
    if indicated_classes(labels) is not None:
        classes = indicated_classes(labels, classes) or (classes if strict else None)
    elif classes is not None and not strict:
        names = {name for label in labels for name in _names(label, separator)}
        classes = classes if names <= set(classes) else None
    corpus = TextCorpus.labelled(rows.name, pairs, classes, rows.left_out, separator, keeps_unknown)
    if problem != SEVERAL and len(corpus.classes or ()) < 2:
        raise ValueError(f"{corpus.summary()}. There is nothing to tell apart: all have one class.")
    return Targets(corpus, problem)


def problem_of(labels: Iterable[Any], separator: str | None) -> ProblemType:
    """Finds the kind of labels: several for lists, numbers if one has a point, or one class.

    Lists of 0 and 1 with a single 1 each (one-hot) are one class. Empty labels do not count.

    Example:
    >>> from keras_transformers.tasks.classes import problem_of
    >>> [problem_of(labels, None) for labels in (["1", "2"], ["1.5", "2"], [["a"], []])]
    ['single_label_classification', 'regression', 'multi_label_classification']
    """
    labels = [label for label in labels if not isinstance(label, str) or label.strip()]
    indicated = indicated_classes(labels)
    if indicated is not None and separator is None:
        counts = {len(indicated_names(label, indicated)) for label in labels}
        return "single_label_classification" if counts == {1} else "multi_label_classification"
    if separator is not None or any(isinstance(label, list) for label in labels):
        return "multi_label_classification"
    are_numbers = all(_number(label) is not None for label in labels)
    if are_numbers and not all(label.strip().lstrip("+-").isdecimal() for label in labels):
        return "regression"
    return "single_label_classification"


def row_weights(targets: Targets, class_weights: str | Mapping[str, float] | None) -> Array:
    """Returns the weight of each row, float32 `(n,)`, on average about 1.

    Args:
        targets: The rows.
        class_weights: None for 1 each; "balanced", so that all classes have the same total weight;
            or a dict of class names to weights, in which a missing class has the weight 1.

    Raises:
        ValueError: If `class_weights` is another str, names unknown classes or has a negative
            weight, or rows have not one class each.
    """
    if class_weights is None:
        return np.ones(len(targets), "float32")
    values = np.array(targets.values)
    weights = weights_of_classes(class_weights, targets.classes or [], values, targets.problem_type)
    return weights[values]


def weights_of_classes(
    class_weights: str | Mapping[str, float],
    classes: Sequence[str],
    labels: Array,
    problem_type: str | None,
) -> Array:
    """Returns the weight of a row of each class, float32 `(classes,)`.

    Args:
        class_weights: "balanced" or a dict, see `row_weights`.
        classes: Names of the classes.
        labels: Integers `(rows,)`, positions in `classes`.
        problem_type: Kind of the labels.

    Raises:
        ValueError: As `row_weights`.
    """
    if problem_type != SINGLE:
        raise ValueError(
            "fit: `class_weights` must be None unless each row has one class. Received: "
            f"{class_weights!r} for {problem_type}"
        )
    if isinstance(class_weights, str):
        if class_weights != "balanced":
            raise ValueError(
                "fit: `class_weights` must be 'balanced', or a dict of name -> weight. Received: "
                f"{class_weights!r}"
            )
        counts = np.bincount(labels, minlength=len(classes))
        weights = len(labels) / np.maximum(counts * np.count_nonzero(counts), 1)
    else:
        unknown = sorted(set(class_weights) - set(classes))
        if unknown or any(weight < 0 for weight in class_weights.values()):
            raise ValueError(
                f"fit: `class_weights` must have no negative weights, and names among "
                f"{', '.join(classes)}. Received: {dict(class_weights)}"
            )
        weights = np.array([class_weights.get(name, 1.0) for name in classes])
    return weights.astype("float32")


def _read_numbers(
    name: str, pairs: Sequence[tuple[str, Any]], left_out: Mapping[str, int]
) -> TextCorpus:
    """Returns the texts whose label is a number, and counts the others."""
    texts: list[str] = []
    numbers: list[float] = []
    counts = collections.Counter(left_out)
    for text, label in pairs:
        number = _number(label)
        if number is None:
            counts["whose label is no number"] += 1
        elif not text.strip():
            counts["empty"] += 1
        else:
            texts.append(text.strip())
            numbers.append(number)
    corpus = TextCorpus(name, texts, numbers, left_out=dict(counts))
    return corpus.checked("each line must hold a text and a number")


def _number(label: Any) -> float | None:
    """Returns the finite number that a label is, or None."""
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _names(label: Any, separator: str | None) -> list[str]:
    """Returns the names of classes in a label."""
    if isinstance(label, str):
        label = [label] if separator is None else label.split(separator)
    return [name.strip() for name in label if name.strip()]
