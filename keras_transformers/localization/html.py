"""HTML: blocks of text with inline elements, and attributes that are read."""

import collections
import dataclasses
import html
import itertools
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from keras_transformers.localization.marks import Mark, Segment, with_breaks
from keras_transformers.localization.text_file import TextFile

PAIRS = frozenset(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike "
    "strong sub sup time tt u".split()
)
ALONE = frozenset(["img", "wbr", "input", "embed"])
OPAQUE = frozenset(["code", "kbd", "samp", "var"])  # in a line, and not translated
SKIPPED = frozenset(["script", "style", "pre", "textarea", "svg", "math", "template", "xmp"])
VOID = ALONE | frozenset("area base br col hr link meta param source track".split())
IMPLIED = frozenset("p li dt dd td th tr option".split())  # which another of theirs ends
ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_DESCRIPTIONS = ("description", "og:title", "og:description", "twitter:title")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)

_TAG = re.compile(r"</?[A-Za-z]")  # the beginning of one


@dataclasses.dataclass(frozen=True)
class _Event:
    kind: str  # "start", "end", "text", "reference", "comment", or "other"
    name: str
    attributes: dict[str, str | None]
    start: int
    end: int = 0


class _Reader(HTMLParser):
    """Events with their positions."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._found: list[_Event] = []
        self.feed(text)
        self.close()
        ends = [*(each.start for each in self._found[1:]), len(text)]
        pairs = zip(self._found, ends, strict=False)
        self.events = [dataclasses.replace(each, end=end) for each, end in pairs]

    def _add(self, kind: str, name: str = "", attributes: Sequence[Any] = ()) -> None:
        line, column = self.getpos()
        start = self._lines[line - 1] + column
        self._found.append(_Event(kind, name, dict(attributes), start))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("reference")

    def handle_charref(self, name: str) -> None:
        self._add("reference")

    def handle_comment(self, data: str) -> None:
        self._add("comment")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        self._add("other")


class HtmlFile(TextFile):
    """HTML. Code, scripts, styles and what says `translate="no"` stay as they are.

    Example:
    >>> from keras_transformers.localization import HtmlFile
    >>> file = HtmlFile(b'<h1 title="Now">Open <b>it</b>.</h1><p>Run <code>ls</code>.')
    >>> [segment.plain for segment in file.segments]
    ['Now', 'Open it.', 'Run .']
    """

    suffixes = (".html", ".htm", ".xhtml")

    def encoding(self, data: bytes) -> str:
        """What the file says in its first 1,024 bytes; else UTF-8."""
        found = _CHARSET.search(data[:1024])
        marked = data[:3] == b"\xef\xbb\xbf" or not found
        return super().encoding(data) if marked or not found else found[1].decode().lower()

    def scan(self) -> None:
        """Each run of text and inline elements is a segment."""
        self._check_end()
        events = _Reader(self.text).events
        self._check(events)
        self.structure = _tags(events, self.text)
        self._run: list[str | Mark] = []
        self._escapes: dict[str, str] = {}
        self._span: list[int] = []
        self._open: dict[str, list[int]] = {}  # pairs of each name, the last one opened last
        self._pairs = itertools.count(1)
        at = 0
        while at < len(events):
            at = self._take(events, at)
        self._flush()

    def same_structure(self, text: str) -> bool:
        """Whether a text has the same tags."""
        return _tags(_Reader(text).events, text) == self.structure

    def escaped(self, text: str, segment: Segment) -> str:
        """With references for what is markup, and for what had some in the segment."""
        return "".join(
            segment.escapes.get(each) or (html.escape(each, False) if each in "<>&" else each)
            for each in text
        )

    def encoded(self, text: str) -> bytes:
        """The bytes; what the encoding lacks has references."""
        return text.encode(self.codec, "xmlcharrefreplace")

    def moved(self, by: int) -> list[Segment]:
        """The segments in a file in which this one begins at a position."""

        def part_moved(part: str | Mark) -> str | Mark:
            if isinstance(part, str) or part.span is None:
                return part
            return dataclasses.replace(part, span=(part.span[0] + by, part.span[1] + by))

        return [
            dataclasses.replace(
                each,
                parts=tuple(map(part_moved, each.parts)),
                start=each.start + by,
                end=each.end + by,
            )
            for each in self.segments
        ]

    def _check_end(self) -> None:
        """ValueError where the end of the file is inside a tag or a comment.

        Python's parser would look for the end from each of them on, in quadratic time.
        """
        if tag := _TAG.search(self.text, self.text.rfind(">") + 1):
            name = self.text[tag.start() : tag.start() + 20]
            raise self.damaged(tag.start(), f"the end of {name!r} is missing.")
        comment = self.text.rfind("<!--")
        if comment > max(self.text.rfind("-->"), self.text.rfind("</script>")):
            raise self.damaged(comment, "the end of a comment is missing.")

    def _check(self, events: list[_Event]) -> None:
        """ValueError where the end of the file is inside a script."""
        opened: list[_Event] = []
        for each in events:
            if each.name in ("script", "style"):
                opened = [each] if each.kind == "start" else []
        if opened:
            raise self.damaged(opened[0].start, f"the end of <{opened[0].name}> is missing.")

    def _take(self, events: list[_Event], at: int) -> int:
        """Takes an event, or a whole element that is not translated; the number of the next."""
        event = events[at]
        span = (event.start, event.end)
        raw = self.text[event.start : event.end]
        if event.kind == "text":
            for part in with_breaks(raw):
                self._put(part, event)
            for each in set(raw) - set("<&"):
                self._escapes.setdefault(each, each)
        elif event.kind == "reference":
            text = html.unescape(raw)
            for each in text[:1] if len(text) == 1 else "":
                self._escapes[each] = raw
            self._put(text if len(text) == 1 else Mark(raw), event)
        elif event.kind == "comment":
            self._put(Mark(raw, "soft"), event)
        elif event.kind == "start":
            return self._element(events, at)
        elif event.kind == "end" and event.name in PAIRS:
            opened = self._open.get(event.name)
            number = opened.pop() if opened else next(self._pairs)
            self._put(Mark(raw, "close", name=event.name, pair=number, span=span), event)
        else:
            self._flush()
        return at + 1

    def _element(self, events: list[_Event], at: int) -> int:
        event = events[at]
        name, raw = event.name, self.text[event.start : event.end]
        span = (event.start, event.end)
        classes = (event.attributes.get("class") or "").split()
        kept = event.attributes.get("translate") == "no" or "notranslate" in classes
        if name not in VOID and (kept or name in OPAQUE | SKIPPED) and not raw.endswith("/>"):
            end = _end_of(events, at)
            last = events[end - 1].end
            inside = html.unescape(re.sub(r"<[^>]*>", "", self.text[event.start : last]))
            if name in OPAQUE | PAIRS:
                shown = inside if inside.strip() == inside and "\n" not in inside else ""
                raw = self.text[event.start : last]
                self._put(Mark(raw, shown=shown or None), dataclasses.replace(event, end=last))
            else:
                self._flush()
                why = 'in translate="no"' if kept else f"in <{name}>"
                self.left_out[why] += bool(inside.strip())
            return end
        self._attributes(event)
        if name in PAIRS:
            pair = next(self._pairs)
            self._open.setdefault(name, []).append(pair)
            self._put(Mark(raw, "open", name=name, pair=pair, span=span), event)
        elif name in ALONE:
            self._put(Mark(raw, span=span), event)
        else:
            self._flush()
        return at + 1

    def _put(self, part: str | Mark, event: _Event) -> None:
        self._run.append(part)
        self._span = [self._span[0] if self._span else event.start, event.end]

    def _flush(self) -> None:
        if self._run:
            self.add(self._run, self._span[0], self._span[1], self._escapes)
        self._run, self._span, self._escapes, self._open = [], [], {}, {}

    def _attributes(self, event: _Event) -> None:
        names = list(ATTRIBUTES)
        told = event.attributes.get("name") or event.attributes.get("property") or ""
        if event.name == "meta" and told.lower() in _DESCRIPTIONS:
            names.append("content")
        if event.name == "input" and event.attributes.get("type") in ("submit", "button", "reset"):
            names.append("value")
        raw = self.text[event.start : event.end]
        for name in names:
            if not (event.attributes.get(name) or "").strip():
                continue
            found = re.search(rf"(?i)\s{name}\s*=\s*(\"[^\"]*\"|'[^']*')", raw)
            if not found:  # without quotes
                self.left_out["attributes without quotes"] += 1
                continue
            start = event.start + found.start(1) + 1
            value = found[1][1:-1]
            quote = "&quot;" if found[1][0] == '"' else "&#39;"
            escapes = {found[1][0]: quote}
            parts = with_breaks(html.unescape(value))
            self.add(parts, start, start + len(value), escapes, inside=True)


def _end_of(events: list[_Event], at: int) -> int:
    """The number of the event behind the end of the element that begins at a number."""
    name, depth = events[at].name, 0
    for i in range(at, len(events)):
        if events[i].name != name:
            continue
        if events[i].kind == "start":
            if depth and name in IMPLIED:
                return i
            depth += 1
        else:
            depth -= 1
        if not depth:
            return i + 1
    return len(events)


def _tags(events: list[_Event], text: str) -> collections.Counter[tuple[str, str]]:
    return collections.Counter((each.kind, each.name) for each in events if each.name)
