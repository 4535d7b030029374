"""Links between words as files have them."""

import re
from collections.abc import Iterable

Links = list[tuple[int, int]]


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as Pharaoh, Moses and word aligners write them: "0-0 1-2", source first.

    Example:
    >>> from keras_transformers.alignment import pharaoh
    >>> pharaoh([(0, 0), (1, 2)])
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> Links:
    """The links of a line, in their order; ValueError if there is anything else.

    Example:
    >>> from keras_transformers.alignment import read_pharaoh
    >>> read_pharaoh("0-0 1-2")
    [(0, 0), (1, 2)]
    """
    parts = line.split()
    wrong = [part for part in parts if not re.fullmatch(r"[0-9]+-[0-9]+", part)]
    if wrong:
        raise ValueError(
            f"read_pharaoh: `line` must have links such as 0-0. Received: {wrong[0][:60]!r}"
        )
    return [(int(source), int(target)) for source, _, target in (x.partition("-") for x in parts)]
