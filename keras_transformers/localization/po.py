"""Messages of programs in gettext's form (PO)."""

import dataclasses
import gettext
import re
from collections.abc import Callable, Sequence

from keras_transformers.core.words import placeables
from keras_transformers.localization.marks import Parts, Segment, with_breaks
from keras_transformers.localization.text_file import TextFile

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
        return next((each for each in self.statements if each.keyword == keyword), None)


class PoFile(TextFile):
    r"""A PO file: messages that have no translation get one, in each form of a plural.

    A message that is flagged as fuzzy has a translation that somebody shall look at; it is
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
        """What the header says; else UTF-8."""
        found = _CHARSET.search(data)
        named = found[1].decode().lower() if found else "utf-8"
        return "utf-8" if named == "charset" else named  # a template's

    def scan(self) -> None:
        """Each message is a segment, and each of its plural forms."""
        self._flags: dict[int, set[str]] = {}
        self._entry: dict[int, int] = {}  # position of a slot -> of its message
        entries = self._entries()
        header = next((each for each in entries if each.is_header), None)
        self._forms = self._plural_forms(header)
        for entry in entries:
            if entry is not header:
                self._add(entry)

    def same_structure(self, text: str) -> bool:
        """Whether a text reads as the same messages."""
        try:
            read = PoFile(text.encode(), self.name) if self.codec == "utf-8" else None
        except ValueError:
            return False
        return read is None or len(read._entries()) == len(self._entries())

    def written(self, parts: Parts, segment: Segment) -> str:
        """The strings of a `msgstr`, wrapped as gettext does."""
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
        """The file with translations; of a message with plural forms with all of them or none."""
        pairs = list(zip(self.segments, translations, strict=True))
        bad = {self._entry[x.start] for x, parts in pairs if parts is None}
        for segment, parts in pairs:
            if parts is not None and not self._fits(parts, segment):
                self.left_out["whose translation has another format"] += 1
                bad.add(self._entry[segment.start])
        return super().rebuilt([p if self._entry[x.start] not in bad else None for x, p in pairs])

    def _fits(self, parts: Parts, segment: Segment) -> bool:
        """Whether a message whose format a compiler checks has the signs of its source."""
        flags = self._flags[segment.start]
        if not any(each.endswith("-format") and each[:3] != "no-" for each in flags):
            return True
        new, source = (_text(each) for each in (parts, segment.parts))
        found = [_DIRECTIVE.findall(text) for text in (new, source)]
        if all(each[1] == "(" or "$" in each for each in found[1]):  # named or numbered
            found = [sorted(each) for each in found]
        same = all(new.count(sign) == source.count(sign) for sign in "%{}")
        return same and found[0] == found[1]

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
                found = _STATEMENT.match(bare)
                if found:
                    if found[1] in ("msgctxt", "msgid") and entries[-1].get("msgstr"):
                        entries.append(_Entry())
                    self._begin(entries[-1], found, start)
                string = _STRING.match(found[3] if found else bare)
                if not string or not entries[-1].statements:
                    raise self.damaged(start, f"must be a string in quotes. Received: {bare!r}")
                last = entries[-1].statements[-1]
                last.start = start + line.index('"') if found else last.start
                last.end = start + len(line.rstrip())
                last.text += _ESCAPE.sub(_unescaped, string[1])
        entries = [each for each in entries if each.statements]
        for entry in entries:
            if not entry.get("msgid") or not entry.get("msgstr"):
                raise self.damaged(entry.statements[0].start, "a message needs msgid and msgstr.")
        return entries

    def _begin(self, entry: _Entry, found: re.Match[str], start: int) -> None:
        keyword, index = found[1].partition("[")[0], found[2]
        again = [x for x in entry.statements if (x.keyword, x.index) == (keyword, index)]
        if again or not entry.get("msgid") and keyword in ("msgid_plural", "msgstr"):
            raise self.damaged(start, f"a {found[1]} must not stand here.")
        entry.statements.append(_Statement(keyword, index, start, start))

    def _add(self, entry: _Entry) -> None:
        singular, plural = entry.get("msgid"), entry.get("msgid_plural")
        slots = [each for each in entry.statements if each.keyword == "msgstr"]
        assert singular is not None
        if any(slot.text for slot in slots) and not self.again:
            self.left_out["fuzzy" if "fuzzy" in entry.flags else "already translated"] += 1
            return
        if plural is None:
            self._slot(entry, singular.text, slots[0])
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
            self._slot(entry, self._source_of(i, singular.text, plural.text, form), slot)

    def _source_of(self, i: int, singular: str, plural: str, form: Callable[[int], int]) -> str:
        """The text for a plural form: the singular's for that of 1, where it suits all of it."""
        of_one = form(1) == i and self._forms != (1, form)
        shared = any(form(n) == i for n in range(201) if n != 1)
        if of_one and (not shared or placeables(singular) == placeables(plural)):
            return singular
        return plural

    def _slot(self, entry: _Entry, source: str, slot: _Statement) -> None:
        self._flags[slot.start] = entry.flags
        self._entry[slot.start] = entry.statements[0].start
        self.add(with_breaks(source, _BREAK, _END), slot.start, slot.end, present=slot.text)

    def _plural_forms(self, header: _Entry | None) -> tuple[int, Callable[[int], int]] | None:
        slot = header and header.get("msgstr")
        found = _PLURAL.search(slot.text) if slot else None
        if not found or not slot:
            return None
        try:
            return int(found[1]), gettext.c2py(found[2].strip())
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
    return '"' + "".join(_WRITTEN.get(each, each) for each in text) + '"'


def _wrapped(line: str) -> list[str]:
    """Pieces of a line that fit, in quotes, where there are spaces."""
    pieces = [""]
    for word in re.findall(r"\S*\s+|\S+", line):
        if pieces[-1] and len(_quoted(pieces[-1] + word.rstrip(" "))) > WIDTH:
            pieces.append("")
        pieces[-1] += word
    return pieces
