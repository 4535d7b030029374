"""Filters that compare what must be on both sides: markup, placeholders, numbers, brackets."""

import collections
import dataclasses
import functools
import re
from typing import Literal

from keras_transformers.placeables import placeables
from keras_transformers.text.cleaning.filters import PairFilter

BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）", "【": "】", "「": "」", "『": "』"}
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
        fewest: Of both sides together, from which on a pair is judged.

    Example:
    >>> from keras_transformers.text.cleaning import Placeables
    >>> tags = Placeables("tag")
    >>> tags.keeps("<b>cat</b>", "<b>Katze</b>"), tags.keeps("<b>cat</b>", "Katze")
    (True, False)
    """

    kind: Literal["tag", "entity", "address", "placeholder", "number"]
    overlap: float = 1.0
    fewest: int = 1

    name: str = dataclasses.field(init=False, default="")

    def __post_init__(self) -> None:
        plural = {"entity": "entities", "address": "addresses"}.get(self.kind, f"{self.kind}s")
        object.__setattr__(self, "name", f"other {plural}")

    def keeps(self, source: str, target: str) -> bool:
        first, second = (
            collections.Counter(what for kind, what in _found(text) if kind == self.kind)
            for text in (source, target)
        )
        number = first.total() + second.total()
        if number < max(self.fewest, 1):
            return True
        return 2 * (first & second).total() >= self.overlap * number


@dataclasses.dataclass(frozen=True)
class Brackets(PairFilter):
    """Drops pairs with a bracket that is left open, or closed unopened, on one side alone.

    As where a sentence was cut off. List items, as "a)", and faces, as ":-)", do not count.

    Example:
    >>> from keras_transformers.text.cleaning import Brackets
    >>> Brackets().keeps("cats (black)", "Katzen (schwarze"), Brackets().keeps("a) cats", "Katzen")
    (False, True)
    """

    name = "brackets"

    def keeps(self, source: str, target: str) -> bool:
        return _balanced(source) == _balanced(target)


def _balanced(text: str) -> bool:
    if not any(each in text for pair in BRACKETS.items() for each in pair):
        return True
    text = _ITEM.sub(" ", text)
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
