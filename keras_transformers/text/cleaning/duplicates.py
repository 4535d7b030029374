"""Pairs that were seen before, remembered by their hashes alone."""

import array
import dataclasses
import hashlib
import re
import unicodedata
from typing import Literal

from keras_transformers.text.cleaning.filters import PairFilter

PARTS = 256  # tables, of which one grows at a time, so that the memory for it is small
FULLEST = 0.75  # share of a table that is used when it grows
GROWTH = 1.5
_DIGITS = re.compile(r"\d+(?:[.,'\u00a0\u202f]\d+)*")
_NO_WORD = re.compile(r"[\W_]+")


class Hashes:
    """A set of 64-bit numbers in 11 to 16 bytes each, where Python's own takes some 100.

    Example:
    >>> from keras_transformers.text.cleaning.duplicates import Hashes
    >>> seen = Hashes()
    >>> seen.add(7), seen.add(7), len(seen)
    (True, False, 1)
    """

    def __init__(self) -> None:
        self._tables = [array.array("Q", bytes(8 * 8)) for _ in range(PARTS)]
        self._used = [0] * PARTS

    def __len__(self) -> int:
        return sum(self._used)

    def add(self, number: int) -> bool:
        """Whether it was not there; it is now."""
        number = number or 1  # 0 is a free slot
        part = number % PARTS
        table = self._tables[part]
        if not _put(table, number):
            return False
        self._used[part] += 1
        if self._used[part] > FULLEST * len(table):
            larger = array.array("Q", bytes(8 * int(GROWTH * len(table))))
            for each in table:
                if each:
                    _put(larger, each)
            self._tables[part] = larger
        return True


def _put(table: "array.array[int]", number: int) -> bool:
    size = len(table)
    slot = (number // PARTS) % size
    while (there := table[slot]) != number:
        if not there:
            table[slot] = number
            return True
        slot = slot + 1 if slot + 1 < size else 0
    return False


@dataclasses.dataclass(frozen=True)
class Duplicates(PairFilter):
    """Drops pairs that came before.

    Remembered is a hash of 64 bits: of ten million different pairs, two have the same one with a
    chance of 3 in a million.

    Args:
        of: What is compared: the pair, or one side of it, whatever stands on the other.
        near: Whether digits, case, punctuation and white space make no difference, as in CCNet
            (Wenzek et al. 2020, https://arxiv.org/abs/1911.00359). What has no letters is then
            compared as it is.

    Example:
    >>> from keras_transformers.text.cleaning import Duplicates
    >>> seen = Duplicates(near=True).started()
    >>> [seen.keeps(*pair) for pair in [("Page 1", "Seite 1"), ("page 2.", "Seite 2.")]]
    [True, False]
    """

    of: Literal["pair", "source", "target"] = "pair"
    near: bool = False

    name: str = dataclasses.field(init=False, default="duplicate")

    def __post_init__(self) -> None:
        what = "" if self.of == "pair" else f" {self.of}"
        object.__setattr__(self, "name", ("near duplicate" if self.near else "duplicate") + what)

    def started(self) -> PairFilter:
        """A filter that has seen nothing."""
        return _Seen(self)


class _Seen(PairFilter):
    """A filter of duplicates at work."""

    def __init__(self, of: Duplicates) -> None:
        self.name, self._of, self._hashes = of.name, of, Hashes()

    def keeps(self, source: str, target: str) -> bool:
        sides = {"pair": (source, target), "source": (source,), "target": (target,)}[self._of.of]
        if self._of.near:
            sides = tuple(map(_plain, sides))
        text = "\0".join(sides).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8).digest()
        return self._hashes.add(int.from_bytes(digest, "little"))


def _plain(text: str) -> str:
    """What near duplicates have in common."""
    if not any(map(str.isalpha, text)):
        return text
    text = unicodedata.normalize("NFC", text).casefold()
    return _NO_WORD.sub(" ", _DIGITS.sub("0", text)).strip()
