"""Claims about XML as it stands in files: another parser finds the same, and all bytes stay."""

import html
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.localization import XliffFile
from keras_transformers.localization.xml_files import malformed, pieces

needs_lxml = pytest.mark.skipif(not find_spec("lxml"), reason="needs lxml, which python-docx has")
TEXTS = ["one ", "\r\n  ", "ä&amp;&#228;&#x1F600;", "a > b", "'\"", "<![CDATA[<c d='e'>&f;\n]]>"]
OTHERS = ["<!-- <g> - -->", "<?pi <h> ?>"]
TAGS = ["a", "a:b", "ä.c-1"]
ATTRIBUTES = ["", " i='1'", '\n j = "&lt;\'/>"', " i='\"' \t k:l='m>n'  "]


def element(inside):
    """XML elements with any content; an empty one may be written as one tag."""
    parts = st.tuples(st.sampled_from(TAGS), st.sampled_from(ATTRIBUTES), st.lists(inside))
    with_two_tags = parts.map(lambda x: f"<{x[0]}{x[1]}>{''.join(x[2])}</{x[0]} >")
    return with_two_tags | parts.map(lambda x: f"<{x[0]}{x[1]}/>")


ELEMENTS = element(st.recursive(st.sampled_from(TEXTS + OTHERS), element, max_leaves=12))
NAMESPACES = ' xmlns:a="urn:a" xmlns:k="urn:k"'
DECLARED = ["", '<?xml version="1.0"?>\n', "\ufeff", "<!-- c -->\r\n<!DOCTYPE root>"]


def events_of_lxml(text):
    """Tags and attributes with prefixes, comments, and all text between them, by libxml2."""
    from lxml import etree

    parser = etree.XMLPullParser(("start", "end", "comment", "pi"), resolve_entities=False)
    parser.feed(text.removeprefix("\ufeff").encode())
    parser.close()
    prefixes = {"urn:a": "a", "urn:k": "k"}

    def prefixed(name):
        name = etree.QName(name)
        return f"{prefixes[name.namespace]}:{name.localname}" if name.namespace else name.localname

    for event, node in parser.read_events():
        if event in ("comment", "pi"):
            yield "other" if node.getparent() is not None else "outside"
        elif event == "start":
            yield "start", prefixed(node.tag), {prefixed(x): y for x, y in node.attrib.items()}
            yield "text", node.text or ""
            continue
        else:
            yield "end", prefixed(node.tag)
        if node.getparent() is not None:
            yield "text", node.tail or ""


def events_of_pieces(text):
    """The same of the pieces, of which a reader of XML takes references and line ends apart."""
    depth = 0
    for piece in pieces(text):
        raw = text[piece.start : piece.end]
        name = piece.prefix + piece.name
        if piece.kind in ("start", "empty"):
            names = {x: " ".join(y.split("\n")) for x, y in piece.attributes.items()}
            yield "start", name, {x: y for x, y in names.items() if not x.startswith("xmlns:")}
            depth += 1
        if piece.kind in ("end", "empty"):
            yield "end", name
            depth -= 1
        if piece.kind == "other" and not raw.startswith(("<?xml ", "<!DOCTYPE")):
            yield "other" if depth else "outside"
        if piece.kind in ("text", "data") and depth:
            raw = raw.replace("\r\n", "\n")
            yield "text", raw[9:-3] if piece.kind == "data" else html.unescape(raw)


def merged(events):
    """Events whose neighbouring texts are one."""
    found = []
    for event in events:
        if event[0] == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + event[1])
        else:
            found.append(event)
    return [event for event in found if event != ("text", "")]


@needs_lxml
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DECLARED), st.lists(ELEMENTS, max_size=3), st.sampled_from(["", *OTHERS]))
def test_another_parser_finds_the_same_pieces(before, elements, behind):
    text = f"{before}<root{NAMESPACES}>{''.join(elements)}</root>\n{behind}"
    assert malformed(text) is None
    found = list(pieces(text))
    assert [piece.end for piece in found[:-1]] == [piece.start for piece in found[1:]]
    assert (found[0].start, found[-1].end) == (0, len(text))
    assert merged(events_of_pieces(text)) == merged(events_of_lxml(text))


UNIT = "<trans-unit id='1'><source>Open</source></trans-unit>"
NEW = UNIT.replace("</source>", "</source><target>Auf</target>")


@pytest.mark.parametrize(
    "form",
    [
        "<xliff\n version = '1.2' >{}</xliff >\n\n",
        "<xliff><?a b?><!-- <trans-unit> --><note><![CDATA[</xliff>]]></note>{}</xliff>",
        "<!DOCTYPE xliff [<!ELEMENT xliff ANY><!-- ' --><!ATTLIST xliff a CDATA '>'>]>\n"
        "<xliff>{}</xliff>",
        "<xliff>\r\n\t{}\r\n<x a=\"'\" b='&#10;&quot;'></x></xliff>",
        "<?xml version='1.0' encoding='UTF-8' standalone='yes'?><xliff>&#x41;\u00e4{}</xliff>",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_all_but_the_translation_stays_as_it_is(form, encoding):
    form = form.replace("UTF-8", encoding.removesuffix("-sig"))
    data = form.format(UNIT).encode(encoding)
    assert XliffFile(data).rebuilt([("Auf",)]) == form.format(NEW).encode(encoding)


def test_an_entity_that_grows_without_end_is_refused_before_it_grows():
    entities = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    text = f'<!DOCTYPE xliff [<!ENTITY e0 "ha">{entities}]>\n<xliff>&e9;</xliff>'
    with pytest.raises(ValueError, match="line 1: entities must not be declared|limit on input"):
        XliffFile(text.encode())


def test_entities_of_other_files_are_refused():
    text = '<!DOCTYPE xliff [\n<!ENTITY e SYSTEM "file:///etc/passwd">]>\n<xliff>&e;</xliff>'
    with pytest.raises(ValueError, match="line 2: entities must not be declared"):
        XliffFile(text.encode())
