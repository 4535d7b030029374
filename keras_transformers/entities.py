"""Entities in tags of words: what begins where, by "B-PER", "I-PER", "O" and the like."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"  # the tag of words that are part of nothing
LETTERS = "BIES"  # of IOB1, IOB2 and IOBES


class Entity(NamedTuple):
    """Words that have one name together.

    Attributes:
        type: What they are: "PER".
        start, end: Numbers of the first word, and of the one behind the last.

    Example:
    >>> from keras_transformers.entities import Entity
    >>> Entity("PER", 0, 2).end
    2
    """

    type: str
    start: int
    end: int


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: each "O", or a letter of B, I, E and S, "-", and a type.

    Example:
    >>> from keras_transformers.entities import mark_entities
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
    >>> from keras_transformers.entities import entities_of
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
