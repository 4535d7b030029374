"""Where the inline markup of Markdown stands, which markdown-it-py does not say."""

import functools
import re
from typing import Any

from keras_transformers.text.files.parts import Mark

_SPAN = "span"
# A footnote, a box to tick, the kind of an alert.
_KEPT = re.compile(r"\[\^[^\]\[\s]+\]:?|\A\[[ xX]\](?=\s)|\A\[![A-Z]+\]")
_FORMULA = re.compile(r"\$\$[^$\n]+\$\$|\$(?=[^\s$])[^$\n]*[^\s$]\$(?!\d)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>\Z", re.DOTALL)
_VOID = frozenset(["br", "img", "hr", "input", "wbr"])
_PAIRS = {"strong": "b", "em": "i", "s": "s", "link": "a"}


@functools.cache
def parser() -> Any:
    """A parser whose tokens of a line say where they stand in it.

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
    found = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
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
        found.inline.ruler.at(name, functools.partial(_located, name, rule))
    found.inline.ruler.before("escape", "formula", _formula)
    return found


def _formula(state: Any, silent: bool) -> bool:
    """A rule for formulas between dollars: two prices in a sentence are none."""
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
    """A rule that leaves the positions in the tokens that it has made."""
    start, number = state.pos, len(state.tokens)
    label = 0
    if not silent and name in ("link", "image"):
        offset = name == "image"
        if state.src[start : start + 1 + offset] == ("![" if offset else "["):
            label = state.md.helpers.parseLinkLabel(state, start + offset, not offset)
    if not rule(state, silent):
        return False
    made = [each for each in state.tokens[number:] if _SPAN not in each.meta]
    if silent or not made:
        return True
    if name == "link":
        opened = next(each for each in made if each.type == "link_open")
        opened.meta[_SPAN] = (start, start + 1)
        made[-1].meta[_SPAN] = (label, state.pos)
    elif name == "autolink":
        opened = next(each for each in made if each.type == "link_open")
        opened.meta[_SPAN] = (start, state.pos)
    elif made[-1].type != "text":
        made[-1].meta[_SPAN] = (start, state.pos)
        made[-1].meta["label"] = (start + 2, label)
    return True


class Inline:
    """The parts of a line of Markdown, or of several, and how its characters are written.

    Args:
        token: The token of type `inline`.
        where: Function that gives the position in the file of one in the token's content.
        text: The file's text.

    Attributes:
        parts: List of texts and `Mark`s.
        escapes: Dict of character -> how it is written here.
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
        """The span in the file of one in the content."""
        if end <= start:
            return 0, 0
        if self._source[end - 1] == "\n" and end < len(self._source):
            return self._where(start), self._where(end)  # with what the next line begins with
        return self._where(start), self._where(end - 1) + 1

    def _mark(self, start: int, end: int, kind: Any = "alone", **other: Any) -> None:
        span = self._span(start, end)
        self.parts.append(Mark(self._text[span[0] : span[1]], kind, span=span, **other))
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
        for match in _KEPT.finditer(text):
            self.parts.append(text[at : match.start()])
            start = self._at
            self._mark(start + match.start() - at, start + match.end() - at, shown=match[0])
            at = match.end()
        self.parts.append(text[at:])
        self._at += len(text) - at
        for each in text:
            self.escapes.setdefault(each, each)

    def _check(self, raw: str) -> None:
        if not self._source.startswith(raw, self._at):
            raise ValueError(f"{raw!r} is not at {self._at}")

    def _tag(self, start: int, end: int) -> None:
        tag = _TAG.match(self._source[start:end])
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
            self._open = [each for each in self._open if each[1] != pair]
        self._mark(start, end, side, name=name, pair=pair or self._pairs)
