"""Claims about files to translate: what is no text stays, byte for byte, whatever is translated."""

import html
import re
import sys
import time
from html.parser import HTMLParser
from importlib.util import find_spec
from xml.etree import ElementTree

import markdown_it
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.localization import (
    FileTranslator,
    HtmlFile,
    Mark,
    MarkdownFile,
    PlainText,
    PoFile,
    SentenceSplitter,
    Subtitles,
    XliffFile,
    read_file,
)
from keras_transformers.localization.file_translation import BY_SUFFIX, _once
from keras_transformers.localization.marks import Shown
from tests.localization.samples import KEPT, SAMPLES, lose, shout, split

IN_PLACE = [name for name in SAMPLES if name[2:] in ("txt", "md", "html", "srt")]


def read(name, data=None, again=False):
    return BY_SUFFIX[name[1:]](SAMPLES[name] if data is None else data, name, again)


def translated(file, ask):
    return file.rebuilt(FileTranslator(ask, split).translate([file])[0])


def markup(data):
    """What must stay as it is, in its order."""
    return KEPT.findall(data.decode())


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, [value for name, value in attributes if name in ("href", "src")]))

    def handle_endtag(self, tag):
        self.found.append(tag)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_not_changed_gives_the_very_same_bytes(name):
    file = read(name)
    assert file.segments
    assert file.rebuilt([None] * len(file.segments)) == file.data
    if name in IN_PLACE or name == "a.docx":
        assert translated(file, list) == file.data


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize(
    "change", [(b"\n", b"\r\n"), (b"\\A", b"\xef\xbb\xbf")], ids=["CRLF", "BOM"]
)
def test_line_ends_and_marks_of_byte_order_stay(name, change):
    data = re.sub(change[0] if change[0] == b"\\A" else rb"\n", change[1], SAMPLES[name])
    plain, file = read(name), read(name, data)
    assert translated(file, list) == data
    assert len(file.segments) == len(plain.segments)
    capitals = translated(file, shout)
    assert capitals.replace(b"\r\n", b"\n").removeprefix(b"\xef\xbb\xbf") == translated(
        plain, shout
    )


@pytest.mark.parametrize("name", IN_PLACE)
def test_capitals_change_text_alone(name):
    file = read(name)
    capitals = translated(file, shout)
    assert capitals != file.data and capitals.lower() == file.data.lower()
    tags = [
        each for each in markup(capitals) if not re.search(r"(?i)alt=|title=|content=|value=", each)
    ]
    assert set(tags) <= set(markup(file.data))
    assert b"kept" in capitals and b"KEPT" not in capitals


@pytest.mark.parametrize("name", SAMPLES)
def test_no_text_is_forgotten(name):
    """All that a translator changes is there, and what stayed has a reason."""
    file = read(name)
    again = read(name, translated(file, shout), again=True)
    if name in IN_PLACE or name == "a.docx":
        words = {word for each in again.segments for word in re.findall(r"\w+", each.plain)}
        assert {word for word in words if word != word.upper()} <= {"n"}
    assert len(again.segments) >= len(file.segments)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("ask", [lose, lambda texts: [f"<i>{each}</i> %s" for each in texts]])
def test_a_translator_that_breaks_markup_breaks_no_file(name, ask):
    file = read(name)
    data = translated(file, ask)
    again = read(name, data, again=True)
    assert len(again.segments) == len(read(name, again=True).segments)
    if name in ("a.html", "b.html"):
        assert Tags(data.decode()).found == Tags(file.data.decode()).found
    if name.endswith("xlf"):
        before, after = (ElementTree.fromstring(each) for each in (file.data, data))
        inside = [each.attrib for each in after.iter() if each.tag.endswith(("}g", "}ph", "}pc"))]
        assert len(inside) == 2 * sum(
            each.tag.endswith(("}g", "}ph", "}pc")) for each in before.iter()
        )


def test_markup_that_was_lost_is_put_around_the_same_words():
    """Where a translator loses tags, what stands inside is translated, and looked for."""
    words = {
        "Click <b>Save</b> now.": "Klicke jetzt.",
        "Click Save now.": "Klicke jetzt Speichern.",
        "Save": "Speichern",
    }
    file = MarkdownFile(b"Click **Save** now.\n")
    translator = FileTranslator(lambda texts: [words[each] for each in texts], split)
    assert file.rebuilt(translator.translate([file])[0]) == b"Klicke jetzt **Speichern**.\n"
    assert translator.counts["sentences with markup, translated with markup found again"] == 1
    words |= {"Click Save now.": "Klick!", "Click": "Klicke", "now.": "jetzt."}
    translator = FileTranslator(lambda texts: [words[each] for each in texts], split)
    assert file.rebuilt(translator.translate([file])[0]) == b"Klicke **Speichern** jetzt.\n"
    assert translator.counts["sentences with markup, translated in pieces"] == 1


def test_a_sentence_is_seen_without_the_markup_around_it():
    asked = []
    file = HtmlFile(b"<p> - <b><i>Open it. Now!</i></b> <img src=a> %s files.</p>")
    translated(file, lambda texts: asked.extend(texts) or texts)
    assert asked == ["Open it.", "Now!", "%s files."]


def test_what_cannot_be_translated_stays_and_is_counted():
    file = PlainText(b"One. Two.\n\nThree.\n")
    translator = FileTranslator(lambda texts: [None if "T" in x else "1." for x in texts], split)
    assert file.rebuilt(translator.translate([file])[0]) == b"1. Two.\n\nThree.\n"
    assert translator.counts["sentences left as they are"] == 2
    assert translator.counts["segments left as they are"] == 1


def test_a_text_is_asked_for_once():
    asked = []
    files = [PlainText(b"Open.\n\nOpen.\n"), PlainText(b"Open. Close.\n")]
    FileTranslator(lambda texts: asked.extend(texts) or texts, split).translate(files)
    assert asked == ["Open.", "Close."]


UNIT = b"<xliff><trans-unit>%s</trans-unit></xliff>"
CUE = b"1\n00:00:01,000 --> 00:00:02,000\n"
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1)


def shape(name, data):
    """What a file is besides its texts, by other means than ours."""
    text = data.decode()
    if name == "a.xlf":
        return [(each.tag, each.attrib) for each in ElementTree.fromstring(data).iter()]
    if name == "a.srt":
        return re.findall(r"^\d+\n\d\d:.*$", text, re.MULTILINE), text.count("\n")
    if name == "a.po":
        return re.sub(r'^(msgstr )?".*"\n', "", text, flags=re.MULTILINE)
    if name == "a.txt":
        return text.count("\n")
    if name == "a.md":
        text = markdown_it.MarkdownIt("commonmark").enable("table").render(text)
    return Tags(text).found


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"One\n\nTwo\n"),
        ("a.html", b"<p title='x'>One <b>two</b> <a href=x>three</a></p>"),
        ("a.md", b"One **two**\n\n- two [x](y)\n\n|a|\n|-|\n|b|\n"),
        ("a.po", b'msgid "a"\nmsgstr ""\n'),
        ("a.xlf", UNIT % b"<source>a<g id='1'>b</g></source><target/>"),
        ("a.srt", CUE + b"One\n\n" + CUE + b"Two\n"),
    ],
)  # fmt: skip
@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
def test_whatever_a_translator_says_the_structure_stays(name, data, text):
    written = translated(read(name, data), lambda texts: [text] * len(texts))
    new = [("g", {"id": "1"})] if name == "a.xlf" else []  # in the target
    assert shape(name, written) == (shape(name, data) + new if new else shape(name, data))
    read(name, written)


COMMON = [*"\n\r <\u2028", "word", "Two words. And", "<b>", "</b>", "<br>", "&amp;", "%s"]
BLOCKS = ["\n\n", "\n- ", "1. ", "  \n", "    ", "---\n", "\n|a|b|\n|-|-|\n|c|", "```\n", "<div>\n"]
ELEMENTS = ["<p>", "</p>", "<a href=x title='Foo'>", "</a>", "<!-- c -->", "<code>x</code>"]
ELEMENTS += ["<ul><li>", "</ul>", '<img alt="A b">', "<i translate=no>", "</i>", "<pre>", "</pre>"]
PIECES = {
    "a.md": [*COMMON, *BLOCKS, *"*_[`#>|\\!~\t", "**", "](u)", "![", "[^1]", "http://a.b"],
    "a.html": [*COMMON, *ELEMENTS],
}


@pytest.mark.parametrize("name", PIECES)
@settings(max_examples=100, deadline=None)
@given(choose=st.data())
def test_files_of_any_markup_come_through(name, choose):
    data = "".join(choose.draw(st.lists(st.sampled_from(PIECES[name]), max_size=20))).encode()
    try:
        file = read(name, data)
    except ValueError as error:
        assert "is missing" in str(error)
    else:
        assert translated(file, list) == data
        assert file.same_structure(translated(file, lose).decode())


@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_a_translation_reads_as_it_was_written(text):
    text = f"a{text}b".replace("\ufffe", "").replace("\uffff", "")
    found = []
    parser = HTMLParser()
    parser.handle_data = found.append
    parser.feed(HtmlFile(b"<p>One</p>").rebuilt([(text,)]).decode())
    parser.close()
    assert "".join(found) == text
    unit = UNIT % b"<source>a</source>"
    assert ElementTree.fromstring(XliffFile(unit).rebuilt([(text,)])).findtext(".//target") == text
    po = PoFile(b'msgid "a"\nmsgstr ""\n').rebuilt([(text,)])
    assert PoFile(po, again=True).segments[0].present == text
    line = MarkdownFile(b"One\n").rebuilt([(text,)]).decode()
    rendered = markdown_it.MarkdownIt("commonmark").render(line)
    assert html.unescape(rendered) == f"<p>{text}</p>\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.po", b'msgid "a"\nmsgstr "b\n', "line 2: must be a string in quotes. Received: "),
        ("a.po", b'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 3: a msgid must not stand here."),
        ("a.po", b'msgid "a"\n', "line 1: a message needs msgid and msgstr."),
        ("a.xlf", b"<xliff>\n<a></b></xliff>", "line 2: mismatched tag."),
        ("a.xlf", b"<xliff>\n<trans-unit></trans-unit></xliff>", "a unit must have a <source>."),
        ("a.xlf", b"<other/>", "line 1: must be <xliff>."),
        ("a.xlf", b'<xliff version="2.0"></xliff>', "must have the attribute trgLang."),
        ("a.xlf", b'<!DOCTYPE x [\n<!ENTITY a "b">]>\n<xliff/>', "line 2: entities must not be"),
        ("a.srt", b"1\n00:00 --> 1\nText\n", "line 2: must be the times of a subtitle"),
        ("a.srt", CUE + b"Text\n\nText\n", "line 5: must be the number"),
        ("a.html", b"<p>One</p>\n<p class=", "line 2: the end of '<p class=' is missing."),
        ("a.html", b"<p>One</p>\n<script>if (a) {", "line 2: the end of <script> is missing."),
        ("a.txt", b"One\n\xff\n", "line 2: byte 0xff is no utf-8."),
        ("a.docx", b"PK no archive", "must be a DOCX archive"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_with_their_line(name, data, message):
    with pytest.raises(ValueError) as refused:
        read(name, data)
    assert str(refused.value).startswith(name) and message in str(refused.value)


def test_unknown_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a.pdf: must end in .docx, .htm,"):
        read_file(tmp_path / "a.pdf")


def test_an_encoding_without_a_character_has_references_or_an_error():
    data = '<meta charset="iso-8859-1"><p>\u00fc</p>'.encode("latin-1")
    assert HtmlFile(data).rebuilt([("\u017e\u00fc",)]).endswith(b"<p>&#382;\xfc</p>")
    po = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n'
    po += b'msgid "a"\nmsgstr ""\n'
    with pytest.raises(ValueError, match="its encoding iso-8859-1 has no '\u017e'"):
        read("a.po", po).rebuilt([("\u017e",)])


def test_subtitles_keep_their_lines_and_speakers():
    file = Subtitles(SAMPLES["a.srt"])
    asked = []
    translated(file, lambda texts: asked.extend(texts) or texts)
    assert asked[1:4] == ["It was dark.", "Who is there?", "{\\an8}Nobody."]
    assert file.left_out["without letters"] == 1


def test_a_translation_that_would_be_markup_is_escaped_or_left_out():
    file = MarkdownFile(b"One\n\n| a |\n|---|\n| b |\n")
    assert file.rebuilt([("*x* [y](z) `c`",), None, ("p|q",)]).decode() == (
        "\\*x\\* \\[y\\](z) \\`c\\`\n\n| a |\n|---|\n| p\\|q |\n"
    )
    assert file.rebuilt([("# One",), ("# c",), None]).decode() == "One\n\n| # c |\n|---|\n| b |\n"
    assert file.left_out["whose translation would change the structure"] == 1


@pytest.mark.skipif(not find_spec("sentencex"), reason="needs sentencex")
def test_sentences_are_split_with_the_space_behind_them():
    splitter = SentenceSplitter("en")
    assert splitter("Ask Dr. Smith.  Then\tgo!") == ["Ask Dr. Smith.  ", "Then\tgo!"]
    assert SentenceSplitter("de")("Am 3. Mai z. B. so. Gut.") == ["Am 3. Mai z. B. so. ", "Gut."]


@pytest.mark.parametrize(
    ("package", "make"),
    [("sentencex", SentenceSplitter), ("markdown_it", lambda: MarkdownFile(b"a"))],
)
def test_a_missing_package_names_its_extra(package, make, monkeypatch):
    from keras_transformers.localization import markup

    markup.parser.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'keras_transformers\[documents\]'"):
        make()
    markup.parser.cache_clear()


def test_previous_sentences_of_the_same_file_stand_before_each():
    asked = []

    def ask(texts):
        asked.extend(re.sub("<.*?>", "", text) for text in texts)
        return [text.rpartition("\x1e")[2] for text in texts]

    data = b"One a. Two b.\n\nThe *Three* c.\n\n42\n\nTwo b. One a.\n", b"Two b."
    files = [read("a.md", data[0]), read("b.txt", data[1])]
    cut = re.compile(r".+?\.\s*|.+").findall
    translated = FileTranslator(ask, cut, context=2).translate(files)
    assert asked == [
        *("One a.", "One a.\x1eTwo b.", "One a.\x1eTwo b.\x1eThe Three c."),
        *("Two b.\x1eThe Three c.\x1eTwo b.", "The Three c.\x1eTwo b.\x1eOne a.", "Two b."),
    ]
    pairs = zip(files, translated, strict=True)
    assert tuple(file.rebuilt(parts) for file, parts in pairs) == data


PLACEHOLDERS = [
    "%{count}",
    "#{user.name}",
    "%name%",
    "%<total>d",
    "{% if user %}",
    "{%- endif -%}",
    "{when, date, short}",
    "{n, number}",
]
FORMATS = {
    "a.po": 'msgid "Open {} now"\nmsgstr ""\n',
    "a.html": "<p>Open {} now</p>\n",
    "a.md": "Open {} now\n",
    "a.xliff": (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file '
        'source-language="en" target-language="de" datatype="plaintext" original="a"><body>'
        '<trans-unit id="1"><source>Open {} now</source></trans-unit></body></file></xliff>'
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_placeholders_come_through_every_format(placeholder, name):
    if name == "a.md" and "<" in placeholder:
        pytest.skip("this is HTML there")
    written = html.escape(placeholder) if name in ("a.html", "a.xliff") else placeholder
    file = read(name, FORMATS[name].replace("{}", written).encode())
    (segment,) = file.segments
    assert [part.shown for part in segment.parts if not isinstance(part, str)] == [placeholder]
    assert f"OPEN {written} NOW".encode() in translated(file, shout)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "message",
    [
        "{n, plural, one {# file} other {# files}}",
        "{who, select, male {He has {n, plural, one {# file} other {# files}}} other {They do}}",
    ],
)
def test_messages_with_forms_of_icu_are_left_out_and_counted(message, name):
    data = FORMATS[name].replace("{}", message).encode()
    file = read(name, data)
    assert not file.segments and file.left_out["with plural or select forms of ICU"] == 1
    assert translated(file, shout) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("> [!NOTE]\n> Open it.\n", "> [!NOTE]\n> OPEN IT.\n"),
        ("Since $a_1 * b_2$ is $x$.\n", "SINCE $a_1 * b_2$ IS $x$.\n"),
        ("It costs $5 or $6.\n", "IT COSTS $5 OR $6.\n"),
        ("$$\na = b\n$$\n\nSo.\n", "$$\na = b\n$$\n\nSO.\n"),
        ('!!! note "Title"\n\nText.\n', '!!! note "Title"\n\nTEXT.\n'),
        (":::tip\n\nText.\n\n:::\n", ":::tip\n\nTEXT.\n\n:::\n"),
        (
            "import Tabs from '@theme/Tabs';\n\nText.\n",
            "import Tabs from '@theme/Tabs';\n\nTEXT.\n",
        ),
        ("export const a = 1;\n\nText.\n", "export const a = 1;\n\nTEXT.\n"),
        (
            "---\n\nA rule, no setting.\n\n---\n\nText.\n",
            "---\n\nA RULE, NO SETTING.\n\n---\n\nTEXT.\n",
        ),
        ("---\ntitle: It\n---\n\nText.\n", "---\ntitle: It\n---\n\nTEXT.\n"),
        ('+++\n# why\ntitle = "It"\n+++\n\nText.\n', '+++\n# why\ntitle = "It"\n+++\n\nTEXT.\n'),
    ],
)
def test_dialects_of_markdown_keep_what_is_no_text(text, expected):
    assert translated(read("a.md", text.encode()), shout).decode() == expected


def test_subtitles_need_no_empty_lines_between():
    data = b"1\n00:00:01,000 --> 00:00:02,000\nOpen.\n2\n00:00:03,000 --> 00:00:04,000\n7\nClose.\n"
    file = read("a.srt", data)
    assert [segment.plain for segment in file.segments] == [
        "Open.",
        "7Close.",
    ]  # the break is a mark
    assert translated(file, shout) == data.replace(b"Open", b"OPEN").replace(b"Close", b"CLOSE")


def test_words_of_a_pair_are_found_where_no_mark_goes_on_with_them():
    assert _once("हिन्द", "हिन्दी हिन्द") == (7, 12)
    assert _once("red", "The Red, re\u0301d and reddish") == (4, 7)
    assert _once("red", "red Red") is None


REPEATED = {
    ".html": [
        "<a ",
        "<a b='",
        "<!--",
        "<em></strong>",
        "<b>x</b> ",
        "<meta charset=",
        "<br>",
        "&a",
    ],
    ".md": [
        "a_",
        "www.a.",
        "a__",
        "[^",
        "[",
        "![a](b) ",
        "<a ",
        "<!--",
        "`a",
        "*a_",
        "{%",
        "a|b\n",
    ],
    ".txt": ["a. ", "1. ", "{%", "{a,b,", "www.a.", "%0", "<a b "],
    ".po": ['msgid "a"\nmsgstr ""\n\n', "# a\n"],
    ".srt": ["1\n00:00:01,000 --> 00:00:02,000\na\n\n", "1\n"],
    ".xliff": ["<a ", "<g>", "<!--"],
}


def seconds_to_read(suffix, text):
    begun = time.process_time()
    try:
        BY_SUFFIX[suffix](text.encode())
    except ValueError:
        pass
    return time.process_time() - begun


@pytest.mark.parametrize(("suffix", "text"), [(".html", "<a " * 16_000), (".md", "a_" * 16_000)])
def test_reading_takes_time_in_proportion_to_the_size(suffix, text):
    """These took 26 and 9 seconds."""
    assert seconds_to_read(suffix, text) < 2


@pytest.mark.slow
@pytest.mark.parametrize("suffix", REPEATED)
def test_whatever_is_repeated_takes_time_in_proportion_to_the_size(suffix):
    for unit in REPEATED[suffix]:
        for end in ("", ">", "-->", "](x)", "%}"):
            seconds = seconds_to_read(suffix, unit * (48_000 // len(unit)) + end)
            assert seconds < 5, (unit, end, seconds)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Subtitles, "1\n00:00:01,000 --> 00:00:02,000\n" + "a b\n" * 3000),
        (MarkdownFile, "a b\n" * 3000),
        (HtmlFile, "<p>" + "<b>a b</b> " * 3000),
        (HtmlFile, "<p>" + "<b>a " * 3000 + "</b>" * 3000),
    ],
)
def test_translating_takes_time_in_proportion_to_the_marks_of_a_sentence(kind, text):
    """The first two took 9 and 6 seconds."""
    begun = time.process_time()
    file = kind(text.encode())
    file.rebuilt(FileTranslator(shout, split).translate([file])[0])
    assert time.process_time() - begun < 3


def test_many_marks_in_a_sentence_are_named_in_linear_time():
    begun = time.process_time()
    shown = Shown.create(("a", *[Mark("<wbr>")] * 5000, "b <x1/>"))
    assert time.process_time() - begun < 2
    assert shown.text.startswith("a<x2/><x3/>") and "<x5001/>b" in shown.text


def test_a_file_whose_last_tag_has_no_end_is_refused():
    for text in ("<p>a</p><b", "<p>a <a href=b\n< c", "<p>a</p></"):
        if text.endswith("/"):
            HtmlFile(text.encode())
        else:
            with pytest.raises(ValueError, match="line 1: the end of .* is missing"):
                HtmlFile(text.encode())
