"""XML as it stands in a file: whole pieces, with their positions."""

import dataclasses
import html
import re
from collections.abc import Iterator
from xml.parsers import expat

from keras_transformers.text.files.parts import Mark, Segment
from keras_transformers.text.files.text_file import TextFile

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
        name: Of the tag, as it stands, and without its prefix.
        attributes: Dict of name -> value.
        start: Where it begins.
        end: Where it ends.
    """

    kind: str
    name: str
    attributes: dict[str, str]
    start: int
    end: int
    prefix: str = ""


def pieces(text: str) -> Iterator[Piece]:
    """The pieces of well-formed XML, in their order.

    Example:
    >>> from keras_transformers.text.files.xml import pieces
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
            prefix, _, name = match["name"].rpartition(":")
            found = _ATTRIBUTE.findall(match["attributes"])
            attributes = {key: html.unescape(value[1:-1]) for key, value in found}
        yield Piece(kind, name, attributes, *match.span(), f"{prefix}:" if prefix else "")


class XmlFile(TextFile):
    """XML whose text is well formed, with what its kinds have in common.

    Raises:
        ValueError: If it is not well formed, or declares entities.
    """

    def encoding(self, data: bytes) -> str:
        """What the declaration says; else UTF-8, or UTF-16 after its mark."""
        found = _DECLARED.match(data.removeprefix(b"\xef\xbb\xbf"))
        return found[1].decode().lower() if found else super().encoding(data)

    def scan(self) -> None:
        """Checks the text, and gives its pieces to `scan_pieces`."""
        if wrong := malformed(self.text):
            line, what = wrong
            raise ValueError(f"{self.name}, line {line}: {what}.")
        self.scan_pieces(list(pieces(self.text)))

    def scan_pieces(self, found: list[Piece]) -> None:
        """Hook: adds the segments."""
        raise NotImplementedError

    def same_structure(self, text: str) -> bool:
        """Whether a text is well formed."""
        return malformed(text) is None

    def encoded(self, text: str) -> bytes:
        """The bytes; what the encoding lacks has references."""
        return text.encode(self.codec, "xmlcharrefreplace")

    def escaped(self, text: str, segment: Segment) -> str:
        """With references for what is markup, and for what had some in the segment."""
        allowed = re.sub(r"[^\t\n\r -\ud7ff\ue000-\U0010ffff]", "", text)
        return "".join(
            segment.escapes.get(each) or (html.escape(each, False) if each in "<>&" else each)
            for each in allowed
        )

    def texts(self, raw: str, escapes: dict[str, str]) -> list[str | Mark]:
        """Text pieces of raw text; how its references were written is put into `escapes`."""
        found: list[str | Mark] = []
        at = 0
        for match in _REFERENCE.finditer(raw):
            text = html.unescape(match[0])
            escapes[text] = match[0]
            found += [raw[at : match.start()], text]
            at = match.end()
        for each in set(re.sub(_REFERENCE, "", raw)):
            escapes.setdefault(each, each)
        return [*found, raw[at:]]


def malformed(text: str) -> tuple[int, str] | None:
    """The line and the sentence of what is wrong with XML; None where nothing is."""
    parser = expat.ParserCreate("utf-8")
    wrong: list[int] = []
    parser.EntityDeclHandler = lambda *_: wrong.append(parser.CurrentLineNumber)
    try:
        parser.Parse(text.removeprefix("\ufeff").encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        return error.lineno, expat.ErrorString(error.code)
    return (wrong[0], "entities must not be declared") if wrong else None
