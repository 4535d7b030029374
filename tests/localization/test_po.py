"""Claims about PO files: what gettext's own tools and another reader make of them."""

import gettext
import shutil
import subprocess
from importlib.util import find_spec

import pytest

from keras_transformers.localization import FileTranslator, PoFile
from tests.localization.samples import PO, lose, shout, split

HEADER = b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
FILES = b'\n#, c-format\nmsgid "%s file"\nmsgid_plural "%d files"\n'


def translated(data, ask=shout, again=False):
    file = PoFile(data, again=again)
    return file.rebuilt(FileTranslator(ask, split).translate([file])[0])


def plural(forms, singular=b"%d file"):
    """A PO file with a message in several forms, by `Plural-Forms`."""
    head = HEADER + b'"Plural-Forms: ' + forms + b'\\n"\n'
    count = int(forms[9:10])
    slots = b"".join(b'msgstr[%d] ""\n' % i for i in range(count))
    return head + FILES.replace(b"%s file", singular) + slots


@pytest.mark.skipif(not find_spec("polib"), reason="needs polib")
def test_another_reader_finds_the_same_messages():
    import polib

    before, after = (polib.pofile(each.decode()) for each in (PO, translated(PO)))
    assert len(before) == len(after) == 6
    for old, new in zip(before, after, strict=True):
        assert (old.msgid, old.msgctxt, old.flags, old.obsolete, old.occurrences) == (
            *(new.msgid, new.msgctxt, new.flags, new.obsolete, new.occurrences),
        )
        if old.msgstr or old.obsolete:
            assert new.msgstr == old.msgstr
    texts = {entry.msgid: entry.msgstr for entry in after}
    assert texts['Open %s and %d "now"'] == 'OPEN %s AND %d "NOW"'
    long = next(each for each in after if each.msgctxt == "menu")
    assert long.msgstr == long.msgid.upper()
    several = next(each for each in after if each.msgid_plural)
    assert list(several.msgstr_plural.values()) == ["%(count)d FILE", "%(count)d FILES"]
    assert max(map(len, translated(PO).decode().splitlines())) <= 79


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs gettext")
@pytest.mark.parametrize("ask", [shout, lose, lambda texts: [f"{x} % d{{}}" for x in texts]])
def test_gettext_compiles_it(ask, tmp_path):
    (tmp_path / "a.po").write_bytes(translated(PO, ask, again=True))
    command = ["msgfmt", "--check-format", "--check-header", "-o", tmp_path / "a.mo"]
    result = subprocess.run([*command, tmp_path / "a.po"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


HARD = rb"""# A comment
#. of a programmer "x"
#: a.c:1 b.c:2
#, c-format, fuzzy
#| msgctxt "before"
#| msgid "Old"
msgctxt "menu"
msgid   "Op\x65n\040%s\t\\ \"it\""
msgstr	""

msgid ""
"Wrapped in "
"two."
msgstr ""
# A comment at the end

#~ msgid "obsolete"
#~ msgstr "alt"
"""


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs gettext")
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("head", [HEADER, b"\xef\xbb\xbf" + HEADER], ids=["plain", "BOM"])
def test_gettext_reads_the_same_messages_and_no_other_byte_changes(head, end, tmp_path):
    data = (head + b"\n" + HARD).replace(b"\n", end)
    rebuilt = translated(data, list)
    (tmp_path / "a.po").write_bytes(rebuilt.removeprefix(b"\xef\xbb\xbf"))
    command = ["msgfmt", "--use-fuzzy", "-o", tmp_path / "a.mo", tmp_path / "a.po"]
    subprocess.run(command, check=True, capture_output=True)
    catalog = gettext.GNUTranslations(open(tmp_path / "a.mo", "rb"))
    for context, text in (("menu", 'Open %s\t\\ "it"'), (None, "Wrapped in two.")):
        entry = text if context is None else f"{context}\x04{text}"
        assert catalog._catalog[entry] == text
    new = [b'"Open %s\\t\\\\ \\"it\\""', b'"Wrapped in two."']
    expected = data.replace(b'msgstr\t""', b"msgstr\t" + new[0])
    expected = expected.replace(b'two."' + end + b'msgstr ""', b'two."' + end + b"msgstr " + new[1])
    assert rebuilt == expected


@pytest.mark.parametrize(
    ("forms", "singulars"),
    [
        (b"nplurals=1; plural=0;", []),
        (b"nplurals=2; plural=n != 1;", [0]),
        (b"nplurals=2; plural=n>1;", [0]),
        (b'nplurals=3; plural=n%10==1 \\n"\n"&& n%100!=11 ? 0 : n != 0 ? 1 : 2;', [0]),
        (b"nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n<11 ? 3 : n<100 ? 4 : 5;", [1]),
    ],
)
def test_the_form_of_one_is_the_singular(forms, singulars):
    forms = forms.replace(b'\\n"\n"', b"")
    found = PoFile(translated(plural(forms)), again=True).segments
    texts = [each.present for each in found]
    assert [i for i, text in enumerate(texts) if text == "%d FILE"] == singulars
    assert set(texts) <= {"%d FILE", "%d FILES"}


def test_a_singular_without_its_number_does_not_stand_for_21():
    forms = b"nplurals=2; plural=n%10 != 1;"
    found = PoFile(translated(plural(forms, b"one file")), again=True).segments
    assert [each.present for each in found] == ["%d FILES", "%d FILES"]
    found = PoFile(translated(plural(b"nplurals=2; plural=n != 1;", b"one file")), again=True)
    assert [each.present for each in found.segments] == ["ONE FILE", "%d FILES"]


def test_a_message_has_all_of_its_plural_forms_or_none():
    data = plural(b"nplurals=2; plural=n != 1;")
    assert translated(data, lambda texts: [None if "files" in x else x for x in texts]) == data


def test_numbers_of_forms_that_differ_are_refused():
    data = plural(b"nplurals=2; plural=n != 1;") + b'msgstr[2] ""\n'
    with pytest.raises(ValueError, match="line 9: must have 2 plural forms, .* Received: 3"):
        PoFile(data)
    with pytest.raises(ValueError, match="Plural-Forms: "):
        PoFile(plural(b"nplurals=2; plural=n +;"))


def test_translations_stay_unless_all_is_asked_for():
    file = PoFile(PO)
    assert file.left_out == {"fuzzy": 1, "already translated": 1}
    assert b'msgstr "Unklar"' in translated(PO) and b'msgstr "Fertig"' in translated(PO)
    again = translated(PO, again=True)
    assert b'#, fuzzy\nmsgid "Unclear"\nmsgstr "UNCLEAR"' in again
    assert b'msgstr "DONE"' in again and b'#~ msgstr "alt"' in again
    assert translated(again, again=True) == again


@pytest.mark.parametrize("said", ["Wert (%)", "%(value)s", "100 % r", "{value}", "%(value)r %d"])
def test_a_translation_with_another_format_is_left_out(said):
    data = HEADER + b'\n#, python-format\nmsgid "Value %(value)r"\nmsgstr ""\n'
    file = PoFile(data)
    assert file.rebuilt([(said,)]) == data
    assert file.left_out["whose translation has another format"] == 1
    assert b'msgstr "%(value)r: Wert"' in file.rebuilt([("%(value)r: Wert",)])


def test_counted_placeholders_keep_their_order():
    data = HEADER + b'\n#, c-format\nmsgid "%s in %d files"\nmsgstr ""\n'
    turned = translated(data, lambda texts: ["in %d Dateien %s" if "%" in x else x for x in texts])
    assert b'msgstr "%s in %d files"' in turned  # in pieces
    named = data.replace(b"%s", b"%(a)s").replace(b"%d", b"%(b)d")
    turned = translated(named, lambda texts: ["in %(b)d Dateien %(a)s"] * len(texts))
    assert b'msgstr "in %(b)d Dateien %(a)s"' in turned


def test_a_header_with_countless_plural_forms_costs_nothing():
    """It took 3.6 GB."""
    data = plural(b"nplurals=2; plural=n != 1;").replace(b"nplurals=2", b"nplurals=999999999999")
    with pytest.raises(ValueError, match="must have 999999999999 plural forms.*Received: 2"):
        PoFile(data)
