"""Texts, tables and labels as other programs write them: spreadsheets, notebooks, Hugging Face."""

import json

import numpy as np
import pytest

from keras_transformers.core.words import placeables
from keras_transformers.localization import MarkdownFile, Subtitles
from keras_transformers.tasks.classes import targets_of
from keras_transformers.tasks.fitting import class_scores
from keras_transformers.text import Glossary, read_labelled, read_pairs, read_tagged
from recipes.lib import rows
from tests.fitting.test_fitting import loaded
from tests.pretrained import folders

CONLL = "# de\n1\tAda\tB-PER\n2\tlacht\tO\n\n1\tBo\tB-PER\n"


def test_languages_are_not_exchanged_where_keys_change_places(tmp_path):
    lines = [{"en": "a cat", "de": "eine Katze"}, {"de": "ein Hund", "en": "a dog"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_pairs(tmp_path / "a.jsonl").sources == ["a cat", "a dog"]
    assert read_pairs([{"translation": line} for line in lines]).sources == ["a cat", "a dog"]


def test_a_column_of_a_spreadsheet_is_translated_and_nothing_else(tmp_path):
    (tmp_path / "in.csv").write_text('id,text\n1,"one, two"\n2,three\n')
    found = rows.find(str(tmp_path / "in.csv"), "text", "text")
    assert [row.content for row in found] == ["one, two", "three"]


def test_a_long_text_is_not_cut_without_a_word(tmp_path):
    with folders.eagerly():
        classifier = loaded("text_classifier", tmp_path / "bert")
        with pytest.warns(UserWarning, match="1 .*text.* cut"):
            classifier.predict(["the king", "the king and the queen " * 200])


def test_indicators_are_no_names_of_classes():
    texts = ["a", "b", "c"]
    corpus = read_labelled((texts, [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]), separator=",")
    assert (corpus.classes, corpus.labels) == (["0", "1"], [[1], [0, 1], []])


def test_texts_of_a_class_that_was_not_learned_are_no_right_answers():
    sure = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    scores = class_scores(sure, np.array([0, 1, 2]), ["a", "b", "new"])
    assert (scores["accuracy"], scores["rows"]) == (pytest.approx(2 / 3), 3)
    assert scores["of_unknown_classes"] == 1


def test_a_missing_label_makes_no_regression():
    targets = targets_of((["a", "b", "c"], [0, 1, None]), None, None, None, None)
    assert targets.problem_type == "single_label_classification"
    assert targets.classes == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("%{count} files", "%{count}"),
        ("Hello %name%!", "%name%"),
        ("{% if user %}Hi{% endif %}", "{% if user %}"),
    ],
)
def test_what_a_program_fills_in_is_no_text(text, kept):
    assert kept in [placeable for _, placeable in placeables(text)]


def texts_of(file):
    """What is given to the translator, of each segment."""
    return [[part for part in segment.parts if isinstance(part, str)] for segment in file.segments]


def test_marks_of_a_page_and_times_of_subtitles_are_no_text():
    page = MarkdownFile(b"> [!NOTE]\n> Read this.\n\nIt costs $x^2$.\n", "a.md")
    assert texts_of(page) == [["Read this."], ["It costs ", "."]]
    times = b"1\n00:00:01,000 --> 00:00:02,000\nHello\n2\n00:00:03,000 --> 00:00:04,000\nBye\n"
    subtitles = Subtitles(times, "a.srt")
    assert texts_of(subtitles) == [["Hello"], ["Bye"]]


def test_a_spreadsheet_saved_as_unicode_text_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes("Straße\tstreet\n".encode("utf-16"))
    (tmp_path / "a.tsv").write_bytes("Straße\tstreet\n".encode("utf-16"))
    assert read_pairs(tmp_path / "a.tsv").sources == ["Straße"]


def test_numbers_of_words_are_no_words(tmp_path):
    (tmp_path / "a.conll").write_text(CONLL)
    assert read_tagged(tmp_path / "a.conll").words == [["Ada", "lacht"], ["Bo"]]


def test_the_translations_of_a_run_are_read_again_as_they_were(tmp_path):
    (tmp_path / "a.tsv").write_text('He said ""yes""\tja\n"say ""no"""\tnein\n')
    assert len(read_pairs(tmp_path / "a.tsv")) == 2
    (tmp_path / "b.csv").write_text("source;target\na cat;eine Katze\n")
    assert read_pairs(tmp_path / "b.csv").targets == ["eine Katze"]
    (tmp_path / "c.csv").write_text(f"source,target\n{'x' * 140_000},y\n")
    assert len(read_pairs(tmp_path / "c.csv").sources[0]) == 140_000


def test_a_term_is_found_in_a_language_without_spaces():
    assert Glossary({"网络": "network"}).find("请打开网络连接。") == ["network"]
