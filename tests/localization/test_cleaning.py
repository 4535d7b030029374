"""Claims about `localization`: what each filter drops, what it leaves, and that counts add up."""

import collections
import importlib.util
import json
import lzma
import pathlib
import statistics
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers import localization
from keras_transformers.localization import pair_cleaner, pair_filters
from keras_transformers.localization.pair_filters import Hashes

DATA = pathlib.Path(__file__).parent.parent.parent / "recipes" / "data"
SENTENCE = "Please close all open windows"
SATZ = "Bitte alle offenen Fenster schließen"

# Filter, a pair that it drops, and its neighbour that it keeps.
NEIGHBOURS = [
    (localization.Empty(), ("a", " \u00a0"), ("a", "b")),
    (localization.TooShort(words=3), ("a b", "a b c"), ("a b d", "a b c")),
    (localization.TooShort(characters=3), ("ab", "abc"), ("abc", "abc")),
    (localization.TooLong(words=3), ("a b c d", "a"), ("a b c", "a")),
    (localization.TooLong(characters=5), ("a", "猫在桌子上面"), ("a", "猫在桌子上")),
    (localization.LengthRatio(scale=1.0), ("a" * 61, "b" * 20), ("a" * 60, "b" * 20)),
    (localization.LengthRatio(scale=0.3), ("a" * 60, "猫" * 5), ("a" * 60, "猫" * 7)),
    (
        localization.LengthRatio(scale=1.0),
        ("OK" * 15, "ja"),
        ("OK" * 14, "ja"),
    ),  # too short to judge
    (localization.Copies(), (SENTENCE, f" {SENTENCE.upper()} "), (SENTENCE, f"{SENTENCE}!")),
    (localization.Copies(), (SENTENCE, SENTENCE), ("Wake on LAN 12", "Wake on LAN 12")),
    (localization.FewLetters(), ("abc", "--- === ab"), ("abc", "--- === abcdef")),
    (localization.FewLetters(), ("12", "12"), ("16:00 hour", "16:00 Uhr")),
    (localization.FewLetters(), ("a", "<b>%s</b>"), ("a", "<b>a</b>")),
    (localization.FewLetters(0.75), ("a", "हिन्दी ---"), ("a", "हिन्दी --")),  # with signs of vowels
    (localization.Encoding(), ("a", "K\ufffdse"), ("a", "Käse")),
    (localization.Encoding(), ("a", "KÃ¤se"), ("a", "„IRMÔ, IRMÃ»")),
    (localization.Encoding(), ("a\x07b", "a"), ("a\tb", "a")),
    (localization.Encoding(), ("a", "ÐºÐ¾Ñ‚"), ("a", "кот, Ð")),
    (localization.Placeables("tag"), ("<b>a</b>", "<b>a"), ("<b>a</b>", "<b>a</b>")),
    (localization.Placeables("placeholder"), ("{n} a", "{m} a"), ("%1$s {n}", "{n} %1$s")),
    (localization.Placeables("address"), ("a https://a.b/c", "a"), ("https://a.b", "https://a.b")),
    (localization.Placeables("entity"), ("a &amp; b", "a b"), ("a & b", "a b")),
    (localization.Placeables("number"), ("5 cats", "4 Katzen"), ("5 cats", "5 Katzen")),
    (
        localization.Placeables("number"),
        ("9/11/2020 a", "12.11.2020 a"),
        ("9/11/2020", "9.11.2020"),
    ),
    (localization.Placeables("number", alone=2), ("1 2", "one two"), ("1 cat", "eine Katze")),
    (localization.Placeables("number", 0.5), ("1 2 3", "1 4 5"), ("1 2 3", "1 2 5")),
    (localization.Brackets(), ("a (b)", "a (b"), ("a (b)", "a – b")),
    (localization.Brackets(), ("[a] b", "[a b"), ("a) b (c)", "b (c)")),
    (localization.Brackets(), ("(a) b", "(a b"), ("(a b", "(a b")),
    (localization.Quotes(), ('a "b" c', 'a "b c'), ('a "b" c', "a „b“ c")),
    (localization.Scripts("latin", "cyrillic"), ("a cat", "a cat"), ("a cat", "кот OK")),
    (localization.Scripts(None, "han+kana"), ("a", "cat"), ("a", "ネコと猫")),
    (localization.Own("no a", lambda source, target: "a" in source), ("b", "b"), ("a", "b")),
]


@pytest.mark.parametrize(("one", "dropped", "kept"), NEIGHBOURS)
def test_each_filter_drops_its_pair_and_keeps_the_neighbour(one, dropped, kept):
    assert not one.keeps(*dropped)
    assert one.keeps(*kept)


@pytest.mark.parametrize(
    ("of", "near", "expected"),
    [
        ("pair", False, [True, True, True, True, False]),
        ("source", False, [True, False, True, True, False]),
        ("target", False, [True, True, False, True, False]),
        ("pair", True, [True, True, True, False, False]),
    ],
)
def test_duplicates_are_what_came_before(of, near, expected):
    pairs = [("a 1", "A"), ("a 1", "B"), ("b", "B"), ("A 22.", "a!"), ("a 1", "A")]
    one = localization.Duplicates(of, near)
    for _ in range(2):  # each start forgets
        seen = one.started()
        assert [seen.keeps(*pair) for pair in pairs] == expected


def test_texts_without_letters_are_no_near_duplicates():
    seen = localization.Duplicates(near=True).started()
    assert all(seen.keeps(text, text) for text in ("1", "2", "+", "-"))


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 600), max_size=3000))
@settings(max_examples=20, deadline=None)
def test_hashes_are_a_set(numbers):
    found, known = Hashes(), set()
    for number in numbers:
        number = number or 1  # which 0 stands for
        assert found.add(number) == (number not in known)
        known.add(number)
    assert len(found) == len(known)


def test_hashes_take_at_most_sixteen_bytes_each():
    tracemalloc.start()
    found, number = Hashes(), 1
    for _ in range(50_000):
        number = number * 6364136223846793005 % 2**64 + 1
        found.add(number)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # And an array's own 80 bytes in each of 256 parts.
    assert 8 * len(found) < size < 16.5 * len(found) + 256 * 120


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize(
    "text", ["Käse für „Süße“ – 5 °C", "Ça coûte 5 €", "кот и пёс", "猫在桌子上", "😀 ş"]
)
def test_misread_utf8_is_found_and_repaired(text, encoding):
    broken = text.encode()
    if encoding == "cp1252":  # as browsers do it, where a byte stands for nothing
        broken = "".join(bytes([x]).decode("cp1252", "replace") for x in broken)
        broken = "".join(
            chr(x) if y == "\ufffd" else y for x, y in zip(text.encode(), broken, strict=True)
        )
    else:
        broken = broken.decode(encoding)
    assert localization.damaged(broken)
    assert localization.repaired(broken) == text
    assert localization.repaired(f"{broken} 好") == f"{text} 好"  # beside what is in order


def test_sets_of_the_recipes_have_no_damage_and_all_of_theirs_is_repaired():
    with lzma.open(DATA / "ui.en-de" / "test.tsv.xz", "rt", encoding="utf-8") as file:
        texts = [text for line in file for text in line.rstrip("\n").split("\t")]
    assert not any(map(localization.damaged, texts))
    for text in texts:
        broken = text.encode().decode("latin-1")
        assert localization.damaged(broken) == (broken != text)
        assert localization.repaired(broken) == text


def test_what_could_be_repaired_is_counted_and_repaired_only_when_asked():
    pairs = [("cheese", "KÃ¤se"), ("cheese", "K\ufffdse"), ("a\x96b", "a – b")]
    cleaner = localization.PairCleaner([localization.Encoding()])
    assert [x.reason for x in cleaner.clean(pairs)] == ["encoding damage"] * 3
    assert list(cleaner.report.noted.values()) == [2]
    cleaner = localization.PairCleaner([localization.Encoding()], repair=True)
    kept = [x[:2] for x in cleaner.clean(pairs) if x.reason is None]
    assert kept == [("cheese", "Käse"), ("a–b", "a – b")]
    assert list(cleaner.report.noted.values()) == [2]


def test_the_ratio_of_lengths_follows_from_the_corpus():
    chinese = [("word " * n, "字" * n) for n in range(10, 60)]
    cleaner = localization.PairCleaner().fitted([*chinese, (SENTENCE * 4, "字" * 3)])
    assert cleaner.filters[-1].scale == pytest.approx(0.2, rel=0.03)  # without the last space
    reasons = [x.reason for x in cleaner.clean([*chinese, (SENTENCE * 4, "字" * 3)])]
    assert reasons == [None] * 50 + ["length ratio"]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=150))
def test_lengths_are_summed_up_as_those_of_the_sorted_numbers(numbers):
    ordered, counts = sorted(numbers), collections.Counter(numbers)
    summary = pair_cleaner._summary(counts)
    assert summary.pop("mean") == pytest.approx(statistics.fmean(numbers))
    at_95 = ordered[-(-95 * len(numbers) // 100) - 1]
    median = statistics.median_low(numbers)
    assert list(summary.values()) == [ordered[0], median, at_95, ordered[-1]]
    assert pair_filters._median(counts) == median
    assert json.loads(json.dumps(summary)) == summary


def test_no_lengths_have_no_summary():
    assert pair_cleaner._summary(collections.Counter()) == {}
    assert pair_filters._median({}) == 0


TEXTS = st.text(st.sampled_from('ab Ã¤1 .()"<>{}ñ字\ufffd\x07'), max_size=50)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS) | st.just("without a tab"), max_size=60)


@given(PAIRS, st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_counts_add_up_order_is_kept_and_a_second_run_drops_nothing(rows, repair, near):
    filters = localization.default_filters()
    if near:
        filters.insert(-1, localization.Duplicates(near=True))
    cleaner = localization.PairCleaner(filters, repair).fitted(rows)
    judged = list(cleaner.clean(rows))
    report = cleaner.report
    assert len(judged) == report.read == len(rows) == report.kept + report.dropped.total()
    kept = [pair[:2] for pair in judged if pair.reason is None]
    assert len(kept) == report.kept
    if not repair:
        stripped = [tuple(map(str.strip, row)) for row in rows if not isinstance(row, str)]
        left = iter(stripped)
        assert all(pair in left for pair in kept)  # a subsequence
    again = localization.PairCleaner(filters, repair).fitted(kept)
    assert [pair[:2] for pair in again.clean(kept) if pair.reason is None] == kept
    assert report.markdown().startswith(f"{len(rows):,} rows read, {len(kept):,} stay")


def test_a_clean_corpus_stays():
    pairs = [(f"{SENTENCE} of {chr(97 + i)}", f"{SATZ} von {chr(97 + i)}") for i in range(26)]
    cleaner = localization.PairCleaner().fitted(pairs)
    assert [pair[:2] for pair in cleaner.clean(pairs)] == pairs
    assert cleaner.report.dropped.total() == 0


def test_the_first_reason_counts_and_users_order_them():
    pair = [("", "")]
    for filters in ([localization.Empty(), localization.FewLetters()], [localization.FewLetters()]):
        cleaner = localization.PairCleaner(filters)
        assert next(cleaner.clean(pair)).reason == filters[0].name


def test_pairs_stream_through():
    def endless():
        number = 0
        while True:
            number += 1
            yield f"cat {number}", f"Katze {number}"

    judged = localization.PairCleaner([localization.Empty(), localization.Duplicates()]).clean(
        endless()
    )
    assert [next(judged).source for _ in range(3)] == ["cat 1", "cat 2", "cat 3"]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="a name of its own"):
        localization.PairCleaner([localization.Empty(), localization.Empty()])
    with pytest.raises(ValueError, match="`limit` must be 1 or more"):
        localization.LengthRatio(0.5)
    with pytest.raises(ValueError, match="learn it by `fitted`"):
        localization.LengthRatio().keeps("a", "b")
    with pytest.raises(ValueError, match="`target` must be of latin.*Received: elvish"):
        localization.Scripts("latin", "han+elvish")


INSTALLED = importlib.util.find_spec("py3langid") is not None


@pytest.mark.skipif(not INSTALLED, reason="needs py3langid")
def test_texts_in_another_language_are_dropped():
    match = localization.LanguageMatch("en", "de")
    english = "I can see the black cat that sits there on the old table"
    german = "Ich sehe die schwarze Katze, die dort auf dem alten Tisch sitzt"
    assert match.keeps(english, german)
    assert not match.keeps(english, english) and not match.keeps(german, german)
    assert match.keeps("the cat", "the cat")  # too short to say
    with pytest.raises(ValueError, match="`target` must be a code.*Received: 'elvish'"):
        localization.LanguageMatch("en", "elvish")


def test_languages_without_their_package_are_refused_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    pair_filters._identifier.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'keras_transformers\[languages\]'"):
        localization.LanguageMatch("en", "de")
