"""A file to translate, and the formats made of lines: plain text, subtitles, messages of programs.

Other formats are subclasses of `TextFile`, too. Libraries for these formats write a file anew, with
other line ends, quotes or wrapping. Here all bytes but the translations stay, so each class finds
the positions of its texts itself.
"""

import bisect
import collections
import dataclasses
import gettext
import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from keras_transformers.core.words import placeables
from keras_transformers.localization.marks import Mark, Parts, Segment, joined, marked, split_breaks

MOST_TRIALS = 1000  # readings of a file to find the translations that change its structure
_OTHER_STRUCTURE = "whose translation would change the structure"
# ICU's argument with a text for each form, which would have to be translated form by form.
_FORMS = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


class TextFile:
    """A file to translate: it finds its segments, and writes itself with their translations.

    A subclass finds the segments in `scan`, and writes text in `escaped`. All other bytes are
    written back as they were read.

    Args:
        data: Bytes of the file.
        name: Name of the file, for messages.
        again: If True, texts that have a translation are translated again.

    Attributes:
        segments: List of `Segment`s.
        left_out: Counter of reason -> number of texts that stay as they are.

    Raises:
        ValueError: If the file is damaged; it names the file and the line.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, data: bytes, name: str = "the file", again: bool = False) -> None:
        self.data, self.name, self.again = data, name, again
        self.segments: list[Segment] = []
        self.left_out: collections.Counter[str] = collections.Counter()
        self.codec = self.encoding(data)
        self._inside: list[tuple[int, int, str]] = []
        self.text = self._decoded()
        self.scan()

    def encoding(self, data: bytes) -> str:
        """Hook: returns the name of the file's encoding, UTF-8 or UTF-16 by its mark."""
        return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2], "utf-8")

    def scan(self) -> None:
        """Hook: adds the segments by `add`, and counts texts that are left out."""
        raise NotImplementedError

    def escaped(self, text: str, segment: Segment) -> str:
        """Hook: returns a text as the file has it."""
        return text

    def written(self, parts: Parts, segment: Segment) -> str:
        """Hook: returns a translation as the file has it."""
        return "".join(
            self._raw(part) if isinstance(part, Mark) else self.escaped(part, segment)
            for part in parts
        )

    def same_structure(self, text: str) -> bool:
        """Hook: returns True if a rebuilt text has the structure of this one."""
        return True

    def add(
        self,
        parts: Sequence[str | Mark],
        start: int,
        end: int,
        escapes: dict[str, str] | None = None,
        present: str | None = None,
        inside: bool = False,
    ) -> None:
        """Adds a segment; a text without letters, or with forms of ICU, is counted instead."""
        segment = Segment(joined(parts), start, end, escapes or {}, present, inside)
        if _FORMS.search(segment.plain):
            self.left_out["with plural or select forms of ICU"] += 1
            return
        parts = marked(segment.parts, lambda text: self.escaped(text, segment))
        segment = dataclasses.replace(segment, parts=parts)
        if any(letter.isalpha() for letter in segment.plain):
            self.segments.append(segment)
        elif segment.plain.strip():
            self.left_out["without letters"] += 1

    def damaged(self, position: int, what: str) -> ValueError:
        """Returns an error that names the line of a position in the text."""
        return ValueError(f"{self.name}, line {self.line(position)}: {what}")

    def line(self, position: int) -> int:
        """Returns the number of the line, from 1, of a position in the text."""
        return self.text.count("\n", 0, position) + 1

    def rebuilt(self, translations: Sequence[Parts | None]) -> bytes:
        """Returns the file with translations of its segments; None leaves a segment as it is.

        A translation that would change the structure of the file is left out and counted.

        Raises:
            ValueError: If there are not as many translations as segments, or the file's encoding
                lacks a character.
        """
        changed: list[Parts | None] = [
            None if parts == segment.parts and segment.present is None else parts
            for segment, parts in zip(self.segments, translations, strict=True)
        ]
        text = self._spliced(changed)
        if text == self.text:
            return self.data
        if not self.same_structure(text):
            self._trials = 0
            numbers = [i for i, parts in enumerate(changed) if parts is not None]
            text = self._spliced_some(changed, self._harmless(changed, numbers, []))
        return self.encoded(text)

    def _harmless(
        self, changed: list[Parts | None], candidates: list[int], accepted: list[int]
    ) -> list[int]:
        """Returns `accepted`, and those of `candidates` that leave the structure, by halves."""
        trial = [*accepted, *candidates]
        if self.same_structure(self._spliced_some(changed, trial)):
            return trial
        self._trials += 1
        if len(candidates) == 1 or self._trials > MOST_TRIALS:
            self.left_out[_OTHER_STRUCTURE] += len(candidates)
            return accepted
        half = len(candidates) // 2
        accepted = self._harmless(changed, candidates[:half], accepted)
        return self._harmless(changed, candidates[half:], accepted)

    def _spliced_some(self, changed: list[Parts | None], numbers: list[int]) -> str:
        numbered = set(numbers)
        return self._spliced([x if i in numbered else None for i, x in enumerate(changed)])

    def encoded(self, text: str) -> bytes:
        """Returns the bytes of a text.

        Raises:
            ValueError: If the file's encoding lacks a character.
        """
        try:
            return text.encode(self.codec)
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{self.name}: its encoding {self.codec} has no "
                f"{text[error.start]!r}, which a translation needs; convert the file to UTF-8."
            ) from None

    def _spliced(self, translations: Sequence[Parts | None]) -> str:
        """Returns the text with the translations that are not None, those inside marks first."""
        pairs = [
            (segment, parts)
            for segment, parts in zip(self.segments, translations, strict=True)
            if parts is not None
        ]
        self._inside = sorted((x.start, x.end, self.written(p, x)) for x, p in pairs if x.inside)
        outer = sorted((x.start, x.end, self.written(p, x)) for x, p in pairs if not x.inside)
        starts = [start for start, *_ in outer]
        free = []
        for start, end, new in self._inside:
            before = bisect.bisect_right(starts, start) - 1
            if before < 0 or start >= outer[before][1]:
                free.append((start, end, new))
        return self._edited(0, len(self.text), [*outer, *free])

    def _raw(self, mark: Mark) -> str:
        """Returns a mark as it is written, with the segments inside it translated."""
        if mark.span is None:
            return mark.raw
        start, end = mark.span
        before = mark.raw[: len(mark.raw) - (end - start)]
        first, last = (bisect.bisect_left(self._inside, (at,)) for at in (start, end))
        return before + self._edited(start, end, self._inside[first:last])

    def _edited(self, at: int, stop: int, edits: list[tuple[int, int, str]]) -> str:
        """Returns the text from one position to another, with edits in it."""
        pieces = []
        for start, end, new in sorted(edits):
            pieces += [self.text[at:start], new]
            at = end
        return "".join([*pieces, self.text[at:stop]])

    def _decoded(self) -> str:
        try:
            return self.data.decode(self.codec)
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"{self.name}, line {line}: byte {self.data[error.start]:#04x} is no {self.codec}."
            ) from None
        except LookupError:
            raise ValueError(f"{self.name}, line 1: unknown encoding {self.codec!r}.") from None


WRAPPED = 45  # characters of a line whose sentence may go on in the next
_ITEM = re.compile(r"\s*(?:[-+*\u2022>#|]|\(?\w{1,3}[.)])\s")
_TIMES = re.compile(r"\s*-?\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*-?\d+:\d\d:\d\d[,.]\d{1,3}(?:\s.*)?\Z")
_LINE = re.compile(r"[^\n]*\n?")


class PlainText(TextFile):
    r"""Text without markup. A line ends its sentence unless it is long and the next goes on.

    Example:
    >>> from keras_transformers.localization import PlainText
    >>> file = PlainText(b"Open the door.\n\nShut it.\n")
    >>> [segment.plain for segment in file.segments]
    ['Open the door.', 'Shut it.']
    >>> file.rebuilt([("Tür auf.",), None]).decode()
    'Tür auf.\n\nShut it.\n'
    """

    suffixes = (".txt",)

    def scan(self) -> None:
        """Adds each run of lines that belong together as a segment."""
        lines = list(re.finditer(r"[^\n]+", self.text))
        start = None
        for i, line in enumerate(lines):
            start = line.start() if start is None else start
            if i + 1 < len(lines) and self._continues(line, lines[i + 1]):
                continue
            self._add(start, line.end())
            start = None

    def _continues(self, line: re.Match[str], following: re.Match[str]) -> bool:
        return (
            following.start() == line.end() + 1  # no empty line between
            and len(line[0].rstrip()) >= WRAPPED
            and bool(following[0].strip())
            and not _ITEM.match(following[0])
        )

    def _add(self, start: int, end: int) -> None:
        text = self.text[start:end]
        start += len(text) - len(text.lstrip("\ufeff \t\r\f"))
        text = text.strip("\ufeff \t\r\f")
        self.add(split_breaks(text), start, start + len(text))


class Subtitles(TextFile):
    r"""Subtitles in SubRip's form: a number, times, lines of text, an empty line.

    The lines of a subtitle are one text. Lines of several speakers, which begin with a dash, are a
    text each. A translation has as many lines.

    Example:
    >>> from keras_transformers.localization import Subtitles
    >>> data = b"1\n00:00:01,000 --> 00:00:02,000\nOpen\n<i>the</i> door.\n"
    >>> file = Subtitles(data)
    >>> [mark.raw for mark in file.segments[0].parts if not isinstance(mark, str)]
    ['\n', '<i>', '</i>']
    """

    suffixes = (".srt",)

    def scan(self) -> None:
        """Adds each subtitle, or each speaker's lines, as a segment."""
        lines = [(m.start(), m[0].rstrip("\r\n")) for m in _LINE.finditer(self.text) if m[0]]
        i = 0
        while i < len(lines):
            at, line = lines[i]
            if not line.strip("\ufeff \t"):
                i += 1
                continue
            if not line.strip("\ufeff \t").isdecimal():
                raise self.damaged(at, f"must be the number of a subtitle. Received: {line!r}")
            if i + 1 == len(lines) or not _TIMES.match(lines[i + 1][1]):
                raise self.damaged(
                    lines[min(i + 1, len(lines) - 1)][0],
                    "must be the times of a subtitle, 00:00:01,000 --> 00:00:02,000.",
                )
            i += 2
            first = i
            while i < len(lines) and lines[i][1].strip() and not self._begins(lines, i):
                i += 1
            self._cue(lines[first:i])

    @staticmethod
    def _begins(lines: list[tuple[int, str]], i: int) -> bool:
        """True if the next subtitle begins at a line, also without an empty line before it."""
        is_number = lines[i][1].strip().isdecimal()
        return is_number and i + 1 < len(lines) and bool(_TIMES.match(lines[i + 1][1]))

    def _cue(self, lines: list[tuple[int, str]]) -> None:
        groups: list[list[tuple[int, str]]] = []
        for at, line in lines:
            if groups and not re.match(r"\s*(?:<[^>]*>\s*)*[-\u2013\u2014]", line):
                groups[-1].append((at, line))
            else:
                groups.append([(at, line)])
        for group in groups:
            start, end = group[0][0], group[-1][0] + len(group[-1][1])
            self.add(split_breaks(self.text[start:end]), start, end)


WIDTH = 79  # of a line, as gettext wraps it
_STATEMENT = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d+)\])?)\s*(\".*)\Z")
_STRING = re.compile(r"\s*\"((?:[^\"\\]|\\.)*)\"\s*\Z")
_DIRECTIVE = re.compile(
    r"%(?:%|(?:\(\w*\)|\d+\$)?[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlLqjzt]*[A-Za-z@])"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', **{v: f"\\{k}" for k, v in _CHARACTERS.items()}}
_CHARSET = re.compile(rb"\"Content-Type:[^\"]*charset=([\w.:-]+)", re.IGNORECASE)
_PLURAL = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")
_END = r" *\n(?:\s+|(?=[-*\u2022]\s)|\Z)"  # an empty line, one further in, an item, the last
_BREAK = r" *\n"


@dataclasses.dataclass
class _Statement:
    """`msgid "..."`, over all its lines."""

    keyword: str
    index: str | None
    start: int
    end: int
    text: str = ""


@dataclasses.dataclass
class _Entry:
    flags: set[str] = dataclasses.field(default_factory=set)
    statements: list[_Statement] = dataclasses.field(default_factory=list)

    @property
    def is_header(self) -> bool:
        source = self.get("msgid")
        return source is not None and not source.text and self.get("msgctxt") is None

    def get(self, keyword: str) -> _Statement | None:
        return next((x for x in self.statements if x.keyword == keyword), None)


class PoFile(TextFile):
    r"""A PO file: messages that have no translation get one, in each form of a plural.

    A message that is flagged as fuzzy has a translation that somebody has to check. It is
    translated again only with `again`, and keeps its flag.

    Raises:
        ValueError: If the file is damaged, or a message has another number of plural forms than the
            header says.

    Example:
    >>> from keras_transformers.localization import PoFile
    >>> file = PoFile(b'msgid "Open %s"\nmsgstr ""\n')
    >>> print(file.rebuilt([("Öffne ", file.segments[0].parts[1])]).decode(), end="")
    msgid "Open %s"
    msgstr "Öffne %s"
    """

    suffixes = (".po", ".pot")

    def encoding(self, data: bytes) -> str:
        """Returns the encoding that the header names, or UTF-8."""
        match = _CHARSET.search(data)
        charset = match[1].decode().lower() if match else "utf-8"
        return "utf-8" if charset == "charset" else charset  # of a template

    def scan(self) -> None:
        """Adds each message, or each of its plural forms, as a segment."""
        self._flags: dict[int, set[str]] = {}
        self._entry: dict[int, int] = {}  # position of a slot -> of its message
        entries = self._entries()
        header = next((entry for entry in entries if entry.is_header), None)
        self._forms = self._plural_forms(header)
        for entry in entries:
            if entry is not header:
                self._add(entry)

    def same_structure(self, text: str) -> bool:
        """Returns True if a text has as many messages."""
        if self.codec != "utf-8":
            return True
        try:
            rebuilt = PoFile(text.encode(), self.name)
        except ValueError:
            return False
        return len(rebuilt._entries()) == len(self._entries())

    def written(self, parts: Parts, segment: Segment) -> str:
        """Returns the strings of a `msgstr`, wrapped as gettext does."""
        text = _text(parts)
        if text == segment.present:
            return self.text[segment.start : segment.end]
        keyword = segment.start - self.text.rfind("\n", 0, segment.start) - 1
        newline = "\r\n" if "\r\n" in self.text else "\n"
        lines = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
        if len(lines) == 1 and keyword + len(_quoted(text)) <= WIDTH:
            return _quoted(text)
        return newline.join(['""', *(_quoted(part) for line in lines for part in _wrapped(line))])

    def rebuilt(self, translations: Sequence[Parts | None]) -> bytes:
        """Returns the file with translations; a message has all of its plural forms or none."""
        pairs = list(zip(self.segments, translations, strict=True))
        bad = {self._entry[x.start] for x, parts in pairs if parts is None}
        for segment, parts in pairs:
            if parts is not None and not self._fits(parts, segment):
                self.left_out["whose translation has another format"] += 1
                bad.add(self._entry[segment.start])
        return super().rebuilt([p if self._entry[x.start] not in bad else None for x, p in pairs])

    def _fits(self, parts: Parts, segment: Segment) -> bool:
        """Returns True if the directives are those of the source, or no compiler checks them."""
        flags = self._flags[segment.start]
        if not any(flag.endswith("-format") and flag[:3] != "no-" for flag in flags):
            return True
        text, source = _text(parts), _text(segment.parts)
        directives, expected = _DIRECTIVE.findall(text), _DIRECTIVE.findall(source)
        if all(x[1] == "(" or "$" in x for x in expected):  # named or numbered
            directives.sort()
            expected.sort()
        has_same_signs = all(text.count(sign) == source.count(sign) for sign in "%{}")
        return has_same_signs and directives == expected

    def _entries(self) -> list[_Entry]:
        entries = [_Entry()]
        for match in re.finditer(r"[^\n]*\n?", self.text):
            line, start = match[0], match.start()
            bare = line.strip("\ufeff \t\r\n")
            if bare.startswith("#"):
                if entries[-1].statements or bare.startswith("#~"):
                    entries.append(_Entry())
                if bare.startswith("#,"):
                    entries[-1].flags |= {flag.strip() for flag in bare[2:].split(",")}
            elif bare:
                statement = _STATEMENT.match(bare)
                if statement:
                    if statement[1] in ("msgctxt", "msgid") and entries[-1].get("msgstr"):
                        entries.append(_Entry())
                    self._begin(entries[-1], statement, start)
                string = _STRING.match(statement[3] if statement else bare)
                if not string or not entries[-1].statements:
                    raise self.damaged(start, f"must be a string in quotes. Received: {bare!r}")
                last = entries[-1].statements[-1]
                last.start = start + line.index('"') if statement else last.start
                last.end = start + len(line.rstrip())
                last.text += _ESCAPE.sub(_unescaped, string[1])
        entries = [entry for entry in entries if entry.statements]
        for entry in entries:
            if not entry.get("msgid") or not entry.get("msgstr"):
                raise self.damaged(entry.statements[0].start, "a message needs msgid and msgstr.")
        return entries

    def _begin(self, entry: _Entry, match: re.Match[str], start: int) -> None:
        keyword, index = match[1].partition("[")[0], match[2]
        repeated = any((x.keyword, x.index) == (keyword, index) for x in entry.statements)
        if repeated or not entry.get("msgid") and keyword in ("msgid_plural", "msgstr"):
            raise self.damaged(start, f"a {match[1]} must not stand here.")
        entry.statements.append(_Statement(keyword, index, start, start))

    def _add(self, entry: _Entry) -> None:
        singular, plural = entry.get("msgid"), entry.get("msgid_plural")
        slots = [x for x in entry.statements if x.keyword == "msgstr"]
        assert singular is not None
        if any(slot.text for slot in slots) and not self.again:
            self.left_out["fuzzy" if "fuzzy" in entry.flags else "already translated"] += 1
            return
        if plural is None:
            self._add_slot(entry, singular.text, slots[0])
            return
        if self._forms is None:
            self.left_out["with plural forms that the header does not tell"] += 1
            return
        number, form = self._forms
        numbers = [slot.index for slot in slots]
        if len(slots) != number or numbers != [str(i) for i in range(number)]:
            raise self.damaged(
                slots[0].start,
                f"must have {number} plural forms, as the header says. Received: {len(slots)}",
            )
        for i, slot in enumerate(slots):
            self._add_slot(entry, self._source(i, singular.text, plural.text, form), slot)

    def _source(self, i: int, singular: str, plural: str, form: Callable[[int], int]) -> str:
        """Returns the singular if plural form `i` is that of 1 and it suits all of its numbers."""
        is_singular = form(1) == i and self._forms != (1, form)
        shared = any(form(n) == i for n in range(201) if n != 1)
        if is_singular and (not shared or placeables(singular) == placeables(plural)):
            return singular
        return plural

    def _add_slot(self, entry: _Entry, source: str, slot: _Statement) -> None:
        self._flags[slot.start] = entry.flags
        self._entry[slot.start] = entry.statements[0].start
        self.add(split_breaks(source, _BREAK, _END), slot.start, slot.end, present=slot.text)

    def _plural_forms(self, header: _Entry | None) -> tuple[int, Callable[[int], int]] | None:
        slot = header and header.get("msgstr")
        match = _PLURAL.search(slot.text) if slot else None
        if not match or not slot:
            return None
        try:
            return int(match[1]), gettext.c2py(match[2].strip())
        except ValueError as error:
            raise self.damaged(slot.start, f"Plural-Forms: {error}.") from None


def _text(parts: Parts) -> str:
    return "".join(part if isinstance(part, str) else part.raw for part in parts)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0].isdecimal() else _CHARACTERS.get(code, code)


def _quoted(text: str) -> str:
    return '"' + "".join(_WRITTEN.get(letter, letter) for letter in text) + '"'


def _wrapped(line: str) -> list[str]:
    """Returns the pieces of a line, cut at spaces, that fit in quotes."""
    pieces = [""]
    for word in re.findall(r"\S*\s+|\S+", line):
        if pieces[-1] and len(_quoted(pieces[-1] + word.rstrip(" "))) > WIDTH:
            pieces.append("")
        pieces[-1] += word
    return pieces
