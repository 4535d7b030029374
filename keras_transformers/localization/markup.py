"""HTML and Markdown: blocks of text with inline markup.

Of HTML, the attributes that people read are translated, too. Of Markdown, markdown-it-py does not
say where inline markup stands; `Inline` finds it.
"""

import bisect
import collections
import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import Any

from keras_transformers.localization.marks import Mark, Segment, escape_markup, split_breaks
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

_TAG_START = re.compile(r"</?[A-Za-z]")  # the beginning of one


@dataclasses.dataclass(frozen=True)
class _Event:
    kind: str  # "start", "end", "text", "reference", "comment", or "other"
    name: str
    attributes: dict[str, str | None]
    start: int
    end: int = 0


class _Reader(HTMLParser):
    """Events of Python's parser, with their positions."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._starts: list[_Event] = []  # without their ends
        self.feed(text)
        self.close()
        ends = [*(event.start for event in self._starts[1:]), len(text)]
        pairs = zip(self._starts, ends, strict=False)
        self.events = [dataclasses.replace(event, end=end) for event, end in pairs]

    def _add(self, kind: str, name: str = "", attributes: Sequence[Any] = ()) -> None:
        line, column = self.getpos()
        start = self._lines[line - 1] + column
        self._starts.append(_Event(kind, name, dict(attributes), start))

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
    """HTML. Code, scripts, styles and elements with `translate="no"` stay as they are.

    Example:
    >>> from keras_transformers.localization import HtmlFile
    >>> file = HtmlFile(b'<h1 title="Now">Open <b>it</b>.</h1><p>Run <code>ls</code>.')
    >>> [segment.plain for segment in file.segments]
    ['Now', 'Open it.', 'Run .']
    """

    suffixes = (".html", ".htm", ".xhtml")

    def encoding(self, data: bytes) -> str:
        """Returns the encoding that the first 1,024 bytes name, or UTF-8."""
        match = _CHARSET.search(data[:1024])
        if match is None or data[:3] == b"\xef\xbb\xbf":
            return super().encoding(data)
        return match[1].decode().lower()

    def scan(self) -> None:
        """Adds each run of text and inline elements as a segment."""
        self._check_end()
        events = _Reader(self.text).events
        self._check(events)
        self.structure = _tags(events)
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
        """Returns True if a text has the same tags."""
        return _tags(_Reader(text).events) == self.structure

    def escaped(self, text: str, segment: Segment) -> str:
        """Returns a text with references for markup, and for characters that had them before."""
        return escape_markup(text, segment.escapes)

    def encoded(self, text: str) -> bytes:
        """Returns the bytes, with references for characters that the encoding lacks."""
        return text.encode(self.codec, "xmlcharrefreplace")

    def moved(self, by: int) -> list[Segment]:
        """Returns the segments of a file in which this one begins at a position."""

        def part_moved(part: str | Mark) -> str | Mark:
            if isinstance(part, str) or part.span is None:
                return part
            return dataclasses.replace(part, span=(part.span[0] + by, part.span[1] + by))

        return [
            dataclasses.replace(
                segment,
                parts=tuple(map(part_moved, segment.parts)),
                start=segment.start + by,
                end=segment.end + by,
            )
            for segment in self.segments
        ]

    def _check_end(self) -> None:
        """Raises ValueError if the end of the file is inside a tag or a comment.

        Python's parser would look for the end from each of them on, in quadratic time.
        """
        if tag := _TAG_START.search(self.text, self.text.rfind(">") + 1):
            name = self.text[tag.start() : tag.start() + 20]
            raise self.damaged(tag.start(), f"the end of {name!r} is missing.")
        comment = self.text.rfind("<!--")
        if comment > max(self.text.rfind("-->"), self.text.rfind("</script>")):
            raise self.damaged(comment, "the end of a comment is missing.")

    def _check(self, events: list[_Event]) -> None:
        """Raises ValueError if the end of the file is inside a script."""
        opened: list[_Event] = []
        for event in events:
            if event.name in ("script", "style"):
                opened = [event] if event.kind == "start" else []
        if opened:
            raise self.damaged(opened[0].start, f"the end of <{opened[0].name}> is missing.")

    def _take(self, events: list[_Event], at: int) -> int:
        """Takes an event, or an element that is not translated; returns the next one's number."""
        event = events[at]
        span = (event.start, event.end)
        raw = self.text[event.start : event.end]
        if event.kind == "text":
            for part in split_breaks(raw):
                self._append(part, event)
            for character in set(raw) - set("<&"):
                self._escapes.setdefault(character, character)
        elif event.kind == "reference":
            text = html.unescape(raw)
            if len(text) == 1:
                self._escapes[text] = raw
            self._append(text if len(text) == 1 else Mark(raw), event)
        elif event.kind == "comment":
            self._append(Mark(raw, "soft"), event)
        elif event.kind == "start":
            return self._element(events, at)
        elif event.kind == "end" and event.name in PAIRS:
            opened = self._open.get(event.name)
            number = opened.pop() if opened else next(self._pairs)
            self._append(Mark(raw, "close", name=event.name, pair=number, span=span), event)
        else:
            self._flush()
        return at + 1

    def _element(self, events: list[_Event], at: int) -> int:
        event = events[at]
        name, raw = event.name, self.text[event.start : event.end]
        span = (event.start, event.end)
        classes = (event.attributes.get("class") or "").split()
        excluded = event.attributes.get("translate") == "no" or "notranslate" in classes
        if name not in VOID and (excluded or name in OPAQUE | SKIPPED) and not raw.endswith("/>"):
            end = _end_of(events, at)
            last = events[end - 1].end
            inside = html.unescape(re.sub(r"<[^>]*>", "", self.text[event.start : last]))
            if name in OPAQUE | PAIRS:
                is_line = inside.strip() == inside and "\n" not in inside
                mark = Mark(self.text[event.start : last], shown=is_line and inside or None)
                self._append(mark, dataclasses.replace(event, end=last))
            else:
                self._flush()
                reason = 'in translate="no"' if excluded else f"in <{name}>"
                self.left_out[reason] += bool(inside.strip())
            return end
        self._attributes(event)
        if name in PAIRS:
            pair = next(self._pairs)
            self._open.setdefault(name, []).append(pair)
            self._append(Mark(raw, "open", name=name, pair=pair, span=span), event)
        elif name in ALONE:
            self._append(Mark(raw, span=span), event)
        else:
            self._flush()
        return at + 1

    def _append(self, part: str | Mark, event: _Event) -> None:
        self._run.append(part)
        self._span = [self._span[0] if self._span else event.start, event.end]

    def _flush(self) -> None:
        if self._run:
            self.add(self._run, self._span[0], self._span[1], self._escapes)
        self._run, self._span, self._escapes, self._open = [], [], {}, {}

    def _attributes(self, event: _Event) -> None:
        names = list(ATTRIBUTES)
        meta_name = event.attributes.get("name") or event.attributes.get("property") or ""
        if event.name == "meta" and meta_name.lower() in _DESCRIPTIONS:
            names.append("content")
        if event.name == "input" and event.attributes.get("type") in ("submit", "button", "reset"):
            names.append("value")
        raw = self.text[event.start : event.end]
        for name in names:
            if not (event.attributes.get(name) or "").strip():
                continue
            match = re.search(rf"(?i)\s{name}\s*=\s*(\"[^\"]*\"|'[^']*')", raw)
            if not match:
                self.left_out["attributes without quotes"] += 1
                continue
            start = event.start + match.start(1) + 1
            quote, value = match[1][0], match[1][1:-1]
            escapes = {quote: "&quot;" if quote == '"' else "&#39;"}
            parts = split_breaks(html.unescape(value))
            self.add(parts, start, start + len(value), escapes, inside=True)


def _end_of(events: list[_Event], at: int) -> int:
    """Returns the number of the event after the end of the element that begins at a number."""
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


def _tags(events: list[_Event]) -> collections.Counter[tuple[str, str]]:
    return collections.Counter((event.kind, event.name) for event in events if event.name)


_FRONT_MATTER = re.compile(r"\ufeff?(---|\+\+\+)[ \t]*\r?\n(.*?\n)?\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# A first line of YAML or TOML; text between two horizontal rules has none.
_SETTING = re.compile(r"\s*(?:#.*\n\s*)*(?:[\w\"'.-]+\s*[:=](?:\s|\Z)|\[{1,2}[\w.-]+\]|- )")
# Lines that stand for blocks in dialects of Markdown: admonitions, directives, modules of MDX.
_DIALECT = re.compile(
    r"(?:!!!|\?\?\?\+?)\s+\w+|:{3,}|import\s+(?:[^\n]+\s+from\s+)?[\"'][^\"'\n]+[\"'];?\s*(?:\n|\Z)"
    r"|export\s+(?:const|let|var|default|function)\b|\$\$"
)
# Characters that may be markup wherever they stand, and how they are written if they are none.
_ACTIVE = {character: f"\\{character}" for character in "\\`*_[]<&~|"}
_PIPE = re.compile(r"(?<!\\)\|")
_MARKUP = re.compile(r"[\\`*_\[\]<&\n]")


class MarkdownFile(TextFile):
    r"""Markdown of CommonMark, with tables. Code, links and front matter stay as they are.

    HTML between paragraphs is read as HTML if no other markup is around it.

    Raises:
        ImportError: If markdown-it-py is not installed.

    Example:
    >>> from keras_transformers.localization import MarkdownFile  # doctest: +SKIP
    >>> file = MarkdownFile(b"# Title\n\nOpen the **door**.\n")  # doctest: +SKIP
    >>> [segment.plain for segment in file.segments]  # doctest: +SKIP
    ['Title', 'Open the door.']
    """

    suffixes = (".md", ".markdown")

    def scan(self) -> None:
        """Adds each inline token, and each description of an image, as a segment."""
        self._html: dict[int, HtmlFile] = {}
        head = _FRONT_MATTER.match(self.text)
        if head and not _SETTING.match(head[2] or ""):
            head = None
        self._begin = head.end() if head else int(self.text[:1] == "\ufeff")
        if head:
            self.left_out["front matter"] += 1
        body = self.text[self._begin :]
        ends = [match.end() for match in re.finditer(r"\r\n|\n|\r", body)]
        # Where each line begins, and the end.
        self._lines = [self._begin + at for at in (0, *ends, len(body))]
        self._tokens = parser().parse(body)
        self._structure = _structure(self._tokens)
        heading, cell = "", -1
        for token in self._tokens:
            if token.type in ("tr_open", "th_open", "td_open"):
                cell = -1 if token.type == "tr_open" else cell + 1
            elif token.type in ("tr_close", "heading_close"):
                heading, cell = "", -1
            elif token.type == "heading_open":
                heading = token.markup if token.markup.startswith("#") else ""
            elif token.type == "html_block":
                self._html_block(token)
            elif token.type in ("fence", "code_block"):
                self.left_out["in code blocks"] += 1
            elif token.type == "inline" and _DIALECT.match(token.content):
                self.left_out["directives, modules and formulas"] += 1
            elif token.type == "inline" and token.content.strip():
                self._inline(token, heading, cell)

    def same_structure(self, text: str) -> bool:
        """Returns True if a text has the same blocks, links and code, in the same order."""
        if text[: self._begin] != self.text[: self._begin]:
            return False
        return _structure(parser().parse(text[self._begin :])) == self._structure

    def escaped(self, text: str, segment: Segment) -> str:
        """Returns a text with a backslash before markup that was none in the segment."""
        if segment.start in self._html:
            return self._html[segment.start].escaped(text, segment)
        forms = _ACTIVE | segment.escapes
        return "".join(forms.get(character, character) for character in text)

    def _inline(self, token: Any, heading: str, cell: int) -> None:
        try:
            where, start, end = self._located(token, heading, cell)
            inline = Inline(token, where, self.text)
        except ValueError:
            self.left_out["that could not be located"] += 1
            return
        self.add(inline.parts, start, end, inline.escapes)
        for first, last in inline.images:
            raw = self.text[first:last]
            if _MARKUP.search(raw):
                self.left_out["image descriptions with markup"] += 1
            else:
                self.add([raw], first, last, dict(zip(raw, raw, strict=True)), inside=True)

    def _located(
        self, token: Any, heading: str, cell: int
    ) -> tuple[Callable[[int], int], int, int]:
        """Returns a function from positions in the content to the file's, its start and its end."""
        first = token.map[0]
        starts, offsets = [], [0]
        for i, line in enumerate(token.content.split("\n")):
            at, whole = self._line(first + i)
            if cell >= 0:
                column = _cell_start(whole, cell)
            elif heading:
                hashes = re.search(rf"(?<![^\s>]){heading}[ \t]+", whole)
                column = hashes.end() if hashes else 0
            else:
                column = len(whole.rstrip()) - len(line.rstrip())
            if column < 0 or whole[column : column + len(line)] != line:
                raise ValueError(f"line {first + i} does not hold {line!r}")
            starts.append(at + column)
            offsets.append(offsets[-1] + len(line) + 1)

        def where(position: int) -> int:
            line = bisect.bisect_right(offsets, position) - 1
            return int(starts[line] + position - offsets[line])

        return where, starts[0], where(len(token.content) - 1) + 1

    def _line(self, number: int) -> tuple[int, str]:
        start, end = self._lines[number], self._lines[number + 1]
        return start, self.text[start:end].rstrip("\r\n")

    def _html_block(self, token: Any) -> None:
        start, end = (self._lines[i] for i in token.map)
        end = min(end, len(self.text))
        raw = self.text[start:end]
        try:
            if re.sub(r"\r\n?", "\n", raw).strip() != token.content.strip():
                raise ValueError("it is in a quotation or a list")
            block = HtmlFile(raw.encode(), self.name)
        except ValueError:
            self.left_out["HTML blocks"] += 1
            return
        self.left_out += block.left_out
        for segment in block.moved(start):
            self._html[segment.start] = block
            self.segments.append(segment)


def _cell_start(line: str, cell: int) -> int:
    """Returns the position in a line at which the content of a cell begins."""
    bounds = [match.start() for match in _PIPE.finditer(line)]
    if not bounds or line[: bounds[0]].strip(" \t>"):
        bounds = [-1, *bounds]  # the first cell has no pipe before it
    if cell >= len(bounds):
        raise ValueError(f"cell {cell} of {line!r}")
    begin = bounds[cell] + 1
    return begin + len(line[begin:]) - len(line[begin:].lstrip())


def _structure(tokens: list[Any]) -> list[Any]:
    """Returns the structure: the blocks in their order, with their markup, links and code."""
    structure: list[Any] = []
    for token in tokens:
        code = token.content if token.type in ("fence", "code_block") else ""
        structure.append((token.type, token.level, token.tag, token.markup, code))
        inside = []
        for child in token.children or []:
            if child.type in ("text", "text_special", "softbreak"):
                continue
            code = child.content if child.type in ("code_inline", "html_inline", "formula") else ""
            links = [str(child.attrs.get(name, "")) for name in ("href", "src")]
            inside.append((child.type, child.markup, *links, code))
        structure.append(sorted(inside))
    return structure


_SPAN = "span"
# A footnote, a box to tick, the kind of an alert.
_FIXED = re.compile(r"\[\^[^\]\[\s]+\]:?|\A\[[ xX]\](?=\s)|\A\[![A-Z]+\]")
_FORMULA = re.compile(r"\$\$[^$\n]+\$\$|\$(?=[^\s$])[^$\n]*[^\s$]\$(?!\d)")
_INLINE_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>\Z", re.DOTALL)
_VOID = frozenset(["br", "img", "hr", "input", "wbr"])
_PAIRS = {"strong": "b", "em": "i", "s": "s", "link": "a"}


@functools.cache
def parser() -> Any:
    """Returns a parser whose inline tokens have their positions.

    Raises:
        ImportError: If markdown-it-py is not installed.
    """
    try:
        from markdown_it import MarkdownIt, rules_inline
    except ImportError:
        raise ImportError(
            "MarkdownFile: Markdown is read by markdown-it-py: "
            "pip install 'keras_transformers[documents]'"
        ) from None
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    for name, rule in {
        "link": rules_inline.link,
        "image": rules_inline.image,
        "autolink": rules_inline.autolink,
        "html_inline": rules_inline.html_inline,
        "backticks": rules_inline.backtick,
        "entity": rules_inline.entity,
        "escape": rules_inline.escape,
        "newline": rules_inline.newline,
    }.items():
        parser.inline.ruler.at(name, functools.partial(_located, name, rule))
    parser.inline.ruler.before("escape", "formula", _formula)
    return parser


def _formula(state: Any, silent: bool) -> bool:
    """Reads a formula between dollars, but not two prices; a rule of the parser."""
    match = _FORMULA.match(state.src, state.pos)
    if not match:
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = match[0]
        token.meta[_SPAN] = match.span()
    state.pos = match.end()
    return True


def _located(name: str, rule: Any, state: Any, silent: bool) -> bool:
    """Adds positions to the tokens of a rule; a rule of the parser."""
    start, number = state.pos, len(state.tokens)
    label = 0
    if not silent and name in ("link", "image"):
        offset = name == "image"
        if state.src[start : start + 1 + offset] == ("![" if offset else "["):
            label = state.md.helpers.parseLinkLabel(state, start + offset, not offset)
    if not rule(state, silent):
        return False
    tokens = [token for token in state.tokens[number:] if _SPAN not in token.meta]
    if silent or not tokens:
        return True
    if name in ("link", "autolink"):
        opened = next(token for token in tokens if token.type == "link_open")
        opened.meta[_SPAN] = (start, start + 1 if name == "link" else state.pos)
        if name == "link":
            tokens[-1].meta[_SPAN] = (label, state.pos)
    elif tokens[-1].type != "text":
        tokens[-1].meta[_SPAN] = (start, state.pos)
        tokens[-1].meta["label"] = (start + 2, label)
    return True


class Inline:
    """The parts of a line of Markdown, or of several, and the forms of its characters.

    Args:
        token: The token of type `inline`.
        where: Function from a position in the token's content to the position in the file.
        text: The file's text.

    Attributes:
        parts: List of texts and `Mark`s.
        escapes: Dict of character -> its form in the file.
        images: Spans in the file of descriptions of images.

    Raises:
        ValueError: If a token cannot be located.
    """

    def __init__(self, token: Any, where: Any, text: str) -> None:
        self.parts: list[str | Mark] = []
        self.escapes: dict[str, str] = {}
        self.images: list[tuple[int, int]] = []
        self._source, self._where, self._text = token.content, where, text
        self._at, self._pairs = 0, 0
        self._open: list[tuple[str, int]] = []
        children = list(token.children or [])
        while children:
            self._take(children.pop(0), children)
        if self._source[self._at :].strip():
            raise ValueError("what follows the last token")

    def _span(self, start: int, end: int) -> tuple[int, int]:
        """Returns the span in the file of a span in the content."""
        if end <= start:
            return 0, 0
        if self._source[end - 1] == "\n" and end < len(self._source):
            return self._where(start), self._where(end)  # with what the next line begins with
        return self._where(start), self._where(end - 1) + 1

    def _mark(self, start: int, end: int, kind: Any = "alone", **settings: Any) -> None:
        span = self._span(start, end)
        self.parts.append(Mark(self._text[span[0] : span[1]], kind, span=span, **settings))
        self._at = end

    def _take(self, token: Any, following: list[Any]) -> None:
        start, end = token.meta.get(_SPAN, (self._at, self._at))
        kind = token.type
        if kind == "text":
            self._words(token.content)
        elif kind == "text_special":
            self._check(token.markup)
            self.escapes[token.content] = token.markup
            self.parts.append(token.content)
            self._at += len(token.markup)
        elif kind in ("softbreak", "hardbreak"):
            self._mark(self._at, end, "break" if kind == "softbreak" else "end")
        elif kind == "formula":
            self._mark(start, end, shown=token.content)
        elif kind == "code_inline":
            self._mark(start, end, shown=token.content.strip() or None)
        elif kind == "image":
            first, last = token.meta["label"]
            if last > first:
                self.images.append(self._span(first, last))
            self._mark(start, end)
        elif kind == "html_inline":
            self._tag(start, end)
        elif token.markup == "autolink":
            del following[:2]
            self._mark(start, end, shown=self._source[start + 1 : end - 1])
        else:
            name, _, side = kind.partition("_")
            if _SPAN not in token.meta:
                self._check(token.markup)
                end = start + len(token.markup)
            self._pair(_PAIRS[name], side, start, end)

    def _words(self, text: str) -> None:
        self._check(text)
        at = 0
        for match in _FIXED.finditer(text):
            self.parts.append(text[at : match.start()])
            start = self._at
            self._mark(start + match.start() - at, start + match.end() - at, shown=match[0])
            at = match.end()
        self.parts.append(text[at:])
        self._at += len(text) - at
        for character in text:
            self.escapes.setdefault(character, character)

    def _check(self, raw: str) -> None:
        if not self._source.startswith(raw, self._at):
            raise ValueError(f"{raw!r} is not at {self._at}")

    def _tag(self, start: int, end: int) -> None:
        tag = _INLINE_TAG.match(self._source[start:end])
        if not tag or tag[3] or tag[2].lower() in _VOID:
            is_break = tag and tag[2].lower() == "br"
            self._mark(start, end, "end" if is_break else "alone" if tag else "soft")
        else:
            self._pair(tag[2].lower(), "close" if tag[1] else "open", start, end)

    def _pair(self, name: str, side: str, start: int, end: int) -> None:
        if side == "open":
            self._pairs += 1
            pair = self._pairs
            self._open.append((name, pair))
        else:
            pair = next((pair for opened, pair in self._open[::-1] if opened == name), 0)
            if not pair:
                self._pairs += 1
            self._open = [entry for entry in self._open if entry[1] != pair]
        self._mark(start, end, side, name=name, pair=pair or self._pairs)
