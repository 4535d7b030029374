"""Documents of word processors (DOCX): paragraphs of runs, in a ZIP archive."""

import collections
import dataclasses
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Sequence

from keras_transformers.text.files.parts import Mark, Parts, Segment
from keras_transformers.text.files.text_file import TextFile
from keras_transformers.text.files.xml import Piece, XmlFile

LARGEST = 2**28  # bytes of a part, unpacked
MOST_MEMBERS, LARGEST_WHOLE = 10_000, 1 << 29  # of an archive; bytes of all of them
# What zipfile raises at a damaged or encrypted archive, or one packed in a way it does not know.
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

    What differs in its format from most of its paragraph is a pair of marks. Runs of one format
    that follow one another become one where their paragraph is translated.

    Raises:
        ValueError: If it is no archive of this kind, or a part is damaged; it names the part and
            the line.

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
        self.segments = [each for part in self._files.values() for each in part.segments]
        for part in self._files.values():
            self.left_out += part.left_out

    def _check_size(self, archive: zipfile.ZipFile) -> None:
        """ValueError if an archive has too many members, or they are too large when unpacked."""
        sizes = [info.file_size for info in archive.infolist()]
        if len(sizes) > MOST_MEMBERS or sum(sizes) > LARGEST_WHOLE:
            raise ValueError(
                f"{self.name}: must have at most {MOST_MEMBERS} members, of {LARGEST_WHOLE} B when "
                f"unpacked. Received: {len(sizes)}, of {sum(sizes)} B"
            )

    def rebuilt(self, translations: Sequence[Parts | None]) -> bytes:
        """The archive with translations of its segments; parts without any are as they were."""
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
    """Returns the name of the part with the text, which the relations of the archive tell."""
    try:
        relations = archive.read("_rels/.rels").decode("utf-8", "replace")
    except KeyError:
        return "word/document.xml"
    for relation in re.findall(r"<(?:\w+:)?Relationship\s[^>]*>", relations):
        target = re.search(r"\bTarget\s*=\s*[\"']/?([^\"']+)[\"']", relation)
        if target and re.search(r"\bType\s*=\s*[\"'][^\"']*/officeDocument[\"']", relation):
            return target[1]
    return "word/document.xml"


class _Part(XmlFile):
    """An XML part with paragraphs."""

    def scan_pieces(self, found: list[Piece]) -> None:
        """Each paragraph is a segment; one in a text box may be inside another's marks."""
        open_paragraphs: list[list[_Text]] = []
        form, in_form, waiting = "", 0, False
        for i, piece in enumerate(found):
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
                if found[i + 1].kind == "text":
                    text = _Text(piece.start, piece.end, found[i + 1].end, form)
                    open_paragraphs[-1].append(text)
                waiting = False

    def written(self, parts: Parts, segment: Segment) -> str:
        """With white space kept at the edges of texts."""
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
    """A `<w:t>`: where its tag and its text begin, where the text ends, and its run's format."""

    def __init__(self, start: int, begin: int, end: int, form: str) -> None:
        self.start, self.begin, self.end = start, begin, end
        self.form = _UNSEEN_FORMAT.sub("", form).replace("<w:rPr></w:rPr>", "")
