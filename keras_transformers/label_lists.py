"""Labels of texts and images, as names and as numbers, where there can be one or several."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Things with numbers for their labels, and an account of what was left out.

    Args:
        things: List of what has labels.
        labels: Number of the class of each, or a list of numbers where there can be several.
        classes: Names of the classes, list of str.
        left_out: Dict of reason -> number of things left out.
        noted: The same of things that were kept.
    """

    things: list[str]
    labels: list[Any]
    classes: list[str]
    left_out: dict[str, int]
    noted: dict[str, int]


def numbered(
    pairs: Iterable[tuple[str, str | Sequence[str]]],
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    left_out: Mapping[str, int] | Sequence[str] | None = (),
) -> Labelled:
    """Numbers for the names of labels.

    Args:
        pairs: Iterable of things, each a str, and their labels: a str, or a list of str.
        classes: Names of the classes; by default those that occur, sorted. What has another is left
            out, and counted.
        separator: What stands between the names in a str where there can be several labels, or
            none; None for one each.
        left_out: Dict of reason -> number of things that were left out before.

    Returns:
        A `Labelled`.

    Example:
    >>> from keras_transformers.label_lists import numbered
    >>> found = numbered([("a", "cat, dog"), ("b", ""), ("c", ["dog"])], separator=",")
    >>> found.classes, found.labels
    (['cat', 'dog'], [[0, 1], [], [1]])
    """
    left_out, kept = collections.Counter(left_out), []
    noted: collections.Counter[str] = collections.Counter()
    known = None if classes is None else set(classes)
    for thing, label in pairs:
        given = names_of(label, separator)
        names = list(dict.fromkeys(given))  # each once
        if not thing:
            left_out["empty"] += 1
        elif separator is None and len(names) != 1:
            left_out["with several labels" if names else "without a label"] += 1
        elif known is not None and not known.issuperset(names):
            left_out["of a class that is not in the training set"] += 1
        else:
            noted["with a label given twice"] += len(names) < len(given)
            kept.append((thing, names))
    if classes is None:
        classes = sorted({name for _, names in kept for name in names})
    numbers = {label: number for number, label in enumerate(classes)}
    labels = [[numbers[name] for name in names] for _, names in kept]
    labels = labels if separator is not None else [only for (only,) in labels]
    things = [thing for thing, _ in kept]
    return Labelled(things, labels, list(classes), dict(left_out), dict(+noted))


def several_hot(labels: Sequence[Sequence[int]], classes: int, dtype: str = "int32") -> Array:
    """0 and 1 `(n, classes)` of a list of lists of class numbers.

    Example:
    >>> from keras_transformers.training import several_hot
    >>> several_hot([[2, 0], []], 3).tolist()
    [[1, 0, 1], [0, 0, 0]]
    """
    hot = np.zeros((len(labels), classes), dtype)
    for row, numbers in zip(hot, labels, strict=True):
        row[numbers] = 1
    return hot


def names_of(label: str | Sequence[str], separator: str | None) -> list[str]:
    """The names in a str, with the separator between them; or in a list.

    Example:
    >>> from keras_transformers.label_lists import names_of
    >>> names_of("cat, dog", ","), names_of("cat, dog", None)
    (['cat', 'dog'], ['cat, dog'])
    """
    if isinstance(label, str):
        label = [label] if separator is None else label.split(separator)
    return [name for name in map(str.strip, label) if name]
