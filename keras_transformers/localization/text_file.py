"""A file to translate: its texts, and all else, which stays as it is. Plain text and subtitles.

Other formats are subclasses of `TextFile`.
"""

import bisect
import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import ClassVar

from keras_transformers.localization.marks import Mark, Parts, Segment, joined, marked, with_breaks

MOST_TRIALS = 1000  # readings of a file to find the translations that change its structure
_OTHER_STRUCTURE = "whose translation would change the structure"
# ICU's argument with a text for each form, which would have to be translated form by form.
_FORMS = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


class TextFile:
    """A file to translate: its segments, and how to write it with translations of them.

    A subclass says in `scan` where the segments are, and in `escaped` how text is written. What is
    no segment is written back as it was read, byte for byte.

    Args:
        data: Bytes of the file.
        name: Of the file, for messages.
        again: Whether what has a translation is translated again.

    Attributes:
        segments: List of `Segment`s.
        left_out: Counter of reason -> number of texts that stay as they are.

    Raises:
        ValueError: If the file is damaged; it names the file and the line.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    newlines: ClassVar[bool] = False  # whether the end of a line means something inside a text

    def __init__(self, data: bytes, name: str = "the file", again: bool = False) -> None:
        self.data, self.name, self.again = data, name, again
        self.segments: list[Segment] = []
        self.left_out: collections.Counter[str] = collections.Counter()
        self.codec = self.encoding(data)
        self._inside: list[tuple[int, int, str]] = []
        self.text = self._decoded()
        self.scan()

    def encoding(self, data: bytes) -> str:
        """Hook: the name of the file's encoding; by default UTF-8, or UTF-16 after its mark."""
        return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2], "utf-8")

    def scan(self) -> None:
        """Hook: adds the segments, by `add`, and counts what is left out."""
        raise NotImplementedError

    def escaped(self, text: str, segment: Segment) -> str:
        """Hook: a text as the file has it."""
        return text

    def written(self, parts: Parts, segment: Segment) -> str:
        """Hook: a translation as the file has it."""
        return "".join(
            self._raw(part) if isinstance(part, Mark) else self.escaped(part, segment)
            for part in parts
        )

    def same_structure(self, text: str) -> bool:
        """Hook: whether a rebuilt text has the structure of this one."""
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
        """Adds a segment, or counts a text in which no letter stands, or several forms do."""
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
        """The error of a position of the text."""
        return ValueError(f"{self.name}, line {self.line(position)}: {what}")

    def line(self, position: int) -> int:
        """The number of the line, from 1, in which a position of the text stands."""
        return self.text.count("\n", 0, position) + 1

    def rebuilt(self, translations: Sequence[Parts | None]) -> bytes:
        """The file with translations of its segments; None leaves a segment as it is.

        A translation that would change the structure of the file is left out, and counted.

        Raises:
            ValueError: If there are not as many as segments, or the file's encoding lacks a
                character.
        """
        changed: list[Parts | None] = [
            None if parts == segment.parts and segment.present is None else parts
            for segment, parts in zip(self.segments, translations, strict=True)
        ]
        wanted = [i for i, parts in enumerate(changed) if parts is not None]
        text = self._spliced(changed)
        if text == self.text:
            return self.data
        if not self.same_structure(text):
            self._trials = 0
            kept = set(self._harmless(changed, wanted, []))
            text = self._spliced([x if i in kept else None for i, x in enumerate(changed)])
        return self.encoded(text)

    def _harmless(self, changed: list[Parts | None], more: list[int], kept: list[int]) -> list[int]:
        """Those of `kept`, and of `more`, with which the structure stays; found by halves."""
        trial = {*kept, *more}
        text = self._spliced([x if i in trial else None for i, x in enumerate(changed)])
        if self.same_structure(text):
            return [*kept, *more]
        self._trials += 1
        if len(more) == 1 or self._trials > MOST_TRIALS:
            self.left_out[_OTHER_STRUCTURE] += len(more)
            return kept
        half = len(more) // 2
        kept = self._harmless(changed, more[:half], kept)
        return self._harmless(changed, more[half:], kept)

    def encoded(self, text: str) -> bytes:
        """The bytes of a text.

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
        """The text with what is not None; those inside of marks first."""
        pairs = [
            (segment, parts)
            for segment, parts in zip(self.segments, translations, strict=True)
            if parts is not None
        ]
        self._inside = sorted((x.start, x.end, self.written(p, x)) for x, p in pairs if x.inside)
        outer = sorted((x.start, x.end, self.written(p, x)) for x, p in pairs if not x.inside)
        starts = [start for start, *_ in outer]
        free = []
        for each in self._inside:
            before = bisect.bisect_right(starts, each[0]) - 1
            if before < 0 or each[0] >= outer[before][1]:
                free.append(each)
        return self._edited(0, len(self.text), [*outer, *free])

    def _raw(self, mark: Mark) -> str:
        """A mark as it is written, with the segments inside it translated."""
        if mark.span is None:
            return mark.raw
        start, end = mark.span
        before = mark.raw[: len(mark.raw) - (end - start)]
        first, last = (bisect.bisect_left(self._inside, (at,)) for at in (start, end))
        return before + self._edited(start, end, self._inside[first:last])

    def _edited(self, at: int, stop: int, edits: list[tuple[int, int, str]]) -> str:
        """The text from one position to another, with edits in it."""
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
        """Each run of lines that belong together is a segment."""
        lines = list(re.finditer(r"[^\n]+", self.text))
        start = None
        for i, line in enumerate(lines):
            start = line.start() if start is None else start
            if i + 1 < len(lines) and self._goes_on(line, lines[i + 1]):
                continue
            self._add(start, line.end())
            start = None

    def _goes_on(self, line: re.Match[str], following: re.Match[str]) -> bool:
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
        self.add(with_breaks(text), start, start + len(text))


class Subtitles(TextFile):
    r"""Subtitles in SubRip's form: a number, times, lines of text, an empty line.

    The lines of a subtitle are one text, but for those of several speakers, which begin with a
    dash; a translation has as many lines.

    Example:
    >>> from keras_transformers.localization import Subtitles
    >>> data = b"1\n00:00:01,000 --> 00:00:02,000\nOpen\n<i>the</i> door.\n"
    >>> file = Subtitles(data)
    >>> [mark.raw for mark in file.segments[0].parts if not isinstance(mark, str)]
    ['\n', '<i>', '</i>']
    """

    suffixes = (".srt",)

    def scan(self) -> None:
        """Each subtitle, or speaker, is a segment."""
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
            self.add(with_breaks(self.text[start:end]), start, end)
