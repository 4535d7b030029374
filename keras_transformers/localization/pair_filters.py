"""Filters of sentence pairs, each a reason to drop a pair.

They judge lengths, letters, copies, pairs seen before, missing markup, scripts, languages and
damaged encodings, some of which are repaired.
"""

import array
import collections
import dataclasses
import functools
import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from keras_transformers.core.words import placeables, without_placeables

Pair: TypeAlias = tuple[str, str]  # source and target
_LETTERS = re.compile(r"[^\W\d_]+")
STEP = 0.005  # of the logarithm of a ratio of lengths, which is counted in such steps


class PairFilter:
    """A reason to drop sentence pairs; the base class of those here and of a user's own.

    A subclass has a `name`, the reason as reports tell it, and overrides `keeps`. One that
    remembers what it has seen overrides `started`, one that has to see the corpus first `fitted`.

    Example:
    >>> from keras_transformers.localization import PairCleaner, PairFilter
    >>> class Shouting(PairFilter):
    ...     name = "capitals"
    ...
    ...     def keeps(self, source, target):
    ...         return source.isupper() == target.isupper()
    >>> cleaner = PairCleaner([Shouting()])
    >>> [pair.reason for pair in cleaner.clean([("a cat", "eine Katze"), ("A CAT", "eine Katze")])]
    [None, 'capitals']
    """

    name: str

    def keeps(self, source: str, target: str) -> bool:
        """Returns True if a pair may stay."""
        raise NotImplementedError

    def started(self) -> "PairFilter":
        """The filter as it is before it has seen a pair; itself, where it remembers none."""
        return self

    @property
    def unfitted(self) -> bool:
        """True if the filter must see the corpus before it can judge."""
        return False

    def fitted(self, pairs: Iterable[Pair]) -> "PairFilter":
        """The filter with what follows from a corpus: the pairs that all other filters keep."""
        return self


@dataclasses.dataclass(frozen=True)
class Empty(PairFilter):
    """Drops pairs of which a side has nothing but white space.

    Example:
    >>> from keras_transformers.localization import Empty
    >>> Empty().keeps("a cat", " ")
    False
    """

    name = "empty side"

    def keeps(self, source: str, target: str) -> bool:
        return bool(source.strip() and target.strip())


@dataclasses.dataclass(frozen=True)
class TooShort(PairFilter):
    """Drops pairs of which a side has too few words or characters.

    Args:
        words: Fewest, between white space. Bicleaner's hard rules ask for 3, which suits what was
            crawled; a single word of a user interface is a good pair, so 1 by default.
        characters: Fewest.

    Example:
    >>> from keras_transformers.localization import TooShort
    >>> TooShort(words=2).keeps("a cat", "Katze")
    False
    """

    words: int = 1
    characters: int = 1
    name = "too short"

    def keeps(self, source: str, target: str) -> bool:
        if min(len(source), len(target)) < self.characters:
            return False
        return self.words <= 1 or all(len(x.split()) >= self.words for x in (source, target))


@dataclasses.dataclass(frozen=True)
class TooLong(PairFilter):
    """Drops pairs of which a side has too many words or characters.

    Args:
        words: Most, between white space. 100 is OpusFilter's default; Moses' `clean-corpus-n` is
            called with 50 to 100.
        characters: Most; 1,024 as in Bicleaner's hard rules. Without spaces between words, as in
            Chinese, this limit alone does the work.

    Example:
    >>> from keras_transformers.localization import TooLong
    >>> TooLong(words=2).keeps("a black cat", "Kater")
    False
    """

    words: int = 100
    characters: int = 1024
    name = "too long"

    def keeps(self, source: str, target: str) -> bool:
        if max(len(source), len(target)) > self.characters:
            return False
        return all(len(x) <= self.words or len(x.split()) <= self.words for x in (source, target))


@dataclasses.dataclass(frozen=True)
class LengthRatio(PairFilter):
    """Drops pairs of which one side has many times the characters that the other calls for.

    What it calls for follows from the corpus: the median of target characters for one of the
    source, so that Chinese beside German is as good as Spanish beside English. The median is that
    of the pairs that stay, so that a second run over these finds the same one and drops nothing.

    Args:
        limit: Most times. 3 is OpusFilter's default (of words); Moses' is 9, Bicleaner's 2.
        shortest: Characters of the longer side from which on a pair is judged: "OK" may be
            "Einverstanden".
        scale: Target characters for one of the source; None learns it by `fitted`.

    Raises:
        ValueError: If `limit` is below 1 or `scale` not positive; from `keeps`, if the filter has
            no scale.

    Example:
    >>> from keras_transformers.localization import LengthRatio
    >>> ratio = LengthRatio(scale=1.0)
    >>> [ratio.keeps(text, "Es tut uns allen von Herzen leid.") for text in ("I am so sorry.", "I")]
    [True, False]
    """

    limit: float = 3.0
    shortest: int = 30
    scale: float | None = None
    name = "length ratio"

    def __post_init__(self) -> None:
        if self.limit < 1 or self.scale is not None and self.scale <= 0:
            raise ValueError(
                "LengthRatio: `limit` must be 1 or more and `scale` positive. "
                f"Received: limit={self.limit}, scale={self.scale}"
            )

    def keeps(self, source: str, target: str) -> bool:
        if self.scale is None:
            raise ValueError("LengthRatio: give a `scale`, or learn it by `fitted`.")
        if max(len(source), len(target)) < self.shortest:
            return True
        return abs(_steps(source, target) - round(math.log(self.scale) / STEP)) <= self._reach

    @property
    def unfitted(self) -> bool:
        """True if there is no scale yet."""
        return self.scale is None

    def fitted(self, pairs: Iterable[Pair]) -> Self:
        """The filter with the scale of a corpus."""
        counts = collections.Counter(
            _steps(*pair) for pair in pairs if max(map(len, pair)) >= self.shortest
        )
        centre, before = _median(counts), None
        # Each step lowers the sum of distances from the centre, cut off at the reach, or leaves it
        # and lowers the centre: it ends.
        while centre != before:
            inside = {x: n for x, n in counts.items() if abs(x - centre) <= self._reach}
            centre, before = _median(inside), centre
        return dataclasses.replace(self, scale=math.exp(centre * STEP))

    @property
    def _reach(self) -> int:
        return round(math.log(self.limit) / STEP)


def _steps(source: str, target: str) -> int:
    return round(math.log(max(len(target), 1) / max(len(source), 1)) / STEP)


def _median(counts: dict[int, int]) -> int:
    """Returns the lower median of counted numbers, or 0 if there are none."""
    if not counts:
        return 0
    weights = list(counts.values())
    return int(np.quantile(list(counts), 0.5, weights=weights, method="inverted_cdf"))


@dataclasses.dataclass(frozen=True)
class Copies(PairFilter):
    """Drops pairs whose sides are equal but for case and white space.

    Sentences that were left untranslated harm a model more than other noise (Khayrallah and Koehn
    2018, https://aclanthology.org/W18-2709). Names and what languages share are right copies: they
    are short.

    Args:
        words: Fewest words of a copy that is dropped, without markup, placeholders and numbers.

    Example:
    >>> from keras_transformers.localization import Copies
    >>> [Copies().keeps(text, text) for text in ("Version 2", "Open all of it now")]
    [True, False]
    """

    words: int = 5
    name = "copy"

    def keeps(self, source: str, target: str) -> bool:
        words = source.casefold().split()
        if words != target.casefold().split():
            return True
        words = without_placeables(source).split()
        return sum(any(map(str.isalpha, word)) for word in words) < self.words


@dataclasses.dataclass(frozen=True)
class FewLetters(PairFilter):
    """Drops pairs of which a side is mostly no letters, or has none: rules, tables, bare numbers.

    Args:
        share: Least share of letters among the characters that are no white space, markup, address,
            placeholder or number. A half, as in Bicleaner's hard rules; OpusFilter's default is
            0.75. With numbers in the count, "16:00 hour" would go.

    Example:
    >>> from keras_transformers.localization import FewLetters
    >>> FewLetters().keeps("{n} cats", "{n} Katzen"), FewLetters().keeps("--- 7 ---", "--- 7 ---")
    (True, False)
    """

    share: float = 0.5
    name = "few letters"

    def keeps(self, source: str, target: str) -> bool:
        return self._has_letters(source) and self._has_letters(target)

    def _has_letters(self, text: str) -> bool:
        characters = "".join(without_placeables(text).split())
        number = sum(map(len, _LETTERS.findall(characters)))
        if number < self.share * len(characters) and not characters.isascii():
            # Signs of vowels, as in India, are no letters, but marks.
            number += sum(unicodedata.category(character)[0] == "M" for character in characters)
        return number > 0 and number >= self.share * len(characters)


@dataclasses.dataclass(frozen=True)
class Own(PairFilter):
    """A filter made of a function.

    Args:
        name: The reason, for reports.
        function: From source and target to whether the pair may stay.

    Example:
    >>> from keras_transformers.localization import Own
    >>> Own("no full stop", lambda source, target: source[-1] == target[-1]).keeps("a.", "b")
    False
    """

    name: str
    function: Callable[[str, str], bool]

    def keeps(self, source: str, target: str) -> bool:
        return self.function(source, target)


PARTS = 256  # tables, of which one grows at a time, so that the memory for it is small
FULLEST = 0.75  # share of a table that is used when it grows
GROWTH = 1.5
_DIGITS = re.compile(r"\d+(?:[.,'\u00a0\u202f]\d+)*")
_NO_WORD = re.compile(r"[\W_]+")


class Hashes:
    """A set of 64-bit numbers in 11 to 16 bytes each, where Python's own takes some 100.

    Example:
    >>> from keras_transformers.localization.pair_filters import Hashes
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
        """Adds a number; returns False if the set has it already."""
        number = number or 1  # 0 is a free slot
        part = number % PARTS
        table = self._tables[part]
        if not _add_number(table, number):
            return False
        self._used[part] += 1
        if self._used[part] > FULLEST * len(table):
            larger = array.array("Q", bytes(8 * int(GROWTH * len(table))))
            for moved_number in filter(None, table):
                _add_number(larger, moved_number)
            self._tables[part] = larger
        return True


def _add_number(table: "array.array[int]", number: int) -> bool:
    size = len(table)
    slot = (number // PARTS) % size
    while (present := table[slot]) != number:
        if not present:
            table[slot] = number
            return True
        slot = slot + 1 if slot + 1 < size else 0
    return False


@dataclasses.dataclass(frozen=True)
class Duplicates(PairFilter):
    """Drops pairs that came before.

    The filter remembers a hash of 64 bits for each pair. Two of ten million different pairs have
    the same hash with a probability of 3 in a million.

    Args:
        of: What is compared: the pair, or one side of it, whatever stands on the other.
        near: If True, digits, case, punctuation and white space make no difference, as in CCNet
            (Wenzek et al. 2020, https://arxiv.org/abs/1911.00359). Texts without letters are then
            compared as they are.

    Example:
    >>> from keras_transformers.localization import Duplicates
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

    def __init__(self, settings: Duplicates) -> None:
        self.name, self._settings, self._hashes = settings.name, settings, Hashes()

    def keeps(self, source: str, target: str) -> bool:
        sides = {"pair": (source, target), "source": (source,), "target": (target,)}
        texts = sides[self._settings.of]
        if self._settings.near:
            texts = tuple(map(_plain, texts))
        content = "\0".join(texts).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(content, digest_size=8).digest()
        return self._hashes.add(int.from_bytes(digest, "little"))


def _plain(text: str) -> str:
    """Returns the text that near duplicates have in common."""
    if not any(map(str.isalpha, text)):
        return text
    text = unicodedata.normalize("NFC", text).casefold()
    return _NO_WORD.sub(" ", _DIGITS.sub("0", text)).strip()


BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）", "【": "】", "「": "」", "『": "』"}
_BRACKET = re.compile(f"[{re.escape(''.join([*BRACKETS, *BRACKETS.values()]))}]")
_ITEM = re.compile(r"(?:^|\s)(?:\w|\d+|[ivx]+)\)|[:;=8][-^]?[()]|<[-=]?\(|\)[-=]?>")  # a) and :-)


@functools.lru_cache(maxsize=64)  # of one pair, by the filters of all kinds
def _placeables(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(placeables(text))


@dataclasses.dataclass(frozen=True)
class Placeables(PairFilter):
    """Drops pairs whose sides have other markup, placeholders, addresses or numbers.

    Args:
        kind: Kind of placeable that is compared.
        overlap: Least share that the sides have in common, `2 * common / (source + target)`. 1
            requires the same ones on both sides, in any order.
        alone: If one side has none, fewest of the other side for which a pair is judged: numbers
            may be written in words.

    Example:
    >>> from keras_transformers.localization import Placeables
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
        if not _placeables(source) and not _placeables(target):  # most pairs
            return True
        first, second = self._counted(source), self._counted(target)
        number = first.total() + second.total()
        if not number or number < self.alone and not (first and second):
            return True
        if 2 * (first & second).total() >= self.overlap * number:
            return True
        # 12/11/2020 is three numbers, 12.11.2020 one.
        return self.kind == "number" and _digits(first) == _digits(second)

    def _counted(self, text: str) -> collections.Counter[str]:
        return collections.Counter(what for kind, what in _placeables(text) if kind == self.kind)


def _digits(numbers: collections.Counter[str]) -> list[str]:
    return sorted("".join(numbers.elements()))


@dataclasses.dataclass(frozen=True)
class Brackets(PairFilter):
    """Drops pairs in which one side alone has a bracket without its partner: it was cut off.

    A pair stays if the other side has no brackets, because other languages may use dashes instead.
    Items of lists, such as "a)", and faces, such as ":-)", do not count.

    Example:
    >>> from keras_transformers.localization import Brackets
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

    A pair stays if the other side has none: it may have quotes of another form, or inches in words.

    Example:
    >>> from keras_transformers.localization import Quotes
    >>> Quotes().keeps('the "cat"', 'die "Katze'), Quotes().keeps('the "cat"', "die „Katze“")
    (False, True)
    """

    name = "quotes"

    def keeps(self, source: str, target: str) -> bool:
        first, second = source.count('"'), target.count('"')
        return not (first and second) or first % 2 == second % 2


def _characters(encoding: str, numbers: range) -> str:
    """Returns the characters of bytes in an encoding, for inside the brackets of a pattern."""
    characters = (bytes([number]).decode(encoding, "ignore") for number in numbers)
    return "".join(map(re.escape, characters))


# A byte of UTF-8 that is not the first of its character, read as Latin-1 or Windows-1252.
_NEXT = f"[\x80-\xbf{_characters('cp1252', range(0x80, 0xA0))}]"
_MARK = "[\xa0\xab\xbb‘’“”–—…]"  # of those, what stands behind a letter in good texts, too
_START = re.compile(f"[ÂÃÄÅÐÑà-éðï]{_NEXT}|ï»¿")  # quick, and in all that follows
_MOJIBAKE = re.compile(
    "(?:"
    f"Ã(?!(?<=[^\\W\\d_a-zß-ÿ]Ã){_MARK}){_NEXT}"  # Ã¤ for ä; but not IRMÃ»
    f"|(?<![A-Z\xc0-\xde])Â[\xa0-\xbf]"  # Â° for °
    f"|â{_NEXT}{_NEXT}"  # â€™ for an apostrophe
    f"|[ÄÅ](?!{_MARK}){_NEXT}"  # Å¡ for š
    f"|(?:[ÐÑ]{_NEXT}){{2,}}"  # Ð´Ð° for да
    f"|[àáãä-ï]{_NEXT}(?<!{_MARK}){_NEXT}(?<!{_MARK})"  # ä¸­ for 中
    f"|ð(?:Ÿ|\x9f){_NEXT}{_NEXT}"  # emoji
    "|ï»¿"  # the mark of byte order
    ")+"
)
# In a text that has such, whatever can be such.
_RUN = re.compile(f"(?:[Â-ô](?:{_NEXT})+)+")
# C0 but tab and line ends, DEL, C1; byte order marks; what is no character.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufdd0-\ufdef\ufffe\uffff]")
_LOST = "\ufffd"
MOST_TIMES = 4  # a text may have been read wrongly more than once


def damaged(text: str) -> bool:
    r"""Returns True if the encoding of a text is damaged.

    Signs of it are U+FFFD, UTF-8 that was read as Latin-1 or Windows-1252, and control codes.

    Example:
    >>> from keras_transformers.localization import damaged
    >>> damaged("KÃ¤se"), damaged("K\ufffdse"), damaged("Käse, MANHÃ")
    (True, True, False)
    """
    if text.isascii() and text.isprintable():
        return False
    return bool(_LOST in text or _CONTROL.search(text) or _misread(text))


def _misread(text: str) -> bool:
    return bool(_START.search(text) and _MOJIBAKE.search(text))


def repaired(text: str) -> str:
    r"""Returns a text with its damage undone where it can be; U+FFFD cannot.

    Text that was read as Latin-1 or Windows-1252 is read as UTF-8. Codes of C1 become the
    characters of Windows-1252, and other control codes go.

    Example:
    >>> from keras_transformers.localization import repaired
    >>> repaired("KÃ¤se\x07 â€“ gut")
    'Käse – gut'
    """
    for _ in range(MOST_TIMES):
        if not _misread(text):
            break
        text = _read_utf8(text) or _RUN.sub(lambda match: _read_utf8(match[0]) or match[0], text)
    return _CONTROL.sub(_read_windows, text) if damaged(text) else text


def _read_utf8(text: str) -> str | None:
    """Returns a misread text as it was written; None if it cannot have been misread."""
    try:
        return b"".join(map(_byte, text)).decode("utf-8")
    except UnicodeError:
        return None


def _byte(character: str) -> bytes:
    return character.encode("latin-1" if ord(character) < 0x100 else "cp1252")


def _read_windows(match: re.Match[str]) -> str:
    if "\x80" <= match[0] <= "\x9f":
        return match[0].encode("latin-1").decode("cp1252", "ignore")
    return ""


@dataclasses.dataclass(frozen=True)
class Encoding(PairFilter):
    """Drops pairs with damage to their encoding, see `damaged`.

    Example:
    >>> from keras_transformers.localization import Encoding
    >>> Encoding().keeps("cheese", "KÃ¤se")
    False
    """

    name = "encoding damage"

    def keeps(self, source: str, target: str) -> bool:
        return not damaged(source) and not damaged(target)


_BEFORE = ("FULLWIDTH ", "HALFWIDTH ", "MATHEMATICAL ")  # of a letter's name in Unicode
_CALLED = {"cjk": "han", "ideographic": "han", "hiragana": "kana", "katakana": "kana"}
_NO_SCRIPT = {"modifier", "micro", "feminine", "masculine", "double-struck", "script", ""}
SCRIPTS = (
    *("latin", "greek", "cyrillic", "armenian", "georgian", "hebrew", "arabic", "ethiopic"),
    *("devanagari", "bengali", "gurmukhi", "gujarati", "oriya", "tamil", "telugu", "kannada"),
    *("malayalam", "sinhala", "thai", "lao", "tibetan", "myanmar", "khmer", "mongolian"),
    *("han", "kana", "hangul"),
)


@functools.cache  # at most as many as there are letters
def script_of(letter: str) -> str:
    """Returns the script of a letter, by its name in Unicode; "" for other characters.

    Example:
    >>> from keras_transformers.localization import script_of
    >>> [script_of(letter) for letter in "aя中カ한7"]
    ['latin', 'cyrillic', 'han', 'kana', 'hangul', '']
    """
    if not letter.isalpha():
        return ""
    name = unicodedata.name(letter, "")
    for before in _BEFORE:
        name = name.removeprefix(before)
    first = name.split(" ")[0].lower()
    return "" if first in _NO_SCRIPT else _CALLED.get(first, first)


@dataclasses.dataclass(frozen=True)
class Scripts(PairFilter):
    """Drops pairs of which a side is not written in the script of its language.

    Args:
        source, target: Names of scripts, of `SCRIPTS`, joined by "+" where a language has several,
            as "han+kana"; None allows all.
        share: Least share of the letters in them. OpusFilter's default is 1; names in Latin letters
            stand in good Russian and Chinese.

    Raises:
        ValueError: If there is no such script.

    Example:
    >>> from keras_transformers.localization import Scripts
    >>> Scripts("latin", "cyrillic").keeps("a cat", "a cat")
    False
    """

    source: str | None
    target: str | None
    share: float = 0.5
    name = "other script"

    def __post_init__(self) -> None:
        for name, scripts in (("source", self.source), ("target", self.target)):
            if wrong := set((scripts or "latin").split("+")) - set(SCRIPTS):
                raise ValueError(
                    f"Scripts: `{name}` must be of {', '.join(SCRIPTS)}, joined by '+'. "
                    f"Received: {' and '.join(sorted(wrong))}"
                )

    def keeps(self, source: str, target: str) -> bool:
        return self._written(source, self.source) and self._written(target, self.target)

    def _written(self, text: str, scripts: str | None) -> bool:
        if scripts is None or text.isascii() and "latin" in scripts:
            return True
        counts = collections.Counter(map(script_of, text))
        del counts[""]
        number = sum(counts[script] for script in scripts.split("+"))
        return number >= self.share * counts.total()


@dataclasses.dataclass(frozen=True)
class LanguageMatch(PairFilter):
    """Drops pairs of which a side is in another language, as `py3langid` identifies it.

    Its model comes with the package and needs no network; Lui and Baldwin 2012,
    https://aclanthology.org/P12-3005.

    Args:
        source, target: Codes of ISO 639-1, as "en".
        letters: Fewest letters of a side that is judged; short texts do not show their language.
        certainty: Least probability of another language for a pair to be dropped. Of 17,958 right
            pairs of the recipes' own sets it then dropped 2, and with the source in the position of
            the target, as if left untranslated, 17,601 (98 %).

    Raises:
        ImportError: If `py3langid` is not installed.
        ValueError: If it does not know a language.

    Example:
    >>> from keras_transformers.localization import LanguageMatch
    >>> text = "I can see the black cat that sits there on the old table"
    >>> LanguageMatch("en", "de").keeps(text, text)  # doctest: +SKIP
    False
    """

    source: str
    target: str
    letters: int = 40
    certainty: float = 0.8
    name = "other language"

    def __post_init__(self) -> None:
        codes = set(_identifier().labels)
        for name, code in (("source", self.source), ("target", self.target)):
            if code not in codes:
                raise ValueError(
                    f"LanguageMatch: `{name}` must be a code that py3langid knows: "
                    f"{', '.join(sorted(codes))}. Received: {code!r}"
                )

    def keeps(self, source: str, target: str) -> bool:
        return self._spoken(source, self.source) and self._spoken(target, self.target)

    def _spoken(self, text: str, language: str) -> bool:
        if sum(map(str.isalpha, text)) < self.letters:
            return True
        identified, probability = _identifier().classify(text)
        return identified == language or probability < self.certainty


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise ImportError(
            "Languages are identified by py3langid: pip install 'keras_transformers[languages]'"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
