"""Filters by characters: scripts, languages, and damaged encodings, some of which are repaired."""

import collections
import dataclasses
import functools
import re
import unicodedata
from typing import Any

from keras_transformers.localization.pair_filters import PairFilter


def _shown(encoding: str, numbers: range) -> str:
    """The characters that bytes are in an encoding, for inside the brackets of a pattern."""
    characters = (bytes([number]).decode(encoding, "ignore") for number in numbers)
    return "".join(map(re.escape, characters))


# A byte of UTF-8 that is not the first of its character, read as Latin-1 or Windows-1252.
_NEXT = f"[\x80-\xbf{_shown('cp1252', range(0x80, 0xA0))}]"
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
    r"""Whether a text has U+FFFD, UTF-8 that was read as Latin-1 or Windows-1252, or control codes.

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
    r"""A text with its damage undone where it can be; U+FFFD cannot.

    What was read as Latin-1 or Windows-1252 is read as UTF-8; codes of C1 are what Windows-1252 has
    there; other control codes go.

    Example:
    >>> from keras_transformers.localization import repaired
    >>> repaired("KÃ¤se\x07 â€“ gut")
    'Käse – gut'
    """
    for _ in range(MOST_TIMES):
        if not _misread(text):
            break
        text = _as_utf8(text) or _RUN.sub(lambda match: _as_utf8(match[0]) or match[0], text)
    return _CONTROL.sub(_as_windows, text) if damaged(text) else text


def _as_utf8(text: str) -> str | None:
    """What was read wrongly, as it is; None if it cannot have been."""
    try:
        return b"".join(map(_byte, text)).decode("utf-8")
    except UnicodeError:
        return None


def _byte(character: str) -> bytes:
    return character.encode("latin-1" if ord(character) < 0x100 else "cp1252")


def _as_windows(match: re.Match[str]) -> str:
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
    """The script of a letter, by its name in Unicode; "" of what has none.

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
    """Drops pairs of which a side is not written as its language is.

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
        for name in ("source", "target"):
            if wrong := set((getattr(self, name) or "latin").split("+")) - set(SCRIPTS):
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
        return sum(counts[each] for each in scripts.split("+")) >= self.share * counts.total()


@dataclasses.dataclass(frozen=True)
class LanguageMatch(PairFilter):
    """Drops pairs of which a side is in another language, as `py3langid` identifies it.

    Its model comes with the package and needs no network; Lui and Baldwin 2012,
    https://aclanthology.org/P12-3005.

    Args:
        source, target: Codes of ISO 639-1, as "en".
        letters: Fewest of a side that is judged; what identifies a language lacks in a short one.
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
        known = set(_identifier().labels)
        for name in ("source", "target"):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"LanguageMatch: `{name}` must be a code that py3langid knows: "
                    f"{', '.join(sorted(known))}. Received: {getattr(self, name)!r}"
                )

    def keeps(self, source: str, target: str) -> bool:
        return self._spoken(source, self.source) and self._spoken(target, self.target)

    def _spoken(self, text: str, language: str) -> bool:
        if sum(map(str.isalpha, text)) < self.letters:
            return True
        found, probability = _identifier().classify(text)
        return found == language or probability < self.certainty


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise ImportError(
            "Languages are identified by py3langid: pip install 'keras_transformers[languages]'"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
