"""A file of each format with what makes it hard, and translators that are not good ones."""

import io
import re
import zipfile

MARKDOWN = b"""---
title: Kept
---
# The *first* heading \\* &amp; more ##

<p align="center">
  <b>Hello</b> there <img alt="A dog" src="x">
</p>

> A paragraph **in bold
> over** two lines with [a link](u 'ti') ![some image](s)
> after a hard break `code d` <b>x</b> <http://a.b> [r] and snake_case 2 * 3[^1].

1. one
   two
2. [ ] a task
   - Nested item. With two
     sentences.

| head | b\\|c |
|--|:--|
| cell **bold** | `e` |

```python
print("kept")
```

    kept too

[r]: http://kept
[^1]: The footnote has text.

Setext
heading
===
Last *unclosed and https://kept.y/z_a_b?c=d. Done
"""

HTML = b"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>A page</title>
<meta name="description" content="What it is &amp; does"><style>p > a { color: kept }</style>
<script>if (a < b) alert("kept")</script></head>
<body class=kept>
<h1>Hello &amp; welcome</h1><!-- kept -->
<p>Click <a href="x?a=1&b=2"
   title="The &quot;title&quot;">a link</a> to go on.
   Run <code>kept</code> now. <b>Two sentences. In bold.</b>
   AT&amp;T &copy; 2020 <img src=a alt="A dog"> here.<br>7 > 6.
<ul><li>One<li>Two &nbsp; <em>three</em></ul>
<pre>kept</pre>
<p translate="no">kept</p><p>A <span class="notranslate">kept</span> thing.</p>
<input type="submit" value="Send it"> <textarea>kept</textarea>
</body></html>
"""

PO = rb"""# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=n != 1;\n"

#, fuzzy
#~ msgid "old"
#~ msgstr "alt"

#: a.c:1
#, c-format
msgid "Open %s and %d \"now\""
msgstr ""

#, python-format
msgid "%(count)d file"
msgid_plural "%(count)d files"
msgstr[0] ""
msgstr[1] ""

msgctxt "menu"
msgid ""
"A long message that goes over more than one line because it is long. It has "
"two sentences.\n"
"And a line.\n"
"  An item:\tfoo\\bar\n"
msgstr ""

#, fuzzy
msgid "Unclear"
msgstr "Unklar"

msgid "Done"
msgstr "Fertig"
"""

XLIFF_1 = b"""<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
  <trans-unit id="1">
    <source>Open &amp; <g id="1">close &quot;it&quot;</g> <x id="2"/>.
    A <ph id="3">&lt;br/></ph>word.</source>
  </trans-unit>
  <trans-unit id="2" translate="no"><source>Kept</source></trans-unit>
  <trans-unit id="3"><source>Bar</source><target/></trans-unit>
  <trans-unit id="4"><source>Bar</source><target state="new"></target></trans-unit>
  <trans-unit id="5"><source>Bar</source><target>Riegel</target></trans-unit>
  <trans-unit id="6"><source>One. Two.</source><seg-source><mrk mid="0" mtype="seg">One.</mrk> <mrk
    mid="1" mtype="seg">Two.</mrk></seg-source></trans-unit>
 </body></file>
</xliff>
"""

XLIFF_2 = b"""<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"
 trgLang="de">
<file id="f"><unit id="1"><originalData><data id="d">%s</data></originalData><segment>
  <source>Save <pc id="1"><ph id="2" dataRef="d"/> files</pc> here.</source>
</segment><ignorable><source> </source></ignorable>
<segment><source>OK</source><target/></segment></unit>
<group id="g" translate="no"><unit id="2"><segment><source>Kept</source></segment></unit></group>
</file></xliff>
"""

SUBTITLES = b"""1
00:00:01,000 --> 00:00:02,500
He opened
<i>the</i> door. It was dark.

2
00:00:03,000 --> 00:00:04,000
- Who is there?
- {\\an8}Nobody. See https://kept.b/c.

3
00:00:05,000 --> 00:00:06,000
42
"""

TEXT = b"""A heading

  This is a paragraph whose lines are as long as those of mails,
so a sentence goes on. Another  one! 5 %
- An item
- Write to kept@example.com, {kept}
"""

_WORD = (
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><w:body>{}'
    "</w:body></w:document>"
)
_BOLD = "<w:rPr><w:b/></w:rPr>"
_PARAGRAPHS = (
    "<w:p><w:r><w:t>A title</w:t></w:r></w:p>"
    '<w:p><w:r><w:t xml:space="preserve">Click </w:t></w:r>'
    f"<w:r>{_BOLD}<w:t>Save</w:t></w:r>"
    '<w:r><w:t xml:space="preserve"> to sto</w:t></w:r><w:proofErr w:type="spellStart"/>'
    '<w:r w:rsidR="00A"><w:t>re &amp; go on. Then sleep.</w:t></w:r></w:p>'
    f"<w:p><w:r>{_BOLD}<w:t>All bold</w:t><w:tab/><w:t>After it</w:t></w:r></w:p>"
    "<w:p><w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:t>42</w:t></w:r></w:p>"
)
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
    'relationships/officeDocument" Target="word/document.xml"/></Relationships>'
)


def document(paragraphs=_PARAGRAPHS):
    """The bytes of a DOCX file."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELATIONS)
        archive.writestr("word/document.xml", _WORD.format(paragraphs))
        archive.writestr("word/media/image.png", b"\x00\x01kept")
    return written.getvalue()


SAMPLES = {
    "a.txt": TEXT,
    "a.md": MARKDOWN,
    "a.html": HTML,
    "a.po": PO,
    "a.xlf": XLIFF_1,
    "b.xlf": XLIFF_2,
    "a.srt": SUBTITLES,
    "a.docx": document(),
}
KEPT = re.compile(
    r"(<[^>]*>|%\(\w+\)d|%[sd]|\{[^}]*\}|https?://\S*[^\s.]|\S+@\S+\.com|kept|code d|\[\^1\]:?)"
)


def split(text):
    """Sentences, plainly."""
    return re.findall(r".*?[.!?]\s+(?=\S)|.+\Z", text, re.DOTALL)


def shout(texts):
    """In capitals, with all marks."""
    return [
        "".join(each if i % 2 else each.upper() for i, each in enumerate(KEPT.split(text)))
        for text in texts
    ]


def lose(texts):
    """In capitals, without what is no word."""
    return [re.sub(r"<[^>]*>|[^\w\s]", "", text).upper() for text in texts]
