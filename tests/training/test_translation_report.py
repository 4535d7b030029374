"""Claims about what is reported of translations."""

import pytest
import sacrebleu

from keras_transformers.core.words import kept_placeables, placeables
from keras_transformers.training import compare_translations, count_words, report_translations

SOURCES = ["Open {name}", "Delete 1,200 files", "<b>Save</b> as %s", "Cancel", "the the the end"]
REFERENCES = [
    "{name} öffnen",
    "1.200 Dateien löschen",
    "<b>Speichern</b> als %s",
    "Abbrechen",
    "ein Ende",
]
TRANSLATIONS = [
    "{name} öffnen",
    "1200 Dateien",
    "Speichern als %s",
    "Cancel",
    "das das das das das Ende",
]


def test_scores_are_sacrebleus():
    found = report_translations(SOURCES, REFERENCES, TRANSLATIONS)
    assert found.scores["bleu"] == sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score
    assert found.scores["chrf"] == sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score
    plus = sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES], word_order=2).score
    assert found.scores["chrf++"] == plus
    assert found.scores["ter"] == sacrebleu.corpus_ter(TRANSLATIONS, [REFERENCES]).score
    assert "nw:2" in found.signatures["chrf++"]


def test_chinese_is_counted_by_its_own_rules():
    chinese = ["我喜欢猫，也喜欢狗。", "请打开门！"]
    report = report_translations(["a", "b"], chinese, ["我喜欢猫。", "请打开门！"])
    ter = sacrebleu.corpus_ter(
        ["我喜欢猫。", "请打开门！"], [chinese], normalized=True, asian_support=True
    )
    assert report.scores["ter"] == ter.score and "tok:zh" in report.signatures["bleu"]


def test_errors_are_counted_where_they_are():
    seen = count_words(["Dateien löschen"] * 6)
    found = report_translations(SOURCES, REFERENCES, TRANSLATIONS, seen)
    assert found.faults == {"empty": 0, "copied": 1, "repeating": 1, "short": 0, "long": 1}
    assert found.placeables == {"tag": (0, 2), "placeholder": (2, 2), "number": (1, 1)}
    assert [(row["words"], row["sentences"]) for row in found.by_length] == [("0-2", 2), ("3-5", 3)]
    often = {row["seen"]: (row["words"], row["found"]) for row in found.by_frequency}
    assert often["6-50"] == (2, 1)  # Dateien, löschen
    total = sum(len(sorted(count_words([each]).elements())) for each in REFERENCES)
    assert sum(words for words, _ in often.values()) == total


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't ask, ask!", ["don", "t", "ask", "ask"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs and viramas
        ("e\u0301te\u0301", ["été"]),
        ("我喜欢猫。", ["我", "喜", "欢", "猫"]),
    ],
)
def test_words_of_every_script_are_counted(text, words):
    assert sorted(count_words([text]).elements()) == sorted(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100% sure, 5 % more", ["100", "5"]),
        ("%1$s of %2$d, %(count)d, %-5.2f", ["%1$s", "%2$d", "%(count)d", "%-5.2f"]),
        ("{0} {} ${var} {{ user.name }}", ["{0}", "{}", "${var}", "{{ user.name }}"]),
        ('<a href="x">y</a> 3 < 4 &amp; 5', ['<a href="x">', "</a>", "3", "4", "&amp;", "5"]),
        ("See https://a.org/b, or me@a.org.", ["https://a.org/b", "me@a.org"]),
        ("Qt's %1 and %L2", ["%1", "%L2"]),
        ("1,234.5 = 1.234,5", ["12345", "12345"]),
        ("a < b and c > d", []),
    ],
)
def test_placeables_are_found(text, expected):
    assert [what for _, what in placeables(text)] == expected


def test_what_no_reference_keeps_need_not_be_kept():
    assert kept_placeables([("5 files", "fünf Dateien", "Dateien")]) == {}


def test_the_better_system_is_told_from_luck():
    references = [f"the {word} is on the table {i}" for i, word in enumerate(["cat", "dog"] * 40)]
    worse = [text.replace("table", "chair") if i % 2 else text for i, text in enumerate(references)]
    found = compare_translations({"a": worse, "b": references, "c": worse}, references, samples=200)
    assert found["bleu"]["a"].p_value is None
    assert found["bleu"]["b"].p_value < 0.02
    assert found["chrf"]["b"].score == pytest.approx(100)
    assert found["bleu"]["c"].p_value == 1  # sacreBLEU says 0.005 of the same translations
    with pytest.raises(ValueError, match="two or more"):
        compare_translations({"a": worse}, references)
    with pytest.raises(ValueError, match="some of bleu, chrf.*'comet'"):
        compare_translations({"a": worse, "b": worse}, references, metrics=["comet"])
