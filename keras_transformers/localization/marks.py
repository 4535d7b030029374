"""Texts with markup between, and what a translator reads of them and answers."""

import bisect
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from keras_transformers.core.words import KINDS, placeables


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
        start: Where what is replaced begins in the file's text.
        end: Where it ends.
        escapes: Dict of character -> how it is written here.
        present: Translation that is there already; None where the text itself is replaced.
        inside: Whether it may stand inside a mark of another segment, as attributes do.

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


KEPT = ("tag", "placeholder", "address", "entity")  # what a text has of these is a mark
_KEPT = re.compile("|".join(KINDS[kind] for kind in KEPT))
_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)[^>]*?(/?)>")
_PLAIN_TAG = re.compile(r"</?[^<>/]*/?>")  # what could be taken for a mark
_COUNTED = re.compile(r"%[^(\d%]|%$")  # %s, which takes its argument by its position
# What would be markup of Markdown at the start of a line.
_STARTS = re.compile(r"(?:[-+*]|#{1,6}|\d+[.)])\s|[>=|]|```|~~~|--")


def marked(parts: Sequence[str | Mark], escape: Callable[[str], str]) -> Parts:
    """Parts in whose texts tags, placeholders, entities and addresses are marks, too.

    Args:
        parts: Texts as a reader sees them, and marks.
        escape: Function that gives a text as its file has it.

    Example:
    >>> from keras_transformers.localization.marks import marked
    >>> [part if isinstance(part, str) else part.kind for part in marked(["<b>%s</b>"], str)]
    ['open', 'alone', 'close']
    """
    found: list[str | Mark] = []
    for part in parts:
        if isinstance(part, Mark):
            found.append(part)
            continue
        at = 0
        for match in _KEPT.finditer(part):
            found += [part[at : match.start()], Mark(escape(match[0]), shown=match[0])]
            at = match.end()
        found.append(part[at:])
    return _paired(joined(found))


def _paired(parts: Parts) -> Parts:
    """Parts whose alone marks are pairs where they are tags that belong together."""
    found, waiting = list(parts), []  # names and positions
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
                found[j] = dataclasses.replace(parts[j], kind=kind, pair=pair)  # type: ignore
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A sentence as a translator reads it.

    Args:
        parts: The sentence.
        text: What the translator reads.
        tokens: What stands for each mark that it can see, in their order.

    Example:
    >>> from keras_transformers.localization import Mark
    >>> from keras_transformers.localization.marks import Shown
    >>> bold = Mark("**", "open", name="b"), Mark("**", "close", name="b")
    >>> shown = Shown.of(("Click ", bold[0], "Save", bold[1], "!"))
    >>> shown.text, [part for part in shown.read("<b>OK</b>?") if isinstance(part, str)]
    ('Click <b>Save</b>!', ['OK', '?'])
    >>> shown.read("OK?") is None
    True
    """

    parts: Parts
    text: str
    tokens: tuple[tuple[str, Mark], ...]

    @classmethod
    def of(cls, parts: Parts) -> "Shown":
        """How a sentence is shown."""
        plain = "".join(part for part in parts if isinstance(part, str))
        literal = {part.shown for part in parts if isinstance(part, Mark) and part.shown}
        foreign = literal | set(_PLAIN_TAG.findall(plain))
        taken: set[str] = set()
        names: dict[int, str] = {}
        numbers: dict[tuple[str, bool], int] = {}  # from which on a name may be free
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
                    names[key] = _name(part.name, alone, taken, foreign, numbers)
                    taken.add(names[key])
                name = names[key]
                token = {"open": f"<{name}>", "close": f"</{name}>"}.get(part.kind, f"<{name}/>")
            pieces.append(token)
            tokens.append((token, part))
        return cls(parts, "".join(pieces), tuple(tokens))

    def read(self, translation: str) -> Parts | None:
        """The parts of a translation; None where it lost, doubled, made up or broke a mark."""
        waiting: dict[str, list[Mark]] = {}
        for token, mark in self.tokens:
            waiting.setdefault(token, []).append(mark)
        found: list[str | Mark] = [translation]
        if waiting:
            longest = sorted(waiting, key=len, reverse=True)
            pattern = "|".join(_bounded(token) for token in longest)
            found, at = [], 0
            for match in re.finditer(pattern, translation):
                if not waiting[match[0]]:
                    return None
                found += [translation[at : match.start()], waiting[match[0]].pop(0)]
                at = match.end()
            found.append(translation[at:])
        parts = joined(found)
        if any(waiting.values()) or not fits(parts, self.parts):
            return None
        return with_unseen(parts, self.parts)


def _name(
    name: str, alone: bool, taken: set[str], foreign: set[str], numbers: dict[tuple[str, bool], int]
) -> str:
    """A name of a tag that nothing else in a sentence has.

    Args:
        name: Of the mark.
        alone: True if it is no pair.
        taken: Names of other marks.
        foreign: Tags that are part of the sentence.
        numbers: The number from which on each name may be free, which is raised.
    """
    while True:
        number = numbers.get((name, alone), 1)
        numbers[name, alone] = number + 1
        found = name if number == 1 and not alone else f"{name}{number}"
        if found not in taken and not {f"<{found}>", f"</{found}>", f"<{found}/>"} & foreign:
            return found


def _bounded(token: str) -> str:
    """A pattern that finds a token, a word only where no other word holds it."""
    before = r"(?<!\w)" if token[0].isalnum() else ""
    after = r"(?!\w)" if token[-1].isalnum() else ""
    return f"{before}{re.escape(token)}{after}"


def fits(parts: Parts, source: Parts) -> bool:
    """Whether parts have a source's marks in an order that means the same, and no more.

    Pairs must be nested as they were, what the sentence opens or closes for others must stay in
    order, and so must placeholders that are counted, as `%s`, and ordered marks with the texts
    between. Pairs are not empty unless they were.
    """
    if _ordered(parts) != _ordered(source) or _counted(parts) != _counted(source):
        return False
    if _nesting(parts) is None or _nesting(parts) != _nesting(source):
        return False
    texts = "\n".join(part for part in parts if isinstance(part, str))
    before = "\n".join(part for part in source if isinstance(part, str))
    made_up = {each for each in placeables(texts) if each[0] in KEPT}
    return made_up <= set(placeables(before))


def _counted(parts: Parts) -> list[str]:
    """Placeholders that take their arguments by their positions."""
    shown = [part.shown or "" for part in parts if isinstance(part, Mark)]
    return [each for each in shown if _COUNTED.match(each)]


def _ordered(parts: Parts) -> list[tuple[str, int]]:
    """Ordered marks, and whether there is text between them."""
    found: list[tuple[str, int]] = []
    for part in parts:
        if isinstance(part, Mark) and part.ordered:
            found.append((part.kind, part.pair))
        elif isinstance(part, Mark) or part.strip():
            found += [("text", 0)] * (not found or found[-1][0] != "text")
    return found if any(kind != "text" for kind, _ in found) else []


def _nesting(parts: Parts) -> tuple[list[int], list[int], list[int], dict[int, int]] | None:
    """Pairs that are closed only, opened only, and empty, and what each is in.

    None where pairs cross.
    """
    opened: list[int] = []
    around: dict[int, int] = {}
    closed, empty, filled = [], [], 0  # as many of the opened pairs have something in them
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


def with_unseen(parts: Parts, source: Parts) -> Parts:
    """Parts with a source's breaks and soft marks, as far along in the text as they were.

    A break takes the position of a space, and vanishes where there is none.
    """
    unseen, length, marks = [], 0, 0
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
        put = positions.put_soft if mark.kind == "soft" else positions.put_break
        put(mark, position * positions.total / max(length, 1), marks)
    return positions.parts()


def _length(part: str | Mark) -> int:
    if isinstance(part, str):
        return len(part)
    return int(part.kind == "break")


class _Positions:
    """Where breaks and soft marks may stand in parts.

    Positions count characters of the text. A break has the length of the space that it takes, so
    that they stay as they are. Each mark takes time that grows with the logarithm of the parts.

    Args:
        parts: The parts. Marks come from the last to the first.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = (*parts, "")
        self._starts: list[int] = []  # of each part
        self._ends: list[int] = []  # the last position that a mark in a part can have
        self._marks: list[int] = []  # before each part, without breaks and soft marks
        self._spaces: dict[int, tuple[int, int]] = {}  # position -> part and character
        self._free: list[int] = []  # positions of spaces that a break may take, in order
        self._put: list[tuple[int, int, bool, int, Mark]] = []
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

    def put_break(self, mark: Mark, wanted: float, marks: int) -> None:
        """Puts a mark for the space that is nearest to a position, if there is one."""
        near = bisect.bisect_left(self._free, wanted)
        choices: list[float] = list(self._free[max(near - 1, 0) : near + 1])
        if wanted in self._spaces:  # where it was, a line may begin with anything
            choices.append(wanted)
        if choices:
            position = int(min(choices, key=lambda at: (abs(at - wanted), at)))
            i, j = self._spaces.pop(position)
            self._put.append((i, j, True, -len(self._put), mark))
            near = bisect.bisect_left(self._free, position)
            if self._free[near : near + 1] == [position]:
                del self._free[near]

    def put_soft(self, mark: Mark, wanted: float, marks: int) -> None:
        """Puts a mark near a position, behind as many other marks if there is a choice."""
        choices = []
        for position in (math.floor(wanted), math.floor(wanted) + 1):
            low = bisect.bisect_left(self._ends, position)
            high = bisect.bisect_right(self._starts, position)
            if low == high:  # behind the end
                continue
            near = bisect.bisect_left(self._marks, marks, low, high)
            before = self._marks[max(near - 1, low)]
            first = bisect.bisect_left(self._marks, before, low, high)
            for i in {low, first, near} & {*range(low, high)}:
                inside = position - self._starts[i]
                cost = (abs(position - wanted), abs(self._marks[i] - marks))
                choices.append((*cost, i, inside))
        if not choices:
            choices.append((0.0, 0, len(self._parts) - 1, 0))
        *_, i, inside = min(choices)
        self._put.append((i, inside, False, -len(self._put), mark))

    def parts(self) -> Parts:
        """The parts with the marks."""
        found: list[str | Mark] = []
        put = sorted(self._put, key=lambda each: each[:4])
        put.append((len(self._parts), 0, False, 0, Mark("", "soft")))
        marks = iter(put)
        i, inside, takes_space, _, mark = next(marks)
        for number, part in enumerate(self._parts):
            at = 0
            while i == number:
                if isinstance(part, str):
                    found.append(part[at:inside])
                    at = inside + takes_space
                found.append(mark)
                i, inside, takes_space, _, mark = next(marks)
            found.append(part[at:] if isinstance(part, str) else part)
        return joined(found)
