"""Markdown: paragraphs, headings, cells of tables, and HTML between them."""

import bisect
import re
from collections.abc import Callable
from typing import Any

from keras_transformers.text.files.html import HtmlFile
from keras_transformers.text.files.inline_markdown import Inline, parser
from keras_transformers.text.files.parts import Segment
from keras_transformers.text.files.text_file import TextFile

_FRONT_MATTER = re.compile(r"\ufeff?(---|\+\+\+)[ \t]*\r?\n(.*?\n)?\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# A first line of YAML or TOML; text between two horizontal rules has none.
_SETTING = re.compile(r"\s*(?:#.*\n\s*)*(?:[\w\"'.-]+\s*[:=](?:\s|\Z)|\[{1,2}[\w.-]+\]|- )")
# Lines that stand for blocks in dialects of Markdown: admonitions, directives, modules of MDX.
_DIALECT = re.compile(
    r"(?:!!!|\?\?\?\+?)\s+\w+|:{3,}|import\s+(?:[^\n]+\s+from\s+)?[\"'][^\"'\n]+[\"'];?\s*(?:\n|\Z)"
    r"|export\s+(?:const|let|var|default|function)\b|\$\$"
)
_ACTIVE = frozenset("\\`*_[]<&~|")  # what may be markup wherever it stands
_PIPE = re.compile(r"(?<!\\)\|")
_MARKUP = re.compile(r"[\\`*_\[\]<&\n]")


class MarkdownFile(TextFile):
    r"""Markdown as CommonMark says it, with tables. Code, links and front matter stay.

    HTML between paragraphs is read as HTML where no other markup is around it.

    Raises:
        ImportError: If markdown-it-py is not installed.

    Example:
    >>> from keras_transformers.text.files import MarkdownFile  # doctest: +SKIP
    >>> file = MarkdownFile(b"# Title\n\nOpen the **door**.\n")  # doctest: +SKIP
    >>> [segment.plain for segment in file.segments]  # doctest: +SKIP
    ['Title', 'Open the door.']
    """

    suffixes = (".md", ".markdown")

    def scan(self) -> None:
        """Each inline token is a segment, and each description of an image."""
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
        """Whether a text has the same blocks, links and code, in the same order."""
        if text[: self._begin] != self.text[: self._begin]:
            return False
        return _structure(parser().parse(text[self._begin :])) == self._structure

    def escaped(self, text: str, segment: Segment) -> str:
        """With a backslash before what would be markup and was none in the segment."""
        if segment.start in self._html:
            return self._html[segment.start].escaped(text, segment)
        return "".join(
            segment.escapes.get(each, f"\\{each}" if each in _ACTIVE else each) for each in text
        )

    def _inline(self, token: Any, heading: str, cell: int) -> None:
        try:
            where, start, end = self._located(token, heading, cell)
            found = Inline(token, where, self.text)
        except ValueError:
            self.left_out["that could not be located"] += 1
            return
        self.add(found.parts, start, end, found.escapes)
        for first, last in found.images:
            raw = self.text[first:last]
            if _MARKUP.search(raw):
                self.left_out["image descriptions with markup"] += 1
            else:
                self.add([raw], first, last, {each: each for each in raw}, inside=True)

    def _located(
        self, token: Any, heading: str, cell: int
    ) -> tuple[Callable[[int], int], int, int]:
        """A function from positions in the content to the file's; where it starts and ends."""
        first = token.map[0]
        starts, offsets = [], [0]
        for i, line in enumerate(token.content.split("\n")):
            at, whole = self._line(first + i)
            if cell >= 0:
                column = _of_cell(whole, cell)
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
        for each in block.moved(start):
            self._html[each.start] = block
            self.segments.append(each)


def _of_cell(line: str, cell: int) -> int:
    """Where the content of a cell of a line begins."""
    bounds = [match.start() for match in _PIPE.finditer(line)]
    if not bounds or line[: bounds[0]].strip(" \t>"):
        bounds = [-1, *bounds]  # the first cell has no pipe before it
    if cell >= len(bounds):
        raise ValueError(f"cell {cell} of {line!r}")
    begin = bounds[cell] + 1
    return begin + len(line[begin:]) - len(line[begin:].lstrip())


def _structure(tokens: list[Any]) -> list[Any]:
    """What must stay: blocks in their order, and of each its markup, links and code."""
    found: list[Any] = []
    for token in tokens:
        kept = token.content if token.type in ("fence", "code_block") else ""
        found.append((token.type, token.level, token.tag, token.markup, kept))
        inside = [
            (
                each.type,
                each.markup,
                str(each.attrs.get("href", "")),
                str(each.attrs.get("src", "")),
            )
            + ((each.content,) if each.type in ("code_inline", "html_inline", "formula") else ())
            for each in token.children or []
            if each.type not in ("text", "text_special", "softbreak")
        ]
        found.append(sorted(inside))
    return found
