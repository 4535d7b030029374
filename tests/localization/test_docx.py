"""Claims about DOCX files: what another reader finds in them."""

import io
import zipfile
from importlib.util import find_spec

import pytest

from keras_transformers.localization import DocxFile, FileTranslator, xml_files
from tests.localization.samples import document, lose, shout, split


def translated(data, ask=shout):
    file = DocxFile(data)
    return file.rebuilt(FileTranslator(ask, split).translate([file])[0])


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {each.filename: archive.read(each) for each in archive.infolist()}


@pytest.mark.skipif(not find_spec("docx"), reason="needs python-docx")
@pytest.mark.parametrize("ask", [shout, lose])
def test_another_reader_finds_the_text_in_its_format(ask):
    import docx

    found = docx.Document(io.BytesIO(translated(document(), ask))).paragraphs
    runs = [[(run.text, run.bold) for run in each.runs if run.text] for each in found]
    assert runs[0] == [("A TITLE", None)]
    assert runs[1][:2] == [("CLICK ", None), ("SAVE", True)]
    if ask is shout:
        assert found[1].text == "CLICK SAVE TO STORE & GO ON. THEN SLEEP."
    assert found[2].text == "ALL BOLD\tAFTER IT" and found[2].runs[0].bold
    assert found[3].text == "42"


def test_all_but_the_text_stays():
    before, after = members(document()), members(translated(document()))
    assert list(before) == list(after)
    assert [name for name in before if before[name] != after[name]] == ["word/document.xml"]


def test_spaces_between_runs_stay():
    """Word drops white space at the edge of a text that does not say that it is kept."""
    runs = (
        "<w:r><w:t>One</w:t></w:r><w:r><w:rPr><w:b/></w:rPr>"
        '<w:t xml:space="preserve"> two</w:t></w:r><w:r><w:t>, three.</w:t></w:r>'
    )
    words = {"One<b> two</b>, three.": "Eins <b>zwei</b>, drei."}
    data = translated(document(f"<w:p>{runs}</w:p>"), lambda texts: [words[x] for x in texts])
    body = members(data)["word/document.xml"].decode()
    assert '<w:t xml:space="preserve">Eins </w:t>' in body
    assert "<w:t>, drei.</w:t>" in body


def test_words_do_not_change_their_format():
    """What a translator puts before bold words that begin a paragraph would become bold."""
    bold = "<w:r><w:rPr><w:b/></w:rPr><w:t>One</w:t></w:r>"
    runs = bold + '<w:r><w:t xml:space="preserve"> and two or three.</w:t></w:r>'
    words = {"<b>One</b> and two or three.": "Drei und <b>eins</b>.", "One": "Eins"}
    words["One and two or three."] = "Drei und eins."
    data = translated(
        document(f"<w:p>{runs}</w:p>"), lambda texts: [words.get(x, x) for x in texts]
    )
    assert b"<w:b/></w:rPr><w:t>Eins</w:t></w:r>" in members(data)["word/document.xml"]


def test_text_boxes_are_translated_inside_their_paragraph():
    box = "<w:p><w:r><w:t>Inside</w:t></w:r></w:p>"
    drawing = f"<w:pict><w:txbxContent>{box}</w:txbxContent></w:pict>"
    runs = f"<w:r><w:t>Before</w:t></w:r><w:r>{drawing}</w:r><w:r><w:t>Behind</w:t></w:r>"
    body = members(translated(document(f"<w:p>{runs}</w:p>")))["word/document.xml"].decode()
    assert [body.count(word) for word in ("BEFORE", "INSIDE", "BEHIND")] == [1, 1, 1]


def test_a_damaged_part_is_refused_with_its_line():
    with pytest.raises(ValueError, match="word/document.xml, line 2: mismatched tag"):
        DocxFile(document("\n<w:p></w:r>"), "a.docx")
    with pytest.raises(ValueError, match="it has no word/document.xml"):
        written = io.BytesIO()
        zipfile.ZipFile(written, "w").close()
        DocxFile(written.getvalue())


def changed(data, change):
    """An archive whose names and contents are changed by a function of both."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members(data).items():
            archive.writestr(*change(name, content))
    return written.getvalue()


@pytest.mark.parametrize("start", [b"PK\x01\x02", b"PK\x03\x04", b"word/media"])
def test_a_damaged_archive_is_refused_before_it_is_translated(start):
    data = bytearray(document())
    position = data.rindex(start) if start != b"word/media" else data.index(start) + 24
    data[position : position + 4] = b"\xff\xfe\xfd\xfc"
    with pytest.raises(ValueError, match=r"a\.docx: must be a (whole )?DOCX archive: ."):
        DocxFile(bytes(data), "a.docx")


def test_the_main_part_may_have_another_name():
    def renamed(name, content):
        new = "word/document2.xml"
        return name.replace("word/document.xml", new), content.replace(
            b"word/document.xml", new.encode()
        )

    data = changed(document(), renamed)
    assert len(DocxFile(data).segments) == len(DocxFile(document()).segments) > 0
    assert b"A TITLE" in members(translated(data))["word/document2.xml"]


def test_another_prefix_is_refused_and_not_read_as_an_empty_document():
    def prefixed(name, content):
        if name != "word/document.xml":
            return name, content
        return name, content.replace(b"w:", b"x:").replace(b"xmlns:w", b"xmlns:x")

    with pytest.raises(ValueError, match="word/document.xml: must use the prefix w"):
        DocxFile(changed(document(), prefixed))


def test_an_archive_that_is_too_large_when_unpacked_is_refused_before_it_is_read(monkeypatch):
    data = document("<w:p><w:r><w:t>Open</w:t></w:r></w:p>")
    DocxFile(data)
    for name in ("MOST_MEMBERS", "LARGEST_WHOLE"):
        with monkeypatch.context() as context:
            context.setattr(xml_files, name, 1)
            context.setattr(zipfile.ZipFile, "read", None)
            with pytest.raises(ValueError, match="must have at most .* when unpacked. Received"):
                DocxFile(data)
