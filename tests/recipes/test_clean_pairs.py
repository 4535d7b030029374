"""Claims about `recipes.clean_pairs`: what it reads and writes, and what it refuses."""

import csv
import gzip
import json
import sys

import pytest

from keras_transformers.text import read_pairs
from recipes import clean_pairs

GOOD = [("a cat", "eine Katze"), ("a dog", "ein Hund"), ("a {n}th cow", "eine {n}te Kuh")]
BAD = [("a cat", "eine Katze", "duplicate"), ("a {n}", "eine", "other placeholders")]
BAD += [("cheese", "KÃ¤se", "encoding damage"), ("a cat", "", "empty side")]


def lines(pairs):
    return "".join("\t".join(pair[:2]) + "\n" for pair in pairs)


def run(*files, **options):
    return clean_pairs.run(clean_pairs.Config(tuple(map(str, files)), **options))


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(lines([*GOOD, *BAD]) + "no tab\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_what_stays_is_read_as_it_was_and_cleaned_again_stays(ending, pairs, tmp_path):
    first, again = (tmp_path / folder / f"kept.{ending}" for folder in ("first", "again"))
    assert run(pairs, output=str(first)).kept == len(GOOD)
    corpus = read_pairs(first)
    assert list(zip(corpus.sources, corpus.targets, strict=True)) == GOOD
    report = run(first, output=str(again))
    assert (report.read, report.kept) == (len(GOOD), len(GOOD))
    assert not list(tmp_path.rglob("*.part"))


def test_what_was_dropped_is_told_with_reason_file_and_line(pairs, tmp_path, capsys):
    dropped = tmp_path / "out" / "dropped.tsv"
    run(pairs, output=str(tmp_path / "out" / "kept.tsv"), dropped=str(dropped))
    with open(dropped, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = [(row["source"], row["target"], row["reason"]) for row in rows]
    assert found == [*BAD, ("", "", "without a tab")]
    assert [int(row["line"]) for row in rows] == [4, 5, 6, 7, 8]
    assert {row["file"] for row in rows} == {str(pairs)}
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert (report["read"], report["kept"]) == (8, 3)
    counts = {reason: each["pairs"] for reason, each in report["dropped"].items()}
    assert {reason for reason in counts if counts[reason]} == {row["reason"] for row in rows}
    assert sum(counts.values()) == 5
    assert report["dropped"]["duplicate"]["examples"] == [["a cat", "eine Katze"]]
    assert report["noted"]["pairs with encoding damage could be repaired"] == 1
    assert report["lengths"]["kept"]["source"]["words"]["mean"] == pytest.approx(7 / 3)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    for told in ("| duplicate | 1 | 12.50 % |", "- `cheese` ‖ `KÃ¤se`"):
        assert told in text and told in printed


def test_several_files_and_a_pattern_are_one_corpus(tmp_path):
    (tmp_path / "a.csv").write_text('de,en\neine Katze,"a cat"\n', encoding="utf-8")
    for name in ("1", "2"):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write('{"en": "a cat", "de": "eine Katze"}\n')
            file.write(json.dumps({"en": f"cow {name}\tor\n2", "de": f"Kuh {name} oder 2"}) + "\n")
    kept = tmp_path / "out" / "kept.tsv"
    report = run(
        tmp_path / "a.csv", tmp_path / "*.jsonl.gz", output=str(kept), columns=("en", "de")
    )
    expected = "a cat\teine Katze\ncow 1 or 2\tKuh 1 oder 2\ncow 2 or 2\tKuh 2 oder 2\n"
    assert kept.read_text(encoding="utf-8") == expected
    assert report.dropped["duplicate"] == 2 and report.noted[clean_pairs.SPACES] == 2


def test_unknown_keys_are_in_the_order_of_the_first_row_of_the_first_file(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"en": "a cat", "de": "eine Katze"}\n')
    (tmp_path / "b.jsonl").write_text('{"de": "ein Hund", "en": "a dog"}\n')
    run(tmp_path / "*.jsonl", output=str(tmp_path / "kept.tsv"))
    assert read_pairs(tmp_path / "kept.tsv").sources == ["a cat", "a dog"]


def test_a_first_pair_that_looks_like_names_of_columns_is_not_lost(tmp_path):
    path, kept = tmp_path / "pairs.jsonl", tmp_path / "kept.tsv"
    path.write_text('{"en": "Input", "de": "Output"}\n', encoding="utf-8")
    run(path, output=str(kept), columns=("en", "de"))
    assert read_pairs(kept).sources == ["Input"]


@pytest.mark.parametrize(
    ("options", "extra", "stays"),
    [
        ({"repair": True}, ("cheese", "KÃ¤se"), ("cheese", "Käse")),
        ({"near_duplicates": True}, ("A cat!", "Eine Katze!"), None),
        ({"duplicates": ("source",)}, ("a cat", "die Katze"), None),
        ({"duplicates": ()}, GOOD[0], GOOD[0]),
        ({"scripts": ("latin", "cyrillic+latin")}, ("猫", "Katze"), None),
        ({"same": ()}, ("a {n}", "ein"), ("a {n}", "ein")),
        ({"same": ("entity",)}, ("a &amp; b", "a"), None),
        ({"copy_words": 2}, ("black cat", "black cat"), None),
        ({"length_ratio": 0.0}, ("a", "x" * 99), ("a", "x" * 99)),
        ({"length_scale": 1.0}, ("a", "x" * 99), None),
        ({"min_words": 2}, ("cat", "Katze"), None),
        ({"max_words": 3}, ("a b c d", "a b c"), None),
        ({"max_words": 0, "max_characters": 0}, ("a " * 600, "b " * 600), ("a " * 600, "b " * 600)),
        ({"letters": 0.0}, ("12 12", "12 -- 12"), ("12 12", "12 -- 12")),
        ({"numbers": 0.0}, ("1 cat", "2 Katzen"), ("1 cat", "2 Katzen")),
        ({"brackets": False}, ("a (cat)", "(eine Katze"), ("a (cat)", "(eine Katze")),
    ],
)
def test_options_choose_what_is_dropped(options, extra, stays, tmp_path):
    path, kept = tmp_path / "pairs.tsv", tmp_path / "kept.tsv"
    path.write_text(lines([*GOOD, extra]), encoding="utf-8")
    report = run(path, output=str(kept), **options)
    assert report.kept == len(GOOD) + (stays is not None)
    if stays is not None:
        last = kept.read_text(encoding="utf-8").splitlines()[-1]
        assert last.split("\t") == [side.strip() for side in stays]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"output": "kept.csv"}, "must end in .tsv, .jsonl, .parquet"),
        ({"output": "pairs.tsv"}, "would be written over"),
        ({"output": "a.tsv", "dropped": "a.tsv"}, "would be written over"),
        ({"scripts": ("latin",)}, "--scripts takes two"),
        ({"letters": 2.0}, "--letters is a share, from 0 to 1"),
        ({"min_words": -1}, "--min-words must be 0 or more"),
        ({"min_words": 9}, "No pair stays of 8 rows; dropped: .*5 too short"),
        ({"columns": ("x", "y")}, "there is no column 'x'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_left(
    options, sentence, pairs, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = pairs.read_bytes()
    with pytest.raises(ValueError, match=sentence):
        run(pairs, **options)
    assert pairs.read_bytes() == before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [pairs]


def test_the_command_ends_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["clean_pairs.py", str(tmp_path / "none.tsv")])
    with pytest.raises(SystemExit) as refused:
        clean_pairs.main()
    assert str(refused.value).startswith("recipes.clean_pairs: ")
    assert "none.tsv is no file" in str(refused.value)
