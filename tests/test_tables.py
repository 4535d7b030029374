"""Claims about tables: every kind says the same, every row is kept or counted, faults are named."""

import csv
import gzip
import json

import pytest

from keras_transformers.label_lists import numbered
from keras_transformers.tables import LABELS, read_table
from keras_transformers.text import read_labelled, read_pairs

COLUMNS = (("file", "image"), LABELS)
ROWS = [["a.png", "cat,dog"], ["b c.png", ""], ["d\u00e9.png", 'the "old" one']]


def read(folder, name, content):
    content = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_table(folder / name, COLUMNS, "file and labels")


def written(kind, rows, folder, header=None):
    """The bytes of a table as Python's own writers make it."""
    rows = [header, *rows] if header else rows
    if kind == "jsonl":
        names = header or ["file", "labels"]
        objects = [dict(zip(names, row, strict=True)) for row in rows[bool(header) :]]
        return "\n".join(map(json.dumps, objects)).encode()
    if kind == "tsv":
        return "\n".join(map("\t".join, rows)).encode()
    with open(folder / "written", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return (folder / "written").read_bytes()


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.tsv.gz", "A.CSV", "a.jsonl.gz"])
def test_tables_of_every_kind_hold_the_same(name, tmp_path):
    kind = name.lower().split(".")[1]
    for start, end in ((b"", b"\n"), (b"\xef\xbb\xbf", b"\r\n")):
        content = written(kind, ROWS, tmp_path).replace(b"\r\n", b"\n").replace(b"\n", end)
        rows, left_out = read(tmp_path, name, start + content)
        assert rows == list(enumerate(ROWS, 1)) and not left_out
    turned = [row[::-1] for row in ROWS]
    rows, left_out = read(tmp_path, name, written(kind, turned, tmp_path, ["label", "image"]))
    assert [values for _, values in rows] == ROWS and not left_out
    assert rows[0][0] == (1 if kind == "jsonl" else 2)


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("a.tsv", b"a.png", "without a tab"),
        ("a.tsv", b"a.png\tcat\tdog", "with more than two columns"),
        ("a.tsv", b"file\tcat\tlabels\tdog\t", "with more than two columns"),
        ("a.csv", b"a.png", "without a comma"),
        ("a.csv", b"a.png,cat,dog", "with more than two columns"),
        ("a.csv", b" , ", "blank"),
        ("a.csv", b"a.png,\xff", "with invalid UTF-8"),
        ("a.jsonl", b"  ", "blank"),
        ("a.jsonl", b"null", "that are no objects in JSON"),
        ("a.jsonl", b'["a.png", "cat"]', "that are no objects in JSON"),
        ("a.jsonl", b'{"file": "a.png"', "that are no objects in JSON"),
        ("a.jsonl", b"[" * 100_000, "that are no objects in JSON"),
        ("a.jsonl", b'{"file": "\xff", "labels": ""}', "with invalid UTF-8"),
        ("a.jsonl", b'{"file": "a.png"}', "without text for 'labels'"),
        ("a.jsonl", b'{"file": "a.png", "labels": null}', "without text for 'labels'"),
        ("a.jsonl", b'{"file": "a.png", "labels": ["cat", {}]}', "without text for 'labels'"),
        ("a.jsonl", b'{"file": ["a.png"], "labels": []}', "without text for 'file'"),
        ("a.jsonl", b'{"file": "\\ud800", "labels": []}', "without text for 'file'"),
    ],
)
def test_a_bad_row_is_counted_and_those_around_it_are_kept(name, row, reason, tmp_path):
    good = written(name.split(".")[1], ROWS, tmp_path).replace(b"\r\n", b"\n").strip(b"\n")
    rows, left_out = read(tmp_path, name, b"\n".join([good, row, good]))
    assert [values for _, values in rows] == 2 * ROWS and left_out == {reason: 1}
    assert [line for line, _ in rows] == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "file,labels,width\na.png,cat,3\n", "a.csv, line 1: .* such column as 'width'"),
        ("a.tsv", "labels\tfile\tlabel\n", "a.tsv, line 1: another column is already 'label'"),
        ("a.jsonl", '{"file": "a.png", "labels": []}\n{"file": "b.png", "tags": []}\n',
         "a.jsonl, line 2: there is no such column as 'tags'; the columns are file and labels"),
        ("a.csv", 'a.png,cat\n"b.png,dog\nc.png,\n', r"a.csv, line 2: no row of a CSV file \(une"),
        ("a.csv", 'a.png,"cat" dog\n', "a.csv, line 1: no row of a CSV file"),
        ("a.csv", "", "a.csv is empty; give a file of file and labels lines"),
    ],
)  # fmt: skip
def test_faults_of_a_table_are_told_with_their_line(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, name, content)


def test_a_row_may_have_several_lines_between_quotes(tmp_path):
    rows, _ = read(tmp_path, "a.csv", 'file,labels\n"a\nb.png", "cat, dog"\nc.png,\n')
    assert rows == [(2, ["a\nb.png", "cat, dog"]), (4, ["c.png", ""])]


def test_names_of_labels_are_split_listed_and_counted():
    pairs = [("a", "cat, dog"), ("b", ["New York, NY", "cat"]), ("c", " , "), ("d", "dog,dog")]
    found = numbered(pairs, separator=",")
    assert found.classes == ["New York, NY", "cat", "dog"]
    assert found.labels == [[1, 2], [0, 1], [], [2]] and found.things == list("abcd")
    assert not found.left_out and found.noted == {"with a label given twice": 1}
    alone = numbered(pairs[1:], classes=["dog", "dog,dog"])
    assert (alone.things, alone.labels) == (["d"], [1])
    assert alone.left_out == {
        "with several labels": 1,
        "of a class that is not in the training set": 1,
    }
    assert numbered([("a", "cat"), ("b", " ")]).left_out == {"without a label": 1}


def test_texts_are_read_from_every_kind_of_table(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"a cat, a dog",animal\na rose,plant\n')
    corpus = read_labelled(tmp_path / "a.csv")
    assert corpus.texts == ["a cat, a dog", "a rose"] and corpus.classes == ["animal", "plant"]
    lines = [{"text": "a cat", "labels": ["animal", "pet"]}, {"text": "a stone", "labels": []}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    several = read_labelled(tmp_path / "b.jsonl", separator=",")
    assert several.labels == [[0, 1], []] and several.classes == ["animal", "pet"]
    (tmp_path / "c.csv").write_text("target,source\neine Katze,a cat\n")
    pairs = read_pairs(tmp_path / "c.csv")
    assert (pairs.sources, pairs.targets, pairs.lines) == (["a cat"], ["eine Katze"], 1)
