"""Claims about glossaries: which terms are found, and which files are refused."""

import unicodedata

import pytest

from keras_transformers.localization import Glossary

TERMS = {
    "network": "Netz",
    "network device": "Netzgerät",
    "Home": "Home",
    "e-mail": "E-Mail",
    "C++": "C++",
}


@pytest.mark.parametrize(
    ("sentence", "phrases"),
    [
        ("The network is down.", ["Netz"]),
        ("NETWORK devices, Network  device", ["Netz", "Netzgerät"]),
        ("a networked home", []),
        ("Home is not home", ["Home"]),
        ("Send an E-mail in C++; e mail", ["E-Mail", "C++"]),
        ("network network", ["Netz", "Netz"]),
        ("", []),
    ],
)
def test_terms_are_whole_words_and_the_longest_counts(sentence, phrases):
    assert Glossary(TERMS).find(sentence) == phrases


def test_a_file_has_terms_phrases_and_perhaps_languages(tmp_path):
    path = tmp_path / "glossary.tsv"
    path.write_text("yes\tja\tde\n\nyes\toui\ten-fr\r\nok\tok\n", encoding="utf-8-sig")
    glossary = Glossary.read(path)
    assert len(glossary) == 3 and glossary.languages == ("de", "en-fr")
    assert glossary.towards("fr").find("Yes, OK") == ["oui", "ok"]
    assert glossary.towards("de").find("Yes") == ["ja"]
    with pytest.raises(ValueError, match="say which of the languages.*de, en-fr"):
        glossary.find("yes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yes\tja\nno\n", "line 2 of .* must be a term, a tab and a phrase"),
        ("yes\t\n", "line 1 of"),
        ("a\tb\tde\tx\n", "line 1 of"),
        ("yes\tja\nyes\tjawohl\n", "must have one phrase. Received for 'yes': 'ja' and 'jawohl'"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, text, message):
    path = tmp_path / "glossary.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"Glossary: .*{message}"):
        Glossary.read(path)


@pytest.mark.parametrize(
    ("term", "sentence", "is_found"),
    [
        ("网络", "请打开网络连接。", True),
        ("网络", "请打开网路。", False),
        ("設定", "設定を開く", True),
        ("ネット", "ネットワークを開く", False),  # inside a longer word
        ("ネットワーク", "ネットワークを開く", True),
        ("เครือข่าย", "เปิดเครือข่ายนี้", True),
        ("네트워크", "네트워크를 엽니다", True),
        ("네트워크", "네트워크에서 연결", True),
        ("네트", "네트워크를 엽니다", False),
        ("무선 네트워크", "무선 네트워크의 이름", True),
        ("Café", "Cafe\u0301 au lait", True),
        ("Cafe\u0301", "Caf\u00e9 au lait", True),
        ("don't", "You don\u2019t", True),
        ("l\u2019eau", "de l'eau", True),
        ("open", "reopened", False),
        # Small letters match large ones, those that casefolding changes too.
        ("groß", "Groß ist es", True),
        ("groß", "GROSS", True),
        ("Groß", "Groß ist es", True),
        ("Schließen", "Schließen Sie", True),
        ("Schließen", "schließen", False),
        ("λόγος", "Λόγος", True),
        ("λόγος", "ΛΌΓΟΣ", True),
        ("Λόγος", "ο Λόγος", True),
        # Combining marks belong to their words.
        ("हिन्दी", "हिन्दी भाषा", True),
        ("हिन्द", "हिन्दी भाषा", False),
        ("நிலை", "நிலையம்", False),
        ("কম", "কম্পিউটার", False),
        ("กา", "กาแฟ", True),
        ("ก", "กิน", False),
        ("q", "q\u0307", False),
        ("x\u0323", "x\u0323 y", True),
        ("خواهم", "می\u200cخواهم", False),
        ("می\u200cخواهم", "من می\u200cخواهم", True),
        # What changes the look of a letter alone is none.
        ("network", "net\u00adwork", True),
        ("葛", "葛\U000e0100飾", True),
    ],
)
def test_terms_of_every_script_are_found(term, sentence, is_found):
    assert Glossary({term: "X"}).find(sentence) == (["X"] if is_found else [])
    assert Glossary([(term, "X", "de")]).towards("de").find(sentence) == (["X"] if is_found else [])


def test_words_end_where_unicode_says():
    """Python's `str.isalnum` and the category of each character decide, for all characters."""
    for code in range(0x300, 0x3000):
        sign = chr(code)
        goes_on = unicodedata.category(sign)[0] == "M" or sign.isalnum() or sign in "\u200c\u200d"
        composed = unicodedata.normalize("NFC", f"ы{sign}") != f"ы{sign}"
        if composed or sign == "\u2060" or is_alone(code):
            continue
        assert bool(Glossary({"ы": "X"}).find(f"ы{sign}")) != goes_on, hex(code)


def is_alone(code):
    """Whether a letter is of a script without spaces, which begins a word anywhere."""
    is_mark = unicodedata.category(chr(code))[0] == "M"
    starts = (0xE00, 0xF00), (0x1000, 0x10A0), (0x1780, 0x1800)
    return not is_mark and any(low <= code < high for low, high in starts)
