"""Which pieces a merging of pairs makes on the way to one piece."""

from collections.abc import Callable


def merge_steps(piece: str, rank: Callable[[tuple[str, str]], float | None]) -> set[str]:
    """The pieces that are made while the symbols of one piece are merged.

    In a text, no pair across the ends of a piece was merged, so that inside it the merges are those
    of the piece alone, in the same order.

    Args:
        piece: Its symbols, a character each.
        rank: Function of a pair of symbols: None for one that is not merged, else a number; the
            smallest goes first, and of two that are equal the left one.

    Returns:
        Set of str, the piece itself among them if it is reached.

    Example:
    >>> from keras_transformers.text.merge_steps import merge_steps
    >>> sorted(merge_steps("cat", {("a", "t"): 0, ("c", "at"): 1, ("c", "a"): 2}.get))
    ['at', 'cat']
    """
    symbols, found = list(piece), set[str]()
    while True:
        ranked = [
            (number, i)
            for i, pair in enumerate(zip(symbols, symbols[1:], strict=False))
            if (number := rank(pair)) is not None
        ]
        if not ranked:
            return found
        _, i = min(ranked)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        found.add(symbols[i])
