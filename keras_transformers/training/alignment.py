"""How wrong links between words are."""

from collections.abc import Collection, Sequence
from typing import Any


def alignment_error_rate(
    links: Sequence[Collection[tuple[int, int]]],
    sure: Sequence[Collection[tuple[int, int]]],
    possible: Sequence[Collection[tuple[int, int]]] | None = None,
) -> dict[str, float]:
    """The alignment error rate of Och & Ney 2003 (https://aclanthology.org/J03-1002, section 6).

    Of links A, sure ones S and possible ones P, of which the sure ones are some, over all pairs of
    sentences: `1 - (|A & S| + |A & P|) / (|A| + |S|)`, precision `|A & P| / |A|` and recall
    `|A & S| / |S|`.

    Args:
        links: For each pair of sentences the links `(source word, target word)` that were found.
        sure: For each those that must be found.
        possible: For each those that may be found; sure ones are so whether they are named or not.
            By default there are no others.

    Returns:
        Dict of "error_rate", "precision" and "recall", from 0 to 1; 0 errors, and 1, where there is
        nothing to find and nothing was found.

    Raises:
        ValueError: If the lists differ in length.

    Example: one of two sure links is missing, and a link is wrong.
    >>> from keras_transformers.training import alignment_error_rate
    >>> alignment_error_rate([[(0, 0), (1, 0)]], [[(0, 0), (1, 1)]])
    {'error_rate': 0.5, 'precision': 0.5, 'recall': 0.5}
    """
    maybe: Sequence[Any] = [()] * len(sure) if possible is None else possible
    sizes = {"links": len(links), "sure": len(sure), "possible": len(maybe)}
    if len(set(sizes.values())) != 1:
        raise ValueError(
            "alignment_error_rate: `links`, `sure` and `possible` must be as long as each other. "
            f"Received: {', '.join(map(str, sizes.values()))}"
        )
    found = required = both = allowed = 0
    for own, must, may in zip(map(set, links), map(set, sure), map(set, maybe), strict=True):
        found, required = found + len(own), required + len(must)
        both, allowed = both + len(own & must), allowed + len(own & (must | may))
    total = found + required
    return {
        "error_rate": 1 - (both + allowed) / total if total else 0.0,
        "precision": allowed / found if found else 1.0,
        "recall": both / required if required else 1.0,
    }
