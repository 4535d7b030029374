"""XLIFF 1.2 and 2, in which translators exchange texts, and DOCX, documents of word processors.

Both are XML. The parser expat checks it. Its pieces are then found with their positions, which no
parser of XML tells, so that all other bytes stay as they are.
"""

import collections
import dataclasses
import html
import io
import itertools
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from xml.parsers import expat

from keras_transformers.localization.marks import Mark, Parts, Segment, escape_markup, split_breaks
from keras_transformers.localization.text_file import TextFile

_PIECE = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<!DOCTYPE[^>\[]*>|<(?P<end>/?)(?P<name>[^\s/>!?]+)"
    r"(?P<attributes>(?:[^>\"']|\"[^\"]*\"|'[^']*')*?)(?P<empty>/?)>|(?P<text>[^<]+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_REFERENCE = re.compile(r"&#?\w+;")
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A tag or a text.

    Args:
        kind: "start", "end", "empty", "text", "data" for CDATA, or "other".
        name: Name of the tag, without its prefix.
        attributes: Dict of name -> value.
        start: Position at which the piece begins.
        end: Position at which it ends.
        prefix: Prefix of the name, with its colon.
    """

    kind: str
    name: str
    attributes: dict[str, str]
    start: int
    end: int
    prefix: str = ""


def pieces(text: str) -> Iterator[Piece]:
    """Yields the pieces of well-formed XML, in their order.

    Example:
    >>> from keras_transformers.localization.xml_files import pieces
    >>> [(piece.kind, piece.name) for piece in pieces('<a:b c="1">x<d/></a:b>')]
    [('start', 'b'), ('text', ''), ('empty', 'd'), ('end', 'b')]
    """
    for match in _PIECE.finditer(text):
        attributes: dict[str, str] = {}
        prefix, name = "", ""
        if match["text"] is not None:
            kind = "text"
        elif match["name"] is None:
            kind = "data" if match[0].startswith("<![CDATA[") else "other"
        else:
            kind = "end" if match["end"] else "empty" if match["empty"] else "start"
            prefix, colon, name = match["name"].rpartition(":")
            prefix += colon
            pairs = _ATTRIBUTE.findall(match["attributes"])
            attributes = {key: html.unescape(value[1:-1]) for key, value in pairs}
        yield Piece(kind, name, attributes, *match.span(), prefix)


class XmlFile(TextFile):
    """A file of well-formed XML.

    Raises:
        ValueError: If it is not well formed, or declares entities.
    """

    def encoding(self, data: bytes) -> str:
        """Returns the encoding that the declaration names, or that of the byte order mark."""
        match = _DECLARED.match(data.removeprefix(b"\xef\xbb\xbf"))
        return match[1].decode().lower() if match else super().encoding(data)

    def scan(self) -> None:
        """Checks the text, and gives its pieces to `scan_pieces`."""
        if fault := malformed(self.text):
            line, message = fault
            raise ValueError(f"{self.name}, line {line}: {message}.")
        self.scan_pieces(list(pieces(self.text)))

    def scan_pieces(self, pieces: list[Piece]) -> None:
        """Hook: adds the segments."""
        raise NotImplementedError

    def same_structure(self, text: str) -> bool:
        """Returns True if a text is well formed."""
        return malformed(text) is None

    def encoded(self, text: str) -> bytes:
        """Returns the bytes, with references for characters that the encoding lacks."""
        return text.encode(self.codec, "xmlcharrefreplace")

    def escaped(self, text: str, segment: Segment) -> str:
        """Returns a text with references for markup, and for characters that had them before."""
        allowed = re.sub(r"[^\t\n\r -\ud7ff\ue000-\U0010ffff]", "", text)
        return escape_markup(allowed, segment.escapes)

    def texts(self, raw: str, escapes: dict[str, str]) -> list[str | Mark]:
        """Returns the texts of raw text, and adds the form of its references to `escapes`."""
        texts: list[str | Mark] = []
        at = 0
        for match in _REFERENCE.finditer(raw):
            text = html.unescape(match[0])
            escapes[text] = match[0]
            texts += [raw[at : match.start()], text]
            at = match.end()
        for character in set(_REFERENCE.sub("", raw)):
            escapes.setdefault(character, character)
        return [*texts, raw[at:]]


def malformed(text: str) -> tuple[int, str] | None:
    """Returns the line and the message of the first fault of XML; None if it has none."""
    parser = expat.ParserCreate("utf-8")
    entities: list[int] = []
    parser.EntityDeclHandler = lambda *_: entities.append(parser.CurrentLineNumber)
    try:
        parser.Parse(text.removeprefix("\ufeff").encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        return error.lineno, expat.ErrorString(error.code)
    return (entities[0], "entities must not be declared") if entities else None


XLIFF_PAIRS = frozenset(["g", "mrk", "pc"])
XLIFF_UNITS = frozenset(["trans-unit", "segment"])
_NOT_TRANSLATED = 'in translate="no"'


class XliffFile(XmlFile):
    """XLIFF 1.2 or 2: units without a `target`, or with an empty one, get one.

    States and other attributes stay as they are, for a person to set.

    Raises:
        ValueError: If the file is damaged, or of version 2 without `trgLang`, which it must have.

    Example:
    >>> from keras_transformers.localization import XliffFile
    >>> unit = '<trans-unit id="1"><source>Open</source></trans-unit>'
    >>> file = XliffFile(f'<xliff version="1.2">{unit}</xliff>'.encode())
    >>> print(file.rebuilt([("Auf",)]).decode()[21:])
    <trans-unit id="1"><source>Open</source><target>Auf</target></trans-unit></xliff>
    """

    suffixes = (".xlf", ".xliff", ".sdlxliff")

    def scan_pieces(self, pieces: list[Piece]) -> None:
        """Adds each unit, or each segment of a unit, as a segment."""
        root = next((piece for piece in pieces if piece.kind == "start"), None)
        if root is None or root.name != "xliff":
            raise self.damaged(root.start if root else 0, "must be <xliff>.")
        if root.attributes.get("version", "1")[0] == "2" and "trgLang" not in root.attributes:
            raise self.damaged(root.start, "<xliff> must have the attribute trgLang.")
        self._around: dict[int, tuple[str, str]] = {}
        translated = [True]  # of the elements that are open
        at = 0
        while at < len(pieces):
            piece = pieces[at]
            if piece.kind == "start":
                setting = piece.attributes.get("translate")
                translated.append(translated[-1] if setting is None else setting == "yes")
                if piece.name in XLIFF_UNITS:
                    end = _end(pieces, at)
                    self._unit(pieces[at + 1 : end], translated.pop())
                    at = end
            elif piece.kind == "end":
                translated.pop()
            at += 1

    def written(self, parts: Parts, segment: Segment) -> str:
        """Returns the content of a target, or a whole new target."""
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
        """Returns the texts and marks of the content of a source."""
        parts: list[str | Mark] = []
        numbers, opened = itertools.count(1), []  # type: itertools.count[int], list[int]
        at = 0
        while at < len(content):
            piece = content[at]
            raw = self.text[piece.start : piece.end]
            if piece.kind == "text":
                for part in split_breaks(raw):
                    parts += self.texts(part, escapes) if isinstance(part, str) else [part]
            elif piece.kind == "start" and piece.name in XLIFF_PAIRS:
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
    """Returns the number of the piece that ends the element that begins at a number."""
    depth = 0
    for i in range(at, len(pieces)):
        depth += {"start": 1, "end": -1}.get(pieces[i].kind, 0)
        if not depth:
            return i
    raise AssertionError("the XML is well formed")


LARGEST = 2**28  # bytes of a part, unpacked
MOST_MEMBERS, LARGEST_WHOLE = 10_000, 1 << 29  # of an archive; bytes of all of them
# Errors of zipfile at an archive that is damaged, encrypted, or packed in an unknown way.
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError)
_BROKEN += (NotImplementedError, RuntimeError)
_PREFIX = re.compile(r"\bxmlns:w\s*=")
_PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_BETWEEN_LIKE_RUNS = re.compile(
    r"</w:t>|<w:t(?:\s[^>]*)?/?>|</?w:r(?:\s[^>]*)?>|<w:rPr>.*?</w:rPr>|<w:rPr/>|\s+"
    r"|<w:(?:proofErr|bookmarkStart|bookmarkEnd|lastRenderedPageBreak)(?:\s[^>]*)?/>",
    re.DOTALL,
)
_UNSEEN_FORMAT = re.compile(r"<w:(?:lang|noProof)(?:\s[^>]*)?/>")
_NEW_LINE = re.compile(r"<w:(?:tab|br|cr)(?:\s[^>]*)?/>")
_BARE_TEXT = re.compile(r"<w:t>(?=\s|[^<]*\s</w:t>)")


class DocxFile(TextFile):
    """A DOCX file: paragraphs of the text, of headers, footers and notes.

    Text with another format than most of its paragraph stands between a pair of marks. Runs of one
    format that follow one another become one run if their paragraph is translated.

    Raises:
        ValueError: If the file is no such archive, or a part is damaged; it names the part and the
            line.

    Example: see `recipes.translate_files`.
    """

    suffixes = (".docx",)

    def __init__(self, data: bytes, name: str = "the file", again: bool = False) -> None:
        self.data, self.name = data, name
        self.left_out = collections.Counter()
        self._files: dict[str, _Part] = {}
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                self._check_size(archive)
                if broken := archive.testzip():
                    raise ValueError(f"{name}: must be a whole DOCX archive: {broken} is damaged.")
                main = _main_part(archive)
                for info in archive.infolist():
                    if _PARTS.fullmatch(info.filename) or info.filename == main:
                        if info.file_size > LARGEST:
                            raise ValueError(f"{name}: {info.filename} is larger than {LARGEST} B.")
                        where = f"{name}, {info.filename}"
                        self._files[info.filename] = _Part(archive.read(info), where)
        except _BROKEN as error:
            raise ValueError(f"{name}: must be a DOCX archive: {error}") from None
        if main not in self._files:
            raise ValueError(f"{name}: must be a DOCX archive: it has no {main}.")
        for part, file in self._files.items():
            if not _PREFIX.search(file.text):
                raise ValueError(
                    f"{name}, {part}: must use the prefix w for the names of WordprocessingML, as "
                    "word processors do; open and save the document in one."
                )
        self.segments = [segment for part in self._files.values() for segment in part.segments]
        for part in self._files.values():
            self.left_out += part.left_out

    def _check_size(self, archive: zipfile.ZipFile) -> None:
        """Raises ValueError if an archive has too many members, or unpacks to too many bytes."""
        sizes = [info.file_size for info in archive.infolist()]
        if len(sizes) > MOST_MEMBERS or sum(sizes) > LARGEST_WHOLE:
            raise ValueError(
                f"{self.name}: must have at most {MOST_MEMBERS} members, of {LARGEST_WHOLE} B when "
                f"unpacked. Received: {len(sizes)}, of {sum(sizes)} B"
            )

    def rebuilt(self, translations: Sequence[Parts | None]) -> bytes:
        """Returns the archive with translations of its segments; other parts stay as they are."""
        rest = iter(translations)
        new = {}
        for name, part in self._files.items():
            before = collections.Counter(part.left_out)
            new[name] = part.rebuilt([next(rest) for _ in part.segments])
            self.left_out += part.left_out - before
        if all(new[name] == part.data for name, part in self._files.items()):
            return self.data
        written = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(self.data)) as old,
            zipfile.ZipFile(written, "w") as archive,
        ):
            for info in old.infolist():
                content = new.get(info.filename)
                archive.writestr(info, old.read(info) if content is None else content)
        return written.getvalue()


def _main_part(archive: zipfile.ZipFile) -> str:
    """Returns the name of the part with the text, by the relations of the archive."""
    try:
        relations = archive.read("_rels/.rels").decode("utf-8", "replace")
    except KeyError:
        return "word/document.xml"
    for piece in pieces(relations):
        if piece.attributes.get("Type", "").endswith("/officeDocument"):
            return piece.attributes.get("Target", "").removeprefix("/")
    return "word/document.xml"


class _Part(XmlFile):
    """An XML part with paragraphs."""

    def scan_pieces(self, pieces: list[Piece]) -> None:
        """Adds each paragraph as a segment; one in a text box may be inside another's marks."""
        open_paragraphs: list[list[_Text]] = []
        form = ""  # of the run
        in_form = 0  # position of the open form, or 0
        waiting = False  # for the form of a run that has begun
        for i, piece in enumerate(pieces):
            if piece.prefix != "w:":
                continue
            if piece.name == "p" and piece.kind == "start":
                open_paragraphs.append([])
            elif piece.name == "p" and piece.kind == "end":
                self._paragraph(open_paragraphs.pop(), inside=bool(open_paragraphs))
            elif piece.name == "r" and piece.kind == "start":
                form, waiting = "", True
            elif piece.name == "rPr" and piece.kind == "start" and waiting:
                in_form, waiting = piece.start, False
            elif piece.name == "rPr" and piece.kind == "end" and in_form:
                form, in_form = self.text[in_form : piece.end], 0
            elif piece.name == "t" and piece.kind == "start" and open_paragraphs:
                if pieces[i + 1].kind == "text":
                    text = _Text(piece.start, piece.end, pieces[i + 1].end, form)
                    open_paragraphs[-1].append(text)
                waiting = False

    def written(self, parts: Parts, segment: Segment) -> str:
        """Returns a translation that keeps white space at the edges of its texts."""
        written = super().written(parts, segment)
        return _BARE_TEXT.sub('<w:t xml:space="preserve">', written)

    def _paragraph(self, texts: list["_Text"], inside: bool) -> None:
        if not texts:
            return
        lengths: collections.Counter[str] = collections.Counter()
        for text in texts:
            lengths[text.form] += text.end - text.begin
        base = lengths.most_common(1)[0][0]
        escapes: dict[str, str] = {}
        parts: list[str | Mark] = [Mark(self.text[texts[0].start : texts[0].begin], "soft")]
        pair, waiting = 0, ""  # raw text between like runs goes before the next mark
        before = base
        for i, text in enumerate(texts):
            raw = self.text[texts[i - 1].end : text.begin] if i else ""
            span = (texts[i - 1].end, text.begin) if i else None
            if i and text.form == before and not _BETWEEN_LIKE_RUNS.sub("", raw):
                waiting += raw
            elif i and text.form == before:
                mark = Mark(waiting + raw, ordered=True, span=span)
                if _NEW_LINE.search(raw):
                    mark = dataclasses.replace(mark, kind="end")
                parts.append(mark)
                waiting = ""
            else:
                closes, opens = before != base, text.form != base
                if closes:
                    raw_of_close = "" if opens else waiting + raw
                    end_span = None if opens else span
                    parts.append(Mark(raw_of_close, "close", None, "b", pair, True, end_span))
                if closes and opens and _NEW_LINE.search(raw):
                    parts.append(Mark("", "end"))
                if opens:
                    pair += 1
                    parts.append(Mark(waiting + raw, "open", None, "b", pair, True, span))
                waiting = "" if closes or opens else waiting
            parts += self.texts(self.text[text.begin : text.end], escapes)
            before = text.form
        if before != base:
            parts.append(Mark(waiting, "close", None, "b", pair, True))
            waiting = ""
        end = texts[-1].end + len("</w:t>")
        parts.append(Mark(waiting + self.text[texts[-1].end : end], "soft"))
        self.add(parts, texts[0].start, end, escapes, inside=inside)


class _Text:
    """A `<w:t>`: the positions of its tag and its text, and the format of its run."""

    def __init__(self, start: int, begin: int, end: int, form: str) -> None:
        self.start, self.begin, self.end = start, begin, end
        self.form = _UNSEEN_FORMAT.sub("", form).replace("<w:rPr></w:rPr>", "")
