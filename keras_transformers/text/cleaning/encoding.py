"""Damage to the encoding of texts: what it looks like, and what can be undone."""

import dataclasses
import re

from keras_transformers.text.cleaning.filters import PairFilter


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
    >>> from keras_transformers.text.cleaning import damaged
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
    >>> from keras_transformers.text.cleaning import repaired
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
    >>> from keras_transformers.text.cleaning import Encoding
    >>> Encoding().keeps("cheese", "KÃ¤se")
    False
    """

    name = "encoding damage"

    def keeps(self, source: str, target: str) -> bool:
        return not damaged(source) and not damaged(target)
