"""Labels of texts and images, as names and as numbers, and entities in tags of words.

An example has one label or several. Tags such as "B-PER", "I-PER" and "O" say where an entity
begins.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformers.core.types import Array

INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}
WITH_POINT = re.compile(r"-?\d+\.\d*(e-?\d+)?|-?\d+e-?\d+")  # a float as Python writes it
WHOLE = re.compile(r"[+-]?\d+\.0*")


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


def indicator_size(label: str | Sequence[str]) -> int:
    """The number of classes in a list that holds 0 or 1 for each of them; 0 for any other label.

    Example:
    >>> from keras_transformers.data.labels import indicator_size
    >>> [indicator_size(label) for label in (["0", "1", "1"], ["0.0", "1.0"], ["1"], ["cat"], "1")]
    [3, 2, 0, 0, 0]
    """
    if isinstance(label, str) or len(label) < 2 or not INDICATORS.keys() >= {*label}:
        return 0
    return len(label)


def indicated_names(label: Sequence[str], classes: Sequence[str]) -> list[str]:
    """The classes for which a list of indicators holds 1.

    Example:
    >>> from keras_transformers.data.labels import indicated_names
    >>> indicated_names(["0.0", "1.0", "1.0"], ["cat", "dog", "pet"])
    ['dog', 'pet']
    """
    return [name for name, cell in zip(classes, label, strict=True) if INDICATORS[cell]]


def indicated_classes(
    labels: Sequence[str | Sequence[str]], classes: Sequence[str] | None = None
) -> list[str] | None:
    """The classes that labels as lists of indicators are about; None if they are lists of names.

    Labels are indicators if all of them are lists of the same length, two or more, which hold
    nothing but 0 and 1 (or False and True, or 0.0 and 1.0). As lists of names they would all have
    the same two classes, which says nothing. If the classes are known, there must be as many of
    them as numbers in a list.

    Args:
        labels: The labels of all rows, each a str or a list of str.
        classes: Names of the classes; by default "0", "1" and so on.

    Raises:
        ValueError: If they are lists of other numbers with a point, such as probabilities.

    Example:
    >>> from keras_transformers.data.labels import indicated_classes
    >>> indicated_classes([["0", "1", "1"], ["0", "0", "0"]])
    ['0', '1', '2']
    >>> indicated_classes([["0"], ["0", "1"]]) is None
    True
    """
    sizes = {indicator_size(label) for label in labels}
    if len(sizes) == 1 and 0 not in sizes:
        (size,) = sizes
        if classes is not None:
            return list(classes) if len(classes) == size else None
        return [str(number) for number in range(size)]
    lists = [label for label in labels if not isinstance(label, str)]
    lengths = {len(label) for label in lists}
    if lists and len(lists) == len(labels) and len(lengths) == 1 and min(lengths) > 1:
        if all(WITH_POINT.fullmatch(cell) for label in lists for cell in label):
            raise ValueError(
                f"Labels must be names, or lists of 0 and 1 with a number for each class. "
                f"Received: {', '.join(lists[0])} in one row"
            )
    return None


def whole_number(name: str) -> str:
    """The name of a class without the point of a whole number; other names stay.

    Example:
    >>> from keras_transformers.data.labels import whole_number
    >>> whole_number("3.0"), whole_number("3.5"), whole_number("v3.0")
    ('3', '3.5', 'v3.0')
    """
    return name.partition(".")[0] if WHOLE.fullmatch(name) else name


def numbered(
    pairs: Iterable[tuple[str, str | Sequence[str]]],
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    left_out: Mapping[str, int] | Sequence[str] | None = (),
    keeps_unknown: bool = False,
) -> Labelled:
    """Numbers for the names of labels.

    Args:
        pairs: Iterable of things, each a str, and their labels: a str, or a list of str; or lists
            of 0 and 1 with a number for each class, see `indicated_classes`.
        classes: Names of the classes; by default those that occur, sorted. What has another is left
            out, and counted.
        separator: What stands between the names in a str where there can be several labels, or
            none; None for one each.
        left_out: Dict of reason -> number of things that were left out before.
        keeps_unknown: Whether things of other classes than the given ones stay instead. Their
            classes come after the given ones.

    Returns:
        A `Labelled`.

    Example:
    >>> from keras_transformers.data.labels import numbered
    >>> found = numbered([("a", "cat, dog"), ("b", ""), ("c", ["dog"])], separator=",")
    >>> found.classes, found.labels
    (['cat', 'dog'], [[0, 1], [], [1]])
    """
    left_out, kept = collections.Counter(left_out), []
    noted: collections.Counter[str] = collections.Counter()
    pairs = list(pairs)
    indicated = indicated_classes([label for _, label in pairs], classes)
    classes = indicated or classes
    known = None if classes is None else set(classes)
    for thing, label in pairs:
        given = names_of(label, separator)
        if indicated is not None:
            given = indicated_names(label, indicated)
        names = list(dict.fromkeys(given))  # each once
        if known is not None:
            names = [name if name in known else whole_number(name) for name in names]
        if not thing:
            left_out["empty"] += 1
        elif separator is None and len(names) != 1:
            left_out["with several labels" if names else "without a label"] += 1
        elif known is not None and not keeps_unknown and not known.issuperset(names):
            left_out["of a class that is not in the training set"] += 1
        else:
            noted["with a label given twice"] += len(names) < len(given)
            kept.append((thing, names))
    first = [] if classes is None else list(classes)
    others = {name for _, names in kept for name in names}.difference(first)
    classes = [*first, *sorted(others)]
    numbers = {label: number for number, label in enumerate(classes)}
    labels = [[numbers[name] for name in names] for _, names in kept]
    labels = labels if separator is not None else [only for (only,) in labels]
    things = [thing for thing, _ in kept]
    return Labelled(things, labels, classes, dict(left_out), dict(+noted))


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
    >>> from keras_transformers.data.labels import names_of
    >>> names_of("cat, dog", ","), names_of("cat, dog", None)
    (['cat', 'dog'], ['cat, dog'])
    """
    if isinstance(label, str):
        label = [label] if separator is None else label.split(separator)
    return [name for name in map(str.strip, label) if name]


OUTSIDE = "O"  # the tag of words that are part of nothing
LETTERS = "BIES"  # of IOB1, IOB2 and IOBES


class Entity(NamedTuple):
    """Words that have one name together.

    Attributes:
        type: What they are: "PER".
        start, end: Numbers of the first word, and of the one behind the last.

    Example:
    >>> from keras_transformers.data.labels import Entity
    >>> Entity("PER", 0, 2).end
    2
    """

    type: str
    start: int
    end: int


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: each "O", or a letter of B, I, E and S, "-", and a type.

    Example:
    >>> from keras_transformers.data.labels import mark_entities
    >>> [mark_entities(tags) for tags in (["O", "B-PER", "I-PER"], ["NOUN", "VERB"], ["O"])]
    [True, False, False]
    """
    marks = {tag for tag in tags if tag != OUTSIDE}
    return bool(marks) and all(
        len(tag) > 2 and tag[0] in LETTERS and tag[1] == "-" for tag in marks
    )


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities in the tags of a sentence, as `conlleval` reads them.

    An entity goes on with I or E of its type behind B or I, and begins with every other tag that
    is not "O": what IOB1 and sloppy models begin with I counts, too.

    Args:
        tags: Of which each is "O", or as `mark_entities` says; "" is taken for "O".

    Returns:
        List of `Entity`.

    Example:
    >>> from keras_transformers.data.labels import entities_of
    >>> [tuple(each) for each in entities_of(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])]
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    found: list[Entity] = []
    before = OUTSIDE
    for number, tag in enumerate(tag or OUTSIDE for tag in tags):
        goes_on = tag[0] in "IE" and before[0] in "BI" and tag[2:] == before[2:]
        if goes_on:
            found[-1] = found[-1]._replace(end=number + 1)
        elif tag != OUTSIDE:
            found.append(Entity(tag[2:], number, number + 1))
        before = tag
    return found
