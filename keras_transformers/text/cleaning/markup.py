"""Filters that compare what must be on both sides: markup, placeholders, numbers, brackets."""

import collections
import dataclasses
import functools
import re
from typing import Literal

from keras_transformers.placeables import placeables
from keras_transformers.text.cleaning.filters import PairFilter

BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）", "【": "】", "「": "」", "『": "』"}
_BRACKET = re.compile(f"[{re.escape(''.join([*BRACKETS, *BRACKETS.values()]))}]")
_ITEM = re.compile(r"(?:^|\s)(?:\w|\d+|[ivx]+)\)|[:;=8][-^]?[()]|<[-=]?\(|\)[-=]?>")  # a) and :-)


@functools.lru_cache(maxsize=64)  # of one pair, by the filters of all kinds
def _found(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(placeables(text))


@dataclasses.dataclass(frozen=True)
class Placeables(PairFilter):
    """Drops pairs whose sides have other markup, placeholders, addresses or numbers.

    Args:
        kind: One of `placeables.KINDS`.
        overlap: Least share that the sides have in common, `2 * common / (source + target)`. 1 asks
            for the same ones on both sides, in any order.
        alone: Fewest of a side where the other has none, from which on a pair is judged: a number
            may stand there in words.

    Example:
    >>> from keras_transformers.text.cleaning import Placeables
    >>> tags = Placeables("tag")
    >>> tags.keeps("<b>cat</b>", "<b>Katze</b>"), tags.keeps("<b>cat</b>", "Katze")
    (True, False)
    """

    kind: Literal["tag", "entity", "address", "placeholder", "number"]
    overlap: float = 1.0
    alone: int = 1
    name: str = dataclasses.field(init=False, default="")

    def __post_init__(self) -> None:
        plural = {"entity": "entities", "address": "addresses"}.get(self.kind, f"{self.kind}s")
        object.__setattr__(self, "name", f"other {plural}")

    def keeps(self, source: str, target: str) -> bool:
        found = _found(source), _found(target)
        if not any(found):
            return True
        first, second = (
            collections.Counter(what for kind, what in side if kind == self.kind) for side in found
        )
        number = first.total() + second.total()
        if not number or number < self.alone and not (first and second):
            return True
        if 2 * (first & second).total() >= self.overlap * number:
            return True
        # 12/11/2020 is three numbers, 12.11.2020 one.
        return self.kind == "number" and _digits(first) == _digits(second)


def _digits(numbers: "collections.Counter[str]") -> list[str]:
    return sorted("".join(numbers.elements()))


@dataclasses.dataclass(frozen=True)
class Brackets(PairFilter):
    """Drops pairs with a bracket left open, or closed unopened, on one side alone: it was cut off.

    Not where the other side has no brackets at all: what stands in brackets in one language stands
    between dashes in another. Items of lists, as "a)", and faces, as ":-)", do not count.

    Example:
    >>> from keras_transformers.text.cleaning import Brackets
    >>> Brackets().keeps("cats (black)", "Katzen (schwarze"), Brackets().keeps("a) cats", "Katzen")
    (False, True)
    """

    name = "brackets"

    def keeps(self, source: str, target: str) -> bool:
        if not _BRACKET.search(source) or not _BRACKET.search(target):
            return True
        if _even(source) == _even(target):
            return True
        return _even(_ITEM.sub(" ", source)) == _even(_ITEM.sub(" ", target))


def _even(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in BRACKETS.items())


@dataclasses.dataclass(frozen=True)
class Quotes(PairFilter):
    """Drops pairs with an odd number of straight double quotes on one side alone.

    Not where the other has none, for it may have quotes of another form, or inches in words.

    Example:
    >>> from keras_transformers.text.cleaning import Quotes
    >>> Quotes().keeps('the "cat"', 'die "Katze'), Quotes().keeps('the "cat"', "die „Katze“")
    (False, True)
    """

    name = "quotes"

    def keeps(self, source: str, target: str) -> bool:
        first, second = source.count('"'), target.count('"')
        return not (first and second) or first % 2 == second % 2
