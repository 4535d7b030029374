"""What must come through a translation unharmed: markup, placeholders, addresses, numbers."""

import collections
import re
from collections.abc import Collection, Iterable

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
    >>> from keras_transformers.placeables import placeables
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
    >>> from keras_transformers.placeables import kept_as_written
    >>> kept_as_written("<b>{name}</b> has 1,200 files")
    ['<b>', '{name}', '</b>', '1,200']
    """
    return [match[0] for match in _PATTERN.finditer(text)] if _MAY_HAVE.search(text) else []


def without_placeables(text: str, kinds: Collection[str | None] = tuple(KINDS)) -> str:
    """A text with a space for each of its placeables of these kinds.

    Example:
    >>> from keras_transformers.placeables import without_placeables
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
    >>> from keras_transformers.placeables import kept_placeables
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
