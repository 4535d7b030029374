"""XLIFF, the form in which translators exchange texts: versions 1.2 and 2."""

import itertools
import re

from keras_transformers.text.files.parts import Mark, Parts, Segment, with_breaks
from keras_transformers.text.files.xml import Piece, XmlFile

PAIRS = frozenset(["g", "mrk", "pc"])
UNITS = frozenset(["trans-unit", "segment"])
_NOT_TRANSLATED = 'in translate="no"'


class XliffFile(XmlFile):
    """XLIFF 1.2 or 2: units whose `target` is empty or not there get one.

    States and other attributes stay as they are, for a person to set.

    Raises:
        ValueError: If the file is damaged, or of version 2 without `trgLang`, which it must have.

    Example:
    >>> from keras_transformers.text.files import XliffFile
    >>> unit = '<trans-unit id="1"><source>Open</source></trans-unit>'
    >>> file = XliffFile(f'<xliff version="1.2">{unit}</xliff>'.encode())
    >>> print(file.rebuilt([("Auf",)]).decode()[21:])
    <trans-unit id="1"><source>Open</source><target>Auf</target></trans-unit></xliff>
    """

    suffixes = (".xlf", ".xliff", ".sdlxliff")

    def scan_pieces(self, found: list[Piece]) -> None:
        """Each unit, or segment of one, is a segment."""
        root = next((piece for piece in found if piece.kind == "start"), None)
        if root is None or root.name != "xliff":
            raise self.damaged(root.start if root else 0, "must be <xliff>.")
        if root.attributes.get("version", "1")[0] == "2" and "trgLang" not in root.attributes:
            raise self.damaged(root.start, "<xliff> must have the attribute trgLang.")
        self._around: dict[int, tuple[str, str]] = {}
        translated = [True]  # of the elements that are open
        at = 0
        while at < len(found):
            piece = found[at]
            if piece.kind == "start":
                told = piece.attributes.get("translate")
                translated.append(translated[-1] if told is None else told == "yes")
                if piece.name in UNITS:
                    end = _end(found, at)
                    self._unit(found[at + 1 : end], translated.pop())
                    at = end
            elif piece.kind == "end":
                translated.pop()
            at += 1

    def written(self, parts: Parts, segment: Segment) -> str:
        """The content of a target, or the whole of one that was not there."""
        before, behind = self._around.get(segment.start, ("", ""))
        return before + super().written(parts, segment) + behind

    def _unit(self, inside: list[Piece], translated: bool) -> None:
        spans: dict[str, tuple[int, int]] = {}
        at = 0
        while at < len(inside):
            piece = inside[at]
            end = _end(inside, at) if piece.kind == "start" else at
            if piece.kind in ("start", "empty"):
                spans.setdefault(piece.name, (at, end))
            at = end + 1
        source = spans.get("seg-source") or spans.get("source")
        if source is None:
            where = inside[0].start if inside else 0
            raise self.damaged(where, "a unit must have a <source>.")
        content = inside[source[0] + 1 : source[1]]
        escapes: dict[str, str] = {}
        parts = self._parts(content, escapes)
        if not translated:
            self.left_out[_NOT_TRANSLATED] += 1
            return
        present, start, end = "", inside[source[1]].end, inside[source[1]].end
        name = f"{inside[source[0]].prefix}target"
        if target := spans.get("target"):
            first, last = inside[target[0]], inside[target[1]]
            start, end = (first.end, last.start) if first is not last else (first.start, first.end)
            old = self._parts(inside[target[0] + 1 : target[1]], {})
            present = "".join(part for part in old if isinstance(part, str)).strip()
            if present and not self.again:
                self.left_out["already translated"] += 1
                return
            if first is last:
                raw = self.text[start:end]
                self._around[start] = (re.sub(r"\s*/>\Z", ">", raw), f"</{name}>")
        else:
            begin = inside[source[0]].start
            blank = re.search(r"(?:\r?\n)?[ \t]*\Z", self.text[:begin])
            self._around[start] = ((blank[0] if blank else "") + f"<{name}>", f"</{name}>")
        self.add(parts, start, end, escapes, present)

    def _parts(self, content: list[Piece], escapes: dict[str, str]) -> list[str | Mark]:
        """Texts and marks of what stands in a source."""
        parts: list[str | Mark] = []
        numbers, opened = itertools.count(1), []  # type: itertools.count[int], list[int]
        at = 0
        while at < len(content):
            piece = content[at]
            raw = self.text[piece.start : piece.end]
            if piece.kind == "text":
                for part in with_breaks(raw):
                    parts += self.texts(part, escapes) if isinstance(part, str) else [part]
            elif piece.kind == "start" and piece.name in PAIRS:
                opened.append(next(numbers))
                parts.append(Mark(raw, "open", name="g", pair=opened[-1]))
            elif piece.kind == "end" and opened:
                parts.append(Mark(raw, "close", name="g", pair=opened.pop()))
            elif piece.kind == "start":
                at = _end(content, at)
                parts.append(Mark(self.text[piece.start : content[at].end]))
            else:
                self.left_out["in CDATA"] += piece.kind == "data"
                parts.append(Mark(raw, "soft" if piece.kind == "other" else "alone"))
            at += 1
        return parts


def _end(pieces: list[Piece], at: int) -> int:
    """The number of the piece that ends the element that begins at a number."""
    depth = 0
    for i in range(at, len(pieces)):
        depth += {"start": 1, "end": -1}.get(pieces[i].kind, 0)
        if not depth:
            return i
    raise AssertionError("the XML is well formed")
