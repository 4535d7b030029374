"""Texts with markup between, as a file has them and as a translator reads and answers them."""

import bisect
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from keras_transformers.core.words import KINDS, placeables


@dataclasses.dataclass(frozen=True)
class Mark:
    """Markup, or another part between the words of a text that is not translated.

    Args:
        raw: The mark as the file has it.
        kind: "open" and "close" are a pair around words. "alone" is whole. "break" is white space
            with the end of a line, a space to the translator. "end" ends a sentence. "soft" is not
            visible.
        shown: Text that the translator reads in its place; by default a tag of `name`.
        name: Name of the tag.
        pair: Number of the pair, in its text.
        ordered: True if it must stay behind the ordered marks that stand before it.
        span: Position of its end in the file's text, if segments may be inside it.

    Example:
    >>> from keras_transformers.localization import Mark
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
        start: Position in the file's text at which the replaced part begins.
        end: Position at which it ends.
        escapes: Dict of character -> its form in the file.
        present: Translation that the file has already; None if the text itself is replaced.
        inside: True if it may stand inside a mark of another segment, as attributes do.

    Example:
    >>> from keras_transformers.localization import Segment
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
        """Text without the marks."""
        return "".join(part for part in self.parts if isinstance(part, str))


def joined(parts: Sequence[str | Mark]) -> Parts:
    """Returns parts in which neighbouring texts are one, and no text is empty."""
    merged: list[str | Mark] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    return tuple(merged)


def split_breaks(
    text: str, line: str = r"[ \t\f\r]*\n\s*", end: str | None = None
) -> list[str | Mark]:
    """Returns the parts of a text in which white space with the end of a line is a mark.

    Args:
        text: Text as a reader sees it.
        line: Pattern of a "break".
        end: Pattern of an "end".
    """
    pattern = f"(?P<end>{end})|{line}" if end else f"(?P<end>(?!))|{line}"
    parts: list[str | Mark] = []
    at = 0
    for match in re.finditer(pattern, text):
        kind: Literal["break", "end"] = "break" if match["end"] is None else "end"
        parts += [text[at : match.start()], Mark(match[0], kind)]
        at = match.end()
    return [*parts, text[at:]]


_REFERENCES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def escape_markup(text: str, escapes: dict[str, str]) -> str:
    """Returns a text with references for markup, and with characters in the form of `escapes`."""
    forms = _REFERENCES | escapes
    return "".join(forms.get(character, character) for character in text)


MARKED = ("tag", "placeholder", "address", "entity")  # kinds of placeables that are marks
_MARKED = re.compile("|".join(KINDS[kind] for kind in MARKED))
_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)[^>]*?(/?)>")
_PLAIN_TAG = re.compile(r"</?[^<>/]*/?>")  # could be taken for a mark
_COUNTED = re.compile(r"%[^(\d%]|%$")  # %s, which takes its argument by its position
# Markup of Markdown at the start of a line.
_STARTS = re.compile(r"(?:[-+*]|#{1,6}|\d+[.)])\s|[>=|]|```|~~~|--")


def marked(parts: Sequence[str | Mark], escape: Callable[[str], str]) -> Parts:
    """Returns parts in whose texts tags, placeholders, entities and addresses are marks, too.

    Args:
        parts: Texts as a reader sees them, and marks.
        escape: Function that returns a text as its file has it.

    Example:
    >>> from keras_transformers.localization.marks import marked
    >>> [part if isinstance(part, str) else part.kind for part in marked(["<b>%s</b>"], str)]
    ['open', 'alone', 'close']
    """
    all_parts: list[str | Mark] = []
    for part in parts:
        if isinstance(part, Mark):
            all_parts.append(part)
            continue
        at = 0
        for match in _MARKED.finditer(part):
            all_parts += [part[at : match.start()], Mark(escape(match[0]), shown=match[0])]
            at = match.end()
        all_parts.append(part[at:])
    return _paired(joined(all_parts))


def _paired(parts: Parts) -> Parts:
    """Returns parts in which alone marks are pairs if they are tags that belong together."""
    paired = list(parts)
    waiting: list[tuple[str, int]] = []  # names and positions of tags that are open
    pair = max((part.pair for part in parts if isinstance(part, Mark)), default=0)
    for i, part in enumerate(parts):
        tag = isinstance(part, Mark) and part.kind == "alone" and _TAG.fullmatch(part.shown or "")
        if not tag or tag[3]:
            continue
        if not tag[1]:
            waiting.append((tag[2], i))
        elif waiting and waiting[-1][0] == tag[2]:
            _, start = waiting.pop()
            pair += 1
            for j, kind in ((start, "open"), (i, "close")):
                paired[j] = dataclasses.replace(parts[j], kind=kind, pair=pair)  # type: ignore
    return tuple(paired)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A sentence as a translator reads it.

    Args:
        parts: The sentence.
        text: Text that the translator reads.
        tokens: Tag or text that stands for each visible mark, and the mark, in their order.

    Example:
    >>> from keras_transformers.localization import Mark
    >>> from keras_transformers.localization.marks import Shown
    >>> bold = Mark("**", "open", name="b"), Mark("**", "close", name="b")
    >>> shown = Shown.create(("Click ", bold[0], "Save", bold[1], "!"))
    >>> shown.text, [part for part in shown.read("<b>OK</b>?") if isinstance(part, str)]
    ('Click <b>Save</b>!', ['OK', '?'])
    >>> shown.read("OK?") is None
    True
    """

    parts: Parts
    text: str
    tokens: tuple[tuple[str, Mark], ...]

    @classmethod
    def create(cls, parts: Parts) -> "Shown":
        """Returns a sentence with a tag, or its own text, for each visible mark."""
        plain = "".join(part for part in parts if isinstance(part, str))
        literal = {part.shown for part in parts if isinstance(part, Mark) and part.shown}
        foreign = literal | set(_PLAIN_TAG.findall(plain))
        names: dict[int, str] = {}  # by the number of the pair; negative for marks alone
        numbers: dict[tuple[str, bool], int] = {}  # from which on a name may be free
        used_names: set[str] = set()
        pieces: list[str] = []
        tokens: list[tuple[str, Mark]] = []
        for part in parts:
            if isinstance(part, str) or part.kind in ("break", "soft"):
                pieces.append(part if isinstance(part, str) else " " * (part.kind == "break"))
                continue
            token = part.shown
            if token is None:
                alone = part.kind == "alone"
                key = -len(tokens) - 1 if alone else part.pair
                if key not in names:
                    names[key] = _free_name(part.name, alone, used_names, foreign, numbers)
                    used_names.add(names[key])
                name = names[key]
                token = {"open": f"<{name}>", "close": f"</{name}>"}.get(part.kind, f"<{name}/>")
            pieces.append(token)
            tokens.append((token, part))
        return cls(parts, "".join(pieces), tuple(tokens))

    def read(self, translation: str) -> Parts | None:
        """Returns the parts of a translation; None if a mark is lost, doubled, new or broken."""
        waiting: dict[str, list[Mark]] = {}
        for token, mark in self.tokens:
            waiting.setdefault(token, []).append(mark)
        pieces: list[str | Mark] = [translation]
        if waiting:
            longest_first = sorted(waiting, key=len, reverse=True)
            pattern = "|".join(_bounded(token) for token in longest_first)
            pieces, at = [], 0
            for match in re.finditer(pattern, translation):
                if not waiting[match[0]]:
                    return None
                pieces += [translation[at : match.start()], waiting[match[0]].pop(0)]
                at = match.end()
            pieces.append(translation[at:])
        parts = joined(pieces)
        if any(waiting.values()) or not fits(parts, self.parts):
            return None
        return add_unseen(parts, self.parts)


def _free_name(
    name: str,
    alone: bool,
    used_names: set[str],
    foreign: set[str],
    numbers: dict[tuple[str, bool], int],
) -> str:
    """Returns the name of a tag that nothing else in a sentence has.

    Args:
        name: Name of the mark.
        alone: True if it is no pair.
        used_names: Names of the other marks.
        foreign: Tags that are part of the sentence.
        numbers: The number from which on each name may be free, which is raised.
    """
    while True:
        number = numbers.get((name, alone), 1)
        numbers[name, alone] = number + 1
        free = name if number == 1 and not alone else f"{name}{number}"
        if free not in used_names and not {f"<{free}>", f"</{free}>", f"<{free}/>"} & foreign:
            return free


def _bounded(token: str) -> str:
    """Returns a pattern of a token; inside a longer word it does not match."""
    before = r"(?<!\w)" if token[0].isalnum() else ""
    after = r"(?!\w)" if token[-1].isalnum() else ""
    return f"{before}{re.escape(token)}{after}"


def fits(parts: Parts, source: Parts) -> bool:
    """Returns True if parts have a source's marks, in an order that means the same, and no others.

    Pairs must be nested as before, and not empty unless they were. Marks that other sentences open
    or close must stay in order. So must counted placeholders, such as `%s`, and ordered marks with
    the texts between them.
    """
    if _ordered(parts) != _ordered(source) or _counted(parts) != _counted(source):
        return False
    if _nesting(parts) is None or _nesting(parts) != _nesting(source):
        return False
    texts = "\n".join(part for part in parts if isinstance(part, str))
    before = "\n".join(part for part in source if isinstance(part, str))
    return {part for part in placeables(texts) if part[0] in MARKED} <= set(placeables(before))


def _counted(parts: Parts) -> list[str]:
    """Returns the placeholders that take their arguments by their positions."""
    texts = [part.shown or "" for part in parts if isinstance(part, Mark)]
    return [text for text in texts if _COUNTED.match(text)]


def _ordered(parts: Parts) -> list[tuple[str, int]]:
    """Returns kinds and pairs of the ordered marks, and ("text", 0) for each text between them."""
    order: list[tuple[str, int]] = []
    for part in parts:
        if isinstance(part, Mark) and part.ordered:
            order.append((part.kind, part.pair))
        elif isinstance(part, Mark) or part.strip():
            order += [("text", 0)] * (not order or order[-1][0] != "text")
    return order if any(kind != "text" for kind, _ in order) else []


def _nesting(parts: Parts) -> tuple[list[int], list[int], list[int], dict[int, int]] | None:
    """Returns the pairs that are only closed, only opened, and empty, and the pair around each.

    Returns None if pairs cross.
    """
    opened: list[int] = []
    around: dict[int, int] = {}
    closed: list[int] = []
    empty: list[int] = []
    filled = 0  # number of opened pairs that are not empty
    for part in parts:
        if isinstance(part, str) or part.kind in ("alone", "break", "soft"):
            if not isinstance(part, str) or part.strip():
                filled = len(opened)
        elif part.kind == "open":
            around[part.pair] = opened[-1] if opened else 0
            opened.append(part.pair)
        elif opened and opened[-1] == part.pair:
            opened.pop()
            if filled <= len(opened):
                empty.append(part.pair)
            filled = min(filled, len(opened))
        elif part.pair in around and part.pair in opened:
            return None
        else:
            closed.append(part.pair)
    return closed, opened, sorted(empty), around


def add_unseen(parts: Parts, source: Parts) -> Parts:
    """Adds a source's breaks and soft marks to parts, as far along in the text as they were.

    A break takes the position of a space, and goes if there is none.
    """
    unseen: list[tuple[int, int, Mark]] = []
    length = marks = 0
    for part in source:
        if isinstance(part, Mark) and part.kind in ("break", "soft"):
            unseen.append((length, marks, part))
        else:
            marks += isinstance(part, Mark)
        length += _length(part)
    if not unseen:
        return parts
    positions = _Positions(parts)
    for position, marks, mark in reversed(unseen):
        target = position * positions.total / max(length, 1)
        if mark.kind == "soft":
            positions.add_soft(mark, target, marks)
        else:
            positions.add_break(mark, target)
    return positions.parts()


def _length(part: str | Mark) -> int:
    if isinstance(part, str):
        return len(part)
    return int(part.kind == "break")


class _Positions:
    """The positions in parts at which breaks and soft marks may stand.

    Positions count characters of the text. A break has the length of the space that it replaces, so
    that positions do not change. To add a mark takes time that grows with the logarithm of the
    number of parts. Marks are added from the last to the first.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = (*parts, "")
        self._starts: list[int] = []  # of each part
        self._ends: list[int] = []  # the last position that a mark in a part can have
        self._marks: list[int] = []  # before each part, without breaks and soft marks
        self._spaces: dict[int, tuple[int, int]] = {}  # position -> part and character
        self._free: list[int] = []  # positions of spaces that a break may take, in order
        # Part, position in it, whether the mark replaces a space, order of equals, mark.
        self._added: list[tuple[int, int, bool, int, Mark]] = []
        at = passed = 0
        for i, part in enumerate(self._parts):
            self._starts.append(at)
            self._marks.append(passed)
            if isinstance(part, str):
                for space in re.finditer(" ", part):
                    j = space.start()
                    self._spaces[at + j] = (i, j)
                    if not _STARTS.match(part, j + 1):
                        self._free.append(at + j)
            at += _length(part)
            self._ends.append(at if isinstance(part, str) else self._starts[-1])
            passed += isinstance(part, Mark) and part.kind not in ("break", "soft")
        self.total = at

    def add_break(self, mark: Mark, target: float) -> None:
        """Replaces the space that is nearest to a position, if there is one."""
        near = bisect.bisect_left(self._free, target)
        choices: list[float] = list(self._free[max(near - 1, 0) : near + 1])
        if target in self._spaces:  # where it was, a line may begin with anything
            choices.append(target)
        if choices:
            position = int(min(choices, key=lambda at: (abs(at - target), at)))
            i, j = self._spaces.pop(position)
            self._added.append((i, j, True, -len(self._added), mark))
            near = bisect.bisect_left(self._free, position)
            if self._free[near : near + 1] == [position]:
                del self._free[near]

    def add_soft(self, mark: Mark, target: float, marks: int) -> None:
        """Adds a mark near a position, and if possible behind so many other marks."""
        choices = []
        for position in (math.floor(target), math.floor(target) + 1):
            low = bisect.bisect_left(self._ends, position)
            high = bisect.bisect_right(self._starts, position)
            if low == high:  # behind the end
                continue
            near = bisect.bisect_left(self._marks, marks, low, high)
            before = self._marks[max(near - 1, low)]
            first = bisect.bisect_left(self._marks, before, low, high)
            for i in {low, first, near} & {*range(low, high)}:
                inside = position - self._starts[i]
                cost = (abs(position - target), abs(self._marks[i] - marks))
                choices.append((*cost, i, inside))
        if not choices:
            choices.append((0.0, 0, len(self._parts) - 1, 0))
        *_, i, inside = min(choices)
        self._added.append((i, inside, False, -len(self._added), mark))

    def parts(self) -> Parts:
        """Returns the parts with the marks."""
        parts: list[str | Mark] = []
        added = sorted(self._added, key=lambda entry: entry[:4])
        added.append((len(self._parts), 0, False, 0, Mark("", "soft")))
        marks = iter(added)
        i, inside, takes_space, _, mark = next(marks)
        for number, part in enumerate(self._parts):
            at = 0
            while i == number:
                if isinstance(part, str):
                    parts.append(part[at:inside])
                    at = inside + takes_space
                parts.append(mark)
                i, inside, takes_space, _, mark = next(marks)
            parts.append(part[at:] if isinstance(part, str) else part)
        return joined(parts)
