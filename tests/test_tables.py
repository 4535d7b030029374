"""Claims about tables: every kind says the same, every row is kept or counted, faults are named."""

import csv
import gzip
import json
import lzma
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import tables
from keras_transformers.label_lists import numbered
from keras_transformers.tables import LABELS, Column, read_table
from keras_transformers.text import read_labelled, read_pairs, read_tagged

COLUMNS = (Column(("file", "image")), LABELS)
PACK = {".gz": gzip.compress, ".xz": lzma.compress}
ROWS = [["a.png", "cat,dog"], ["b c.png", ""], ["d\u00e9.png", 'the "old" one']]


def read(folder, name, content, columns=None):
    content = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(PACK.get(name[-3:], bytes)(content))
    return read_table(folder / name, COLUMNS, "file and labels", columns)


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


@pytest.mark.parametrize(
    "name", ["a.tsv", "a.csv", "a.jsonl", "a.tsv.gz", "A.CSV", "a.jsonl.gz", "a.tsv.xz"]
)
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
        ("a.tsv", "labels\tfile\tlabel\n", "a.tsv, line 1: another column is already 'labels'"),
        ("a.jsonl", '{"file": "a.png", "tags": [], "side": 3}\n',
         "a.jsonl, line 1: there is no column for labels .*; the columns are file, tags, side"),
        ("a.csv", 'a.png,cat\n"b.png,dog\nc.png,\n', r"a.csv, line 2: no row of a CSV file \(une"),
        ("a.csv", 'a.png,"cat" dog\n', "a.csv, line 1: no row of a CSV file"),
        ("a.csv", "", "a.csv is empty; give a file of file and labels lines"),
    ],
)  # fmt: skip
def test_faults_of_a_table_are_told_with_their_line(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, name, content)


def test_other_columns_are_passed_over_where_names_say_which_are_meant(tmp_path):
    rows, left_out = read(tmp_path, "a.csv", "width,file,labels\n3,a.png,cat\n4,b.png\n")
    assert rows == [(2, ["a.png", "cat"])] and left_out == {"with fewer than 3 columns": 1}
    content = "nr,bild,art\n3,a.png,cat\n"
    assert read(tmp_path, "a.csv", content, ("bild", "art"))[0] == [(2, ["a.png", "cat"])]
    assert read(tmp_path, "a.csv", content[12:], (1, 2))[0] == [(1, ["a.png", "cat"])]
    objects = '{"id": 1, "labels": 3, "file": "a.png"}\n{"file": "b.png", "tags": []}\n'
    rows, left_out = read(tmp_path, "a.jsonl", objects)
    assert rows == [(1, ["a.png", "3"])] and left_out == {"without text for 'labels'": 1}
    with pytest.raises(ValueError, match=r"a\.csv, line 1: there is no column 'kind' of `columns`"):
        read(tmp_path, "a.csv", content, ("bild", "kind"))
    with pytest.raises(ValueError, match=r"a\.csv: `columns` must have a name or a position for"):
        read(tmp_path, "a.csv", content, "bild")


@pytest.mark.parametrize("labels", [["good", "bad"], ["1.5", "2"]])
def test_a_first_line_whose_label_is_in_no_other_is_taken_for_names(labels, tmp_path):
    rows = [f"text {i},{labels[i % 2]}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["Bewertung,Note", *rows]))
    corpus = read_labelled(tmp_path / "a.csv")
    assert corpus.classes == sorted(labels) and len(corpus) == 12
    assert corpus.left_out == {"taken for names of columns": 1}
    (tmp_path / "b.csv").write_text("\n".join([*rows, "text,odd"]))
    assert len(read_labelled(tmp_path / "b.csv")) == 13
    (tmp_path / "c.csv").write_text("\n".join(["Bewertung,Note", *rows, "text,odd"]))
    assert read_labelled(tmp_path / "c.csv").classes == sorted(["Note", "odd", *labels])


PAIRS_HELD = [("a cat", "eine Katze"), ("a dog", "ein Hund")]


class Frame:
    """As pandas has it: columns by name, and `itertuples`."""

    columns = ("id", "source", "target")

    def __getitem__(self, name):
        return np.array({"id": [1, 2]}.get(name, [pair[name == "target"] for pair in PAIRS_HELD]))

    def itertuples(self):
        raise AssertionError("types would be lost")


class HuggingFace(list):
    """As `datasets` has it: rows that are dicts, and the features of its columns."""

    column_names = ("translation",)
    features: ClassVar = {"translation": {}, "label": type("Feature", (), {"names": ["no", "yes"]})}


@pytest.mark.parametrize(
    "data",
    [
        PAIRS_HELD,
        [list(pair) for pair in PAIRS_HELD],
        np.array(PAIRS_HELD),
        iter([{"source": source, "target": target, "id": 3} for source, target in PAIRS_HELD]),
        {"target": [target for _, target in PAIRS_HELD], "src": [s for s, _ in PAIRS_HELD]},
        tuple(map(list, zip(*PAIRS_HELD, strict=True))),
        Frame(),
        HuggingFace({"translation": {"en": s, "de": t}} for s, t in PAIRS_HELD),
        tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*PAIRS_HELD, strict=True)))),
        tf.data.Dataset.from_tensors({"source": ["a cat", "a dog"],
                                      "target": ["eine Katze", "ein Hund"]}),
    ],
)  # fmt: skip
def test_whatever_people_hold_pairs_in_gives_the_same(data):
    corpus = read_pairs(data)
    assert list(zip(corpus.sources, corpus.targets, strict=True)) == PAIRS_HELD
    assert not corpus.left_out


def test_numbers_of_classes_become_their_names_and_what_is_missing_is_counted():
    rows = [{"text": "a", "label": n} for n in (1, 0, -1)] + [{"text": None, "label": 1}]
    corpus = read_labelled(HuggingFace(rows))
    assert corpus.classes == ["no", "yes"] and corpus.labels == [1, 0]
    assert corpus.left_out == {"without text for 'labels'": 1, "without text for 'text'": 1}
    numbers = read_labelled((["a", "b", "c"], np.array([True, False, True])))
    assert numbers.classes == ["False", "True"] and numbers.labels == [1, 0, 1]
    assert read_labelled([("a", 2.5), ("b", float("nan"))]).classes == ["2.5"]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (3, TypeError, "Expected source TAB target: the path of a file, .* Received: a int"),
        ({"source": ["a"], "target": []}, ValueError, "as long as one another.*source: 1"),
        ([{"en": "a", "de": "b", "fr": "c"}], ValueError, "the list, row 1: there is no column for "
         r"source .*the columns are en, de, fr\. Say which with `columns`"),
    ],
)  # fmt: skip
def test_what_is_no_table_in_memory_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        read_pairs(data)


def test_parquet_is_read_as_other_tables(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"id": [1, 2], "text": ["a", None], "label": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    corpus = read_labelled(tmp_path / "a.parquet")
    assert corpus.texts == ["a"] and corpus.left_out == {"without text for 'text'": 1}
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="not a whole Parquet file"):
        read_labelled(tmp_path / "b.parquet")


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


def test_the_files_of_a_pattern_are_read_one_after_the_other(tmp_path):
    rows = [[f"text {i}", "ab"[i % 2]] for i in range(24)]
    for number in (1, 2, 0):
        table = written("csv", rows[number::3], tmp_path, ["opinion", "verdict"])
        (tmp_path / f"{number}.csv").write_bytes(table)
    found = tables.read_rows(f"{tmp_path}/*.csv", (tables.TEXTS, tables.LABELS), "text and class")
    found = found.without_names()  # which are not known, and stand in each of the files
    expected = [each for number in range(3) for each in rows[number::3]]
    assert [values for _, values in found.kept] == expected
    assert (found.name, found.read) == ("*.csv", 27)
    assert found.left_out == {"taken for names of columns": 3}
    assert tables.names_column(f"{tmp_path}/*.csv", tables.LABELS)
    (tmp_path / "a[1].csv").write_bytes(written("csv", rows[:2], tmp_path))
    one = tables.read_rows(tmp_path / "a[1].csv", (tables.TEXTS, tables.LABELS), "text and class")
    assert one.read == 2  # a file that is called like a pattern


def test_a_pattern_that_nothing_fits_or_too_much_is_refused(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"No file fits .*/\*\.jsonl"):
        tables.read_rows(f"{tmp_path}/*.jsonl", [tables.TEXTS], "texts")
    (tmp_path / "a.jsonl").write_text('{"text": "a cat"}')
    monkeypatch.setattr("keras_transformers.tables.patterns.IN_MEMORY", 16)
    with pytest.raises(ValueError, match="The 1 files that fit .* must have at most .* GiB"):
        tables.read_rows(f"{tmp_path}/*.jsonl", [tables.TEXTS], "texts")


@pytest.mark.parametrize(
    ("header", "order"),
    [("image_id,label", 1), ("Label,picture", -1), ("photo,Category", 1), ("class,photo", -1)],
)
@pytest.mark.parametrize("separator", [",", "\t"])
def test_one_name_of_the_labels_makes_a_header_and_no_class(header, order, separator, tmp_path):
    rows = [["a.png", "cat"], ["b.png", "dog"]]
    lines = [header.split(","), *(row[::order] for row in rows)]
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    path.write_text("\n".join(map(separator.join, lines)))
    assert [values for _, values in read_table(path, COLUMNS, "file and labels")[0]] == rows
    found = tables.read_rows(path, (tables.TEXTS, LABELS), "text and class")
    assert [values for _, values in found.kept] == rows and found.read == 2
    assert read_labelled(path).classes == ["cat", "dog"]


def test_a_name_of_the_labels_is_data_where_no_labels_are_wanted_or_in_another_line(tmp_path):
    (tmp_path / "a.tsv").write_text("class\tKlasse\nlabel\tEtikett\n")
    assert read_pairs(tmp_path / "a.tsv").sources == ["class", "label"]
    (tmp_path / "b.tsv").write_text("a text\tgood\na class\tlabel\n")
    assert read_labelled(tmp_path / "b.tsv").classes == ["good", "label"]
    with pytest.raises(
        ValueError, match="c.csv, line 1: there is no column for text .*id, tweet, "
    ):
        (tmp_path / "c.csv").write_text("id,tweet,label\n1,hello,good\n")
        read_labelled(tmp_path / "c.csv")


def test_one_name_of_the_tags_makes_a_header_and_no_tag(tmp_path):
    (tmp_path / "a.csv").write_text("Satz,ner_tags\nAda lacht,B-PER O\nBo,B-PER\n")
    corpus = read_tagged(tmp_path / "a.csv")
    assert corpus.words == [["Ada", "lacht"], ["Bo"]] and corpus.classes() == ["O", "B-PER"]
