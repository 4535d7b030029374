"""Words of texts in any script, and the letters that stand for bytes."""

import functools
import re
import unicodedata

# Characters of scripts without spaces between words, each of which is searched for by itself: Thai,
# Lao, Burmese, Khmer, Hiragana, Chinese characters.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff"
_ALONE += "\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30ff\uff66-\uff9f"
# One apostrophe for all. Soft hyphens, word joiners and selectors of a glyph's form are no letters.
_FORMS: dict[int, str | None] = {ord(sign): "'" for sign in "\u2018\u2019\u02bc\uff07"}
_FORMS |= dict.fromkeys((0xAD, 0x2060, 0xFEFF, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
_JOINERS = "\u200c\u200d"


@functools.cache
def marks() -> frozenset[str]:
    r"""Returns the characters that go on with a word, none of which `\w` matches.

    These are the combining marks of Unicode, such as vowel signs of Indic scripts and accents that
    no composed letter has, and the joiners of zero width.
    """
    signs = map(chr, range(0x300, 0x1F000))
    return frozenset({*(sign for sign in signs if unicodedata.category(sign)[0] == "M"), *_JOINERS})


@functools.cache
def _pattern() -> re.Pattern[str]:
    """Returns what matches a word with its marks, or another sign."""
    mark = f"[{''.join(sorted(marks()))}]"
    letter = rf"(?:(?![{_ALONE}{_KATAKANA}])\w)"
    patterns = (
        rf"[{_ALONE}]{mark}*",
        rf"[{_KATAKANA}](?:[{_KATAKANA}]|{mark})*",
        rf"{letter}(?:{letter}|{mark})*",
        rf"[^\w\s]{mark}*",
    )
    return re.compile("|".join(patterns))


def words_of(text: str) -> list[str]:
    """Returns words and signs, in one form of Unicode and with one apostrophe.

    In scripts without spaces between words each character is one.

    Example:
    >>> from keras_transformers.words import words_of
    >>> words_of("Don\u2019t ask!")
    ['Don', "'", 't', 'ask', '!']
    """
    return _pattern().findall(unicodedata.normalize("NFC", text.translate(_FORMS)))


def byte_letters() -> list[str]:
    """The letter that stands for each byte in published vocabularies, a list of 256 str.

    Printable characters of Latin-1 stand for themselves, the others, in order, for letters from
    U+0100 on (Radford et al. 2019, the code of GPT-2).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
