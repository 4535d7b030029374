"""Texts with markup between."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias


@dataclasses.dataclass(frozen=True)
class Mark:
    """What stands between the words of a text and is not translated.

    Args:
        raw: As it stands in the file.
        kind: "open" and "close" are a pair around words; "alone" is whole; "break" is white space
            with the end of a line, a space to the translator; "end" ends a sentence; "soft" nobody
            sees.
        shown: What the translator reads in its place; by default a tag of `name`.
        name: Of the tag.
        pair: Number of the pair, in its text.
        ordered: Whether it must stay behind the ordered ones that stand before it.
        span: Where its end stands in the file's text, if there may be segments inside it.

    Example:
    >>> from keras_transformers.text.files import Mark
    >>> Mark("**", "open", name="b")
    Mark(raw='**', kind='open', shown=None, name='b', pair=0, ordered=False, span=None)
    """

    raw: str
    kind: Literal["open", "close", "alone", "break", "end", "soft"] = "alone"
    shown: str | None = None
    name: str = "x"
    pair: int = 0
    ordered: bool = False
    span: tuple[int, int] | None = None


Parts: TypeAlias = tuple[str | Mark, ...]


@dataclasses.dataclass(frozen=True)
class Segment:
    """One text of a file: a paragraph, a heading, a message, a subtitle.

    Args:
        parts: Texts as a reader sees them, and marks between.
        start: Where what is replaced begins in the file's text.
        end: Where it ends.
        escapes: Dict of character -> how it is written here.
        present: Translation that is there already; None where the text itself is replaced.
        inside: Whether it may stand inside a mark of another segment, as attributes do.

    Example:
    >>> from keras_transformers.text.files import Segment
    >>> Segment(("Open",), 0, 4).plain
    'Open'
    """

    parts: Parts
    start: int
    end: int
    escapes: dict[str, str] = dataclasses.field(default_factory=dict)
    present: str | None = None
    inside: bool = False

    @property
    def plain(self) -> str:
        """The text without its marks."""
        return "".join(part for part in self.parts if isinstance(part, str))


def joined(parts: Sequence[str | Mark]) -> Parts:
    """Parts whose neighbouring texts are one, and which hold no empty ones."""
    found: list[str | Mark] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def with_breaks(
    text: str, line: str = r"[ \t\f\r]*\n\s*", end: str | None = None
) -> list[str | Mark]:
    """Parts of a text in which white space with the end of a line is a mark.

    Args:
        text: What a reader sees.
        line: Pattern of a "break".
        end: Pattern of what is an "end".
    """
    pattern = f"(?P<end>{end})|{line}" if end else f"(?P<end>(?!))|{line}"
    found: list[str | Mark] = []
    at = 0
    for match in re.finditer(pattern, text):
        kind: Literal["break", "end"] = "break" if match["end"] is None else "end"
        found += [text[at : match.start()], Mark(match[0], kind)]
        at = match.end()
    return [*found, text[at:]]
