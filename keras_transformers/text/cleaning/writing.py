"""Filters by what a side is written in: its script, and its language."""

import collections
import dataclasses
import functools
import unicodedata
from typing import Any

from keras_transformers.text.cleaning.filters import PairFilter

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
    >>> from keras_transformers.text.cleaning import script_of
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
    >>> from keras_transformers.text.cleaning import Scripts
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
    >>> from keras_transformers.text.cleaning import LanguageMatch
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
