"""Words of texts in any script, parts that a translation keeps, and sentences with their context.

A translation must keep markup, placeholders, addresses and numbers as they are. A context is the
sentences before a sentence, for a translator that reads them.
"""

import collections
import functools
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

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
    >>> from keras_transformers.core.words import words_of
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


# In this order: what one finds, those after it do not see. Each takes linear time: parts that
# follow one another begin with other characters, and a search for an end stops at the next start.
KINDS = {
    "tag": (
        r"</?[A-Za-z][\w:-]*"
        r"(?:\s+[\w:-]+(?:\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s<>\"']+))?)*\s*/?>"
    ),
    "entity": r"&(?:[A-Za-z]\w*|#\d+|#x[0-9A-Fa-f]+);",
    "address": r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]]|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "placeholder": (
        r"%(?:\d+\$|\(\w+\))?[-+#0]*(?:[^\D0]\d*)?(?:\.\d+)?"
        r"(?:hh|h|ll|l|z|j|t)?[diouxXeEfFgGrscpa@]\b"
        r"|%L?\d+\b|%n\b|\$\{[^{}\s]+\}|\{\{[^{}]+\}\}|\$\w+\b"
        r"|[%#]\{[^{}\s]+\}|%<\w+>[a-z]?|%[A-Za-z_][\w.-]*%"  # Ruby; Symfony and Twig
        r"|\{%(?:(?!\{%).)*?%\}"  # Liquid, Jinja
        # ICU: an argument with a format, or with a text for each form, of up to two more levels.
        r"|\{\s*\w+\s*,\s*\w+\s*(?:,(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)?\}"
        r"|\{[^{}\s]*\}"
    ),
    "number": r"\d+(?:[.,'\u00a0\u202f]\d+)*",
}
_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in KINDS.items()))
_MAY_HAVE = re.compile(r"[<&%{$@\d]|://")  # one of these, or none is there
_BETWEEN_DIGITS = re.compile(r"[^\d]")


def placeables(text: str) -> list[tuple[str, str]]:
    """`(kind, text)` of each in a text, in order.

    Kinds are "tag" (`<b>`, `</a>`), "entity" (`&amp;`), "address" (of the web or of mail),
    "placeholder" (`%s`, `%1$d`, `%(name)s`, `{name}`, `{{name}}`, `${name}`, `$name`, Qt's `%1`,
    Ruby's `%{name}`, Symfony's `%name%`, Liquid's `{% if %}`, ICU's `{n, number}` and
    `{n, plural, ...}` as a whole) and "number". A number is its digits alone, for languages write
    1,234.5 in other ways.

    Example:
    >>> from keras_transformers.core.words import placeables
    >>> placeables("<b>{name}</b> has 1,200 files (%d new)")[:4]
    [('tag', '<b>'), ('placeholder', '{name}'), ('tag', '</b>'), ('number', '1200')]
    """
    if not _MAY_HAVE.search(text):
        return []
    found = [(str(match.lastgroup), match[0]) for match in _PATTERN.finditer(text)]
    return [
        (kind, _BETWEEN_DIGITS.sub("", what) if kind == "number" else what) for kind, what in found
    ]


def kept_as_written(text: str) -> list[str]:
    """The placeables of a text as they are written there, in order.

    Example:
    >>> from keras_transformers.core.words import kept_as_written
    >>> kept_as_written("<b>{name}</b> has 1,200 files")
    ['<b>', '{name}', '</b>', '1,200']
    """
    return [match[0] for match in _PATTERN.finditer(text)] if _MAY_HAVE.search(text) else []


def without_placeables(text: str, kinds: Collection[str | None] = tuple(KINDS)) -> str:
    """A text with a space for each of its placeables of these kinds.

    Example:
    >>> from keras_transformers.core.words import without_placeables
    >>> without_placeables("<b>{name}</b> has 12 files", ["tag", "placeholder"])
    '    has 12 files'
    """
    if not _MAY_HAVE.search(text):
        return text
    return _PATTERN.sub(lambda match: " " if match.lastgroup in kinds else match[0], text)


def kept_placeables(triples: Iterable[tuple[str, str, str]]) -> dict[str, tuple[int, int]]:
    """How many of what a reference took from its source a translation took, too.

    Args:
        triples: `(source, reference, translation)`; where there is no reference, give the source
            twice.

    Returns:
        Dict of kind -> `(kept, expected)`, of the kinds that were expected.

    Example:
    >>> from keras_transformers.core.words import kept_placeables
    >>> kept_placeables([("Open {name}", "{name} öffnen", "Öffne name")])
    {'placeholder': (0, 1)}
    """
    kept: collections.Counter[str] = collections.Counter()
    expected: collections.Counter[str] = collections.Counter()
    for texts in triples:
        source, reference, translation = (collections.Counter(placeables(x)) for x in texts)
        wanted = source & reference
        for (kind, what), count in wanted.items():
            expected[kind] += count
            kept[kind] += min(count, translation[kind, what])
    return {kind: (kept[kind], expected[kind]) for kind in KINDS if expected[kind]}


SEPARATOR = "\x1e"  # "record separator" of ASCII; nobody types it, and no XML file can hold it


def in_context(sentence: str, previous: Sequence[str]) -> str:
    r"""A sentence behind those before it, with U+001E between: what a translator is asked for.

    Args:
        sentence: What is to be translated.
        previous: The sentences before it, the nearest last; U+001E in one becomes a space.

    Example:
    >>> from keras_transformers.core.words import in_context
    >>> in_context("It is open.", ["Look at the door."])
    'Look at the door.\x1eIt is open.'
    """
    parts = (" ".join(each.split(SEPARATOR)).strip() for each in (*previous, sentence))
    return SEPARATOR.join(parts)


def without_context(texts: Iterable[str]) -> list[str]:
    r"""The sentences alone.

    Example:
    >>> from keras_transformers.core.words import without_context
    >>> without_context(["Look at the door.\x1eIt is open.", "Go in."])
    ['It is open.', 'Go in.']
    """
    return [text.rpartition(SEPARATOR)[2] for text in texts]


def refused_context(text: str | bytes, most: int) -> str | None:
    r"""What is wrong with a text that has more previous sentences than a translator reads.

    Args:
        text: With U+001E behind each of them.
        most: How many it reads.

    Example:
    >>> from keras_transformers.core.words import refused_context
    >>> refused_context("One.\x1eTwo.", 0)
    'must have no previous sentences (U+001E): the translator was trained without. Received: 1'
    """
    encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    number = encoded.count(SEPARATOR.encode())
    if number <= most:
        return None
    how = f"with up to {most}" if most else "without"
    least = f"at most {most}" if most else "no"
    return (
        f"must have {least} previous sentences (U+001E): the translator was trained {how}. "
        f"Received: {number}"
    )
