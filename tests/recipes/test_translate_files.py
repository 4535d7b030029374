"""Claims about `recipes.translate_files`: what it writes, and what it refuses."""

import json
import sys
from importlib.util import find_spec

import pytest

from recipes import translate_files
from tests.loading.saved import save_shouter
from tests.localization.samples import MARKDOWN, PO, SAMPLES

pytestmark = pytest.mark.skipif(not find_spec("sentencex"), reason="needs sentencex")


@pytest.fixture(scope="module")
def shouter(tmp_path_factory):
    """A translator that writes in capitals, tags too."""
    return str(save_shouter(tmp_path_factory.mktemp("shouter")))


@pytest.fixture
def folder(tmp_path):
    for name, data in SAMPLES.items():
        (tmp_path / "in" / name[2:]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name[2:] / name).write_bytes(data)
    return tmp_path


def translate(shouter, folder, *files, **options):
    config = translate_files.Config(shouter, files, str(folder / "out"), **options)
    return translate_files.run(config)


def test_files_of_all_formats_are_translated_at_once(shouter, folder):
    report = translate(shouter, folder, str(folder / "in" / "**" / "*"))
    assert report["files"] == len(SAMPLES) and report["sentences left as they are"] == 0
    for name, data in SAMPLES.items():
        written = (folder / "out" / name[2:] / name).read_bytes()
        assert written != data
        assert report["by file"][str(folder / "in" / name[2:] / name)]["segments"] >= 2
    assert b"KEPT" not in (folder / "out" / "md" / "a.md").read_bytes()
    assert json.loads((folder / "out" / "report.json").read_text()) == report
    assert report["texts left as they are"]["in code blocks"] == 2


def test_messages_that_are_translated_wait_for_all(shouter, folder):
    path = str(folder / "in" / "po" / "a.po")
    assert translate(shouter, folder, path)["texts left as they are"]["already translated"] == 1
    report = translate(shouter, folder, path, all=True, overwrite=True)
    assert "already translated" not in report["texts left as they are"]
    assert b'msgstr "DONE"' in (folder / "out" / "a.po").read_bytes()


def test_nothing_is_written_over(shouter, folder):
    path = folder / "in" / "md" / "a.md"
    translate(shouter, folder, str(path))
    with pytest.raises(ValueError, match=r"a.md is there already; .* or --overwrite"):
        translate(shouter, folder, str(path))
    config = translate_files.Config(shouter, (str(path),), str(path.parent), overwrite=True)
    with pytest.raises(ValueError, match="a.md would be written over"):
        translate_files.run(config)
    assert path.read_bytes() == MARKDOWN


def test_a_damaged_file_among_others_writes_nothing(shouter, folder):
    bad = folder / "in" / "po" / "bad.po"
    bad.write_bytes(PO + b"msgid no quotes\n")
    with pytest.raises(ValueError, match=r"bad.po, line 36: must be a string in quotes"):
        translate(shouter, folder, str(folder / "in" / "**" / "*"))
    assert not (folder / "out").exists()


def test_bad_input_ends_in_a_sentence(shouter, folder, monkeypatch):
    (folder / "a.pdf").write_bytes(b"%PDF")
    for name, said in (("none.md", "there is no such file"), ("a.pdf", "must end in .docx")):
        arguments = ["translate_files.py", shouter, str(folder / name)]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match=rf"recipes.translate_files: .*{name}: {said}"):
            translate_files.main()


class Reader:
    """A predictor that notes what it is asked for."""

    kind = "translator"

    def __init__(self, context):
        self.context, self.asked = context, []

    def each(self, texts, batch_size, details):
        self.asked += texts
        for text in texts:
            yield {"translation": text.rpartition("\x1e")[2].upper(), "truncated": False}


@pytest.mark.parametrize(("trained", "asked"), [(2, None), (2, 1), (2, 0), (0, None)])
def test_a_model_reads_as_many_previous_sentences_as_it_was_trained_with(
    trained, asked, tmp_path, monkeypatch
):
    reader = Reader(trained)
    monkeypatch.setattr(translate_files, "load_translator", lambda *given: reader)
    (tmp_path / "a.txt").write_text("It is old.\nThe door.\n\nGo in.\n")
    translate("folder", tmp_path, str(tmp_path / "a.txt"), context=asked)
    sentences = ["It is old.", "The door.", "Go in."]
    most = trained if asked is None else asked
    expected = ["\x1e".join(sentences[max(i - most, 0) : i + 1]) for i in range(3)]
    assert reader.asked == expected
    assert (tmp_path / "out" / "a.txt").read_text() == "IT IS OLD.\nTHE DOOR.\n\nGO IN.\n"


@pytest.mark.parametrize(("trained", "said"), [(0, "no"), (2, "up to 2")])
def test_more_context_than_a_model_was_trained_with_is_refused(
    trained, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(translate_files, "load_translator", lambda *given: Reader(trained))
    (tmp_path / "a.txt").write_text("It is old.")
    with pytest.raises(ValueError, match=f"trained with {said} previous sentences. Received: 3"):
        translate("folder", tmp_path, str(tmp_path / "a.txt"), context=3)
