"""Scores of tags of words, and of the entities that they mark."""

import dataclasses
from collections.abc import Sequence

from keras_transformers.entities import entities_of, mark_entities


@dataclasses.dataclass(frozen=True)
class TagScores:
    """How good tags are.

    Args:
        accuracy: Share of words with the right tag.
        precision, recall, f1: Of whole entities, those of all types together: right ones have the
            right words and type. None where tags mark no entities.

    Example:
    >>> from keras_transformers.training import TagScores
    >>> TagScores(0.5).numbers()
    {'accuracy': 0.5}
    """

    accuracy: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None

    def numbers(self) -> dict[str, float]:
        """Dict of the name of each score that there is to its number."""
        found = dataclasses.asdict(self)
        return {name: number for name, number in found.items() if number is not None}


def score_tags(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> TagScores:
    """Scores tags of sentences.

    Entities are those of `entities.entities_of`, and the scores are `seqeval`'s, and with it those
    of the shared tasks of CoNLL. They are 0 where nothing is there to divide by.

    Args:
        found: The tags of each sentence, lists of str; "" for a word that has none.
        expected: The right ones, of as many words.

    Returns:
        `TagScores`.

    Raises:
        ValueError: If there are no words, or not as many of both.

    Example:
    >>> from keras_transformers.training import score_tags
    >>> scores = score_tags([["B-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "B-LOC"]])
    >>> scores.f1, round(scores.accuracy, 2)
    (0.5, 0.67)
    """
    sizes = [[len(sentence) for sentence in each] for each in (found, expected)]
    if sizes[0] != sizes[1] or not sum(sizes[1]):
        raise ValueError(
            "score_tags: `found` and `expected` must have tags for the same words. Received: "
            f"{sum(sizes[0])} in {len(found)} sentences and {sum(sizes[1])} in {len(expected)}"
        )
    pairs = [*zip(found, expected, strict=True)]
    right = sum(a == b for one, other in pairs for a, b in zip(one, other, strict=True))
    accuracy = right / sum(sizes[1])
    if not mark_entities({tag for both in pairs for tags in both for tag in tags if tag}):
        return TagScores(accuracy)
    numbers = [0, 0, 0]
    for one, other in pairs:
        entities = {*entities_of(one)}, {*entities_of(other)}
        for i, those in enumerate((entities[0] & entities[1], *entities)):
            numbers[i] += len(those)
    both, ours, theirs = numbers
    return TagScores(
        accuracy, both / max(ours, 1), both / max(theirs, 1), 2 * both / max(ours + theirs, 1)
    )
