"""Classes: names, probabilities, and labels as they stand in data."""

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


SEPARATOR = ","  # between several labels in one str, where nothing else is said
REGRESSION = "regression"


@dataclasses.dataclass(frozen=True)
class Scale:
    """Numbers are learned around 0 and with a spread of 1."""

    mean: float = 0.0
    spread: float = 1.0

    def scaled(self, values: Array) -> Array:
        """Values as they are learned."""
        return values if (self.mean, self.spread) == (0, 1) else (values - self.mean) / self.spread

    def fold_into(self, layer: Any) -> None:
        """Makes the last layer give the numbers themselves."""
        layer.kernel.assign(layer.kernel * self.spread)
        layer.bias.assign(layer.bias * self.spread + self.mean)

    def take_out_of(self, layer: Any) -> None:
        """Makes a layer that gives the numbers themselves give them as they are learned."""
        layer.kernel.assign(layer.kernel / self.spread)
        layer.bias.assign((layer.bias - self.mean) / self.spread)


@dataclasses.dataclass(frozen=True)
class Targets:
    """Texts with what is to be learned of each.

    Args:
        corpus: The texts; its labels are numbers of classes, lists of them, or floats.
        problem_type: What the labels are.
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
        """What is to be learned of each text."""
        return self.corpus.labels or []

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; None where numbers are learned."""
        return self.corpus.classes

    def summary(self) -> str:
        """What was read, and what was left out."""
        return self.corpus.summary()

    def split(self, seed: int) -> tuple[Self, Self]:
        """What is learned from, and what is watched by."""
        parts = self.corpus.split(seed)
        first, second = (dataclasses.replace(self, corpus=part) for part in parts)
        return first, second

    def array(self) -> Array:
        """float32 `(n, classes)` of 0 and 1, or `(n, 1)`."""
        if self.problem_type == REGRESSION:
            return np.array(self.values, "float32")[:, None]
        lists = self.values if self.problem_type == SEVERAL else [[each] for each in self.values]
        return several_hot(lists, len(self.classes or ()), "float32")

    def scale(self) -> Scale:
        """That of numbers; of classes none."""
        if self.problem_type != REGRESSION:
            return Scale()
        values = np.array(self.values)
        return Scale(float(values.mean()), float(values.std()) or 1.0)


def targets_of(
    data: Any,
    columns: Chosen,
    problem_type: ProblemType | None,
    separator: str | None,
    known: Sequence[str] | None,
    strict: bool = False,
    keeps_unknown: bool = False,
) -> Targets:
    """Reads texts and their labels.

    Args:
        data, columns: See `text.read_labelled`.
        problem_type: What the labels are; None: lists are several (of 0 and 1 with a single 1 each:
            one class, see `label_lists.indicated_classes`), numbers with a point are numbers, and
            all others are one class each.
        separator: What stands between several labels in one str.
        known: Names of the classes that there are. They stay if the labels are among them.
        strict: Whether they stay in any case: texts of other classes are left out, and counted.
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
        return Targets(_with_numbers(rows.name, pairs, rows.left_out), problem)
    between = None if problem != SEVERAL else separator or SEPARATOR
    if indicated_classes(labels) is not None:
        known = indicated_classes(labels, known) or (known if strict else None)
    elif known is not None and not strict:
        names = {name for label in labels for name in _names(label, between)}
        known = known if names <= set(known) else None
    corpus = TextCorpus.labelled(rows.name, pairs, known, rows.left_out, between, keeps_unknown)
    if problem != SEVERAL and len(corpus.classes or ()) < 2:
        raise ValueError(f"{corpus.summary()}. There is nothing to tell apart: all have one class.")
    return Targets(corpus, problem)


def problem_of(labels: Iterable[Any], separator: str | None) -> ProblemType:
    """What labels are: several where there are lists, numbers where one has a point, or one class.

    Lists of 0 and 1 that have a single 1 each (one-hot) are one class. Empty labels say nothing.

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
    numbers = [_number(label) for label in labels]
    whole = all(number is None or label.strip().lstrip("+-").isdecimal()
                for label, number in zip(labels, numbers, strict=True))  # fmt: skip
    return (
        "regression"
        if labels and None not in numbers and not whole
        else "single_label_classification"
    )


def row_weights(targets: Targets, class_weights: str | Mapping[str, float] | None) -> Array:
    """What each row counts, float32 `(n,)`, on average about 1.

    Args:
        targets: The rows.
        class_weights: None for 1 each; "balanced", so that all classes count the same together;
            or a dict from names of classes, of which those that are missing count 1.

    Raises:
        ValueError: If it is another str or has unknown names, or rows have not one class each.
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
    """Returns what a row of each class counts, float32 `(classes,)`.

    Args:
        class_weights: "balanced" or a dict, see `row_weights`.
        classes: Names of the classes.
        labels: Integers `(rows,)`, positions in `classes`.
        problem_type: Of the training.

    Raises:
        ValueError: If it is another str or has unknown names, or rows have not one class each.
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


def _with_numbers(
    name: str, pairs: Sequence[tuple[str, Any]], left_out: Mapping[str, int]
) -> TextCorpus:
    kept, counts = [], collections.Counter(left_out)
    for text, label in pairs:
        number = _number(label)
        if number is None:
            counts["whose label is no number"] += 1
        elif not text.strip():
            counts["empty"] += 1
        else:
            kept.append((text.strip(), number))
    texts, numbers = [text for text, _ in kept], [number for _, number in kept]
    corpus = TextCorpus(name, texts, numbers, left_out=dict(counts))
    return corpus.checked("each line must hold a text and a number")


def _number(label: Any) -> float | None:
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _names(label: Any, separator: str | None) -> list[str]:
    if isinstance(label, str):
        label = [label] if separator is None else label.split(separator)
    return [name.strip() for name in label if name.strip()]
