"""Plain text, and subtitles (SRT)."""

import re

from keras_transformers.text.files.parts import with_breaks
from keras_transformers.text.files.text_file import TextFile

WRAPPED = 45  # characters of a line whose sentence may go on in the next
_ITEM = re.compile(r"\s*(?:[-+*\u2022>#|]|\(?\w{1,3}[.)])\s")
_TIMES = re.compile(r"\s*-?\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*-?\d+:\d\d:\d\d[,.]\d{1,3}(?:\s.*)?\Z")
_LINE = re.compile(r"[^\n]*\n?")


class PlainText(TextFile):
    r"""Text without markup. A line ends its sentence unless it is long and the next goes on.

    Example:
    >>> from keras_transformers.text.files import PlainText
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
    >>> from keras_transformers.text.files import Subtitles
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
