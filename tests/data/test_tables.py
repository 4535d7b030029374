"""Claims about tables: every kind says the same, every row is kept or counted, faults are named."""

import csv
import gzip
import json
import lzma
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers import tables
from keras_transformers.data import table_files
from keras_transformers.data.labels import numbered
from keras_transformers.shards import Shards
from keras_transformers.tables import LABELS, PAIRS, Column, read_table, table_rows
from keras_transformers.tasks.classes import targets_of
from keras_transformers.text import read_labelled, read_pairs, read_tagged, read_texts
from keras_transformers.vision import read_images
from recipes.data.documents import load_labelled
from recipes.lib.folder import RunFolder

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


@pytest.mark.parametrize("kind", ["new_file", "new_stream"])
def test_arrow_is_read_as_a_file_and_as_a_stream(kind, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"source": ["a", "b", "c"], "target": ["x", "y", "z"]})
    path = tmp_path / "a.arrow"
    with getattr(pyarrow.ipc, kind)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    rows, _ = read_table(path, PAIRS, "pairs")
    assert rows == [(1, ["a", "x"]), (2, ["b", "y"]), (3, ["c", "z"])]
    assert list(table_rows(path, PAIRS, "pairs", after=1)) == rows[1:]
    content = path.read_bytes()
    offsets, wrong = (np.array(each, "<i4").tobytes() for each in ([0, 1, 2], [0, 9**9, 2]))
    assert offsets in content
    for damaged in (content[:100], content.replace(offsets, wrong)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a whole Arrow file"):
            read_table(path, PAIRS, "pairs")


def test_a_row_may_have_several_lines_between_quotes(tmp_path):
    rows, _ = read(tmp_path, "a.csv", 'file,labels\n"a\nb.png", "cat, dog"\nc.png,\n')
    assert rows == [(2, ["a\nb.png", "cat, dog"]), (4, ["c.png", ""])]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=9))
def test_another_reader_finds_the_same_cells(tmp_path_factory, rows):
    reader = pytest.importorskip("pyarrow.csv")
    path = tmp_path_factory.mktemp("tables") / "a.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    table = reader.read_csv(
        path,
        reader.ReadOptions(column_names=["first", "second"]),
        reader.ParseOptions(newlines_in_values=True),
        reader.ConvertOptions(column_types={"first": "string", "second": "string"}),
    )
    numbers = [1]
    for cells in rows:
        numbers.append(numbers[-1] + 1 + "".join(cells).count("\n"))
    expected = [list(row.values()) for row in table.to_pylist()]
    assert [*table_files.rows_of_file(path, "cells")] == [*zip(numbers[:-1], expected, strict=True)]


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
    monkeypatch.setattr("keras_transformers.data.table_files.IN_MEMORY", 16)
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


def swapped(rows):
    """The rows as dicts with other keys than the usual, the first in order, the others not."""
    first, *others = [dict(zip(("en", "de"), row, strict=True)) for row in rows]
    return [first, *(dict(reversed(row.items())) for row in others)]


@pytest.mark.parametrize("nested", [False, True])
def test_the_order_of_unknown_keys_is_that_of_the_first_row(nested, tmp_path):
    pairs = [*PAIRS_HELD, ("a cow", "eine Kuh"), ("a hen", "eine Henne")]
    rows = [{"translation": row} if nested else row for row in swapped(pairs)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    for number in (0, 1):  # the second file alone has another order
        (tmp_path / f"part{number}.jsonl").write_text("\n".join(lines[2 * number :][:2]))
    kinds = [rows, iter(rows), tmp_path / "a.jsonl", tmp_path / "a.json"]
    kinds += [HuggingFace(rows)] if nested else []
    for data in kinds:
        corpus = read_pairs(data)
        assert [*zip(corpus.sources, corpus.targets, strict=True)] == pairs
    assert read_pairs(f"{tmp_path}/part*.jsonl").sources == [source for source, _ in pairs]
    assert read_pairs(rows, columns=(1, 0)).sources == [target for _, target in pairs]
    expected = [[source.encode(), target.encode()] for source, target in pairs]
    assert [*Shards.find(f"{tmp_path}/part*.jsonl", tables.PAIRS).rows()] == expected
    resumed = tables.table_rows(tmp_path / "a.jsonl", tables.PAIRS, "pairs", after=2)
    assert [*resumed] == [(3, list(pairs[2])), (4, list(pairs[3]))]
    lacking = read_pairs([*rows, {"en": "a pig", "fr": "un cochon"}])
    assert lacking.left_out == {"without text for 'target'": 1}


def test_labels_stay_labels_whatever_the_order_of_unknown_keys(tmp_path):
    rows = [("one", "a"), ("two", "b"), ("three", "a"), ("four", "b")]
    assert read_labelled(swapped(rows)).texts == [text for text, _ in rows]
    assert targets_of(swapped(rows), None, None, None, None).classes == ["a", "b"]
    words = [(["Hi", "Bo"], ["O", "B-PER"]), (["Hi", "Al"], ["O", "B-PER"])]
    assert read_tagged(swapped(words)).classes() == ["O", "B-PER"]
    pixels = np.zeros((4, 8, 8, 3), "uint8")
    images = [(image, label) for image, (_, label) in zip(pixels, rows, strict=True)]
    assert read_images(swapped(images)).labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
def test_text_is_read_by_its_byte_order_mark(encoding, tmp_path):
    rows = [(f"Stra\u00dfe {i} \U0001f642", f"street {i}") for i in range(3)]
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    for name, mark_between in (("a.tsv", "\t"), ("a.csv", ";"), ("a.csv.gz", ","), ("a.txt", "\t")):
        content = mark + "".join(mark_between.join(row) + "\r\n" for row in rows)
        packed = PACK.get(name[-3:], bytes)(content.encode(encoding))
        (tmp_path / name).write_bytes(packed)
        corpus = read_pairs(tmp_path / name)
        assert [*zip(corpus.sources, corpus.targets, strict=True)] == rows
    lines = mark + "\n".join(json.dumps({"text": source}) for source, _ in rows)
    (tmp_path / "a.jsonl").write_bytes(lines.encode(encoding))
    assert read_texts(tmp_path / "a.jsonl").texts == [source for source, _ in rows]
    assert (
        read_texts(tmp_path / "a.txt").texts[0].startswith("Stra\u00dfe 0 \U0001f642\tstreet 0\n")
    )


def test_broken_text_in_utf_16_is_refused_or_left_out(tmp_path):
    (tmp_path / "a.tsv").write_bytes("one\tuno\n".encode("utf-16")[:-1])
    with pytest.raises(ValueError, match="a.tsv is not whole text in utf-16"):
        read_pairs(tmp_path / "a.tsv")
    text = "\ufeffone\tuno\ntw\ud800o\tdue\nthree\ttre\n"
    (tmp_path / "a.tsv").write_bytes(text.encode("utf-16-le", "surrogatepass"))
    corpus = read_pairs(tmp_path / "a.tsv")
    assert corpus.sources == ["one", "three"]
    assert corpus.left_out == {"with invalid UTF-8": 1}


QUOTED = [('He said "Hi"', 'Er sagte "Hallo"'), ("a\tb", "c\nd"), ("plain", 'the "old" one')]


def test_a_quoted_table_with_tabs_is_told_from_one_whose_texts_have_quotes(tmp_path):
    path = tmp_path / "a.tsv"
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="\t", quoting=quoting).writerows(QUOTED)
        corpus = read_pairs(path)
        assert [*zip(corpus.sources, corpus.targets, strict=True)] == QUOTED
    plain = [
        ('"Hi"', '"Hallo"'),
        ('"Hi" he said', "x"),
        ('5" nail', 'Nagel ""'),
        ('"a ""b"""', "c"),
    ]
    path.write_text("".join("\t".join(row) + "\n" for row in plain))
    corpus = read_pairs(path)
    assert [*zip(corpus.sources, corpus.targets, strict=True)] == plain
    path.write_text('"Open"\tOffen\n')
    assert read_pairs(path).sources == ['"Open"']


def test_a_run_reads_its_own_table_of_translations(tmp_path):
    rows = [('say "yes"', 'sag "ja"', '"ja" sagen'), ("no", "nein", "nicht")]
    RunFolder(tmp_path).write_table(
        "translations.tsv", ["source", "reference", "translation"], rows
    )
    corpus = read_pairs(tmp_path / "translations.tsv")
    assert corpus.sources == [row[0] for row in rows]
    assert corpus.targets == [row[2] for row in rows]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_mark_between_cells_of_a_csv_file_is_found(mark, tmp_path):
    rows = [("Well, well; I see", "pos"), ("no", "neg"), ("a, b", "pos"), ('the "old" one', "neg")]
    for header in ([], [("text", "label")]):
        with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=mark).writerows(header + rows)
        assert read_labelled(tmp_path / "a.csv").texts == [text for text, _ in rows]


def test_the_first_line_decides_where_rows_are_unlike(tmp_path):
    rows = ["a;pos", "b; c;pos", "d; e; f, g;neg", "h, i;neg", "j; k; l; m;pos", "n, o, p; q;neg"]
    (tmp_path / "a.csv").write_text("\n".join(["text;label", *rows]))
    corpus = read_labelled(tmp_path / "a.csv")
    assert corpus.texts == ["a", "h, i"] and corpus.left_out == {"with more than two columns": 4}


def test_decimal_commas_are_no_marks_between_cells(tmp_path):
    (tmp_path / "a.csv").write_text("good;1,5\nbad;0,5\nfair;1,0\n")
    rows = tables.read_rows(tmp_path / "a.csv", (tables.TEXTS, LABELS), "text and number")
    assert [values for _, values in rows.kept][0] == ["good", "1,5"]


def test_a_field_may_be_longer_than_python_s_csv_module_allows(tmp_path):
    long = "word " * 40_000
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=mark).writerows([(f'"{long}"', "a"), ("short", "b")])
        assert read_labelled(tmp_path / name).texts == [f'"{long}"', "short"]


class Columns(dict):
    """As pandas has it where a column has floats."""

    columns = property(list)

    def itertuples(self):
        raise AssertionError("types would be lost")


class TwiceTheSame(Frame):
    """As pandas has it where two columns have one name: that is a frame, too."""

    columns = ("text", "text", "label")

    def __getitem__(self, name):
        return object()


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="the TwiceTheSame: more than one column is called 'text'"):
        read_labelled(TwiceTheSame())
    (tmp_path / "a.csv").write_text("text,text,label\na,b,c\n")
    with pytest.raises(ValueError, match="line 1: another column is already 'text'"):
        read_labelled(tmp_path / "a.csv")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table([["a"], ["b"], ["c"]], names=["text", "text", "label"])
    with pytest.raises(ValueError, match="the Table: more than one column is called 'text'"):
        read_labelled(table)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="a.parquet: more than one column is called 'text'"):
        read_labelled(tmp_path / "a.parquet")


def test_a_json_file_has_objects_in_lines_or_in_a_list(tmp_path):
    rows = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(4)]
    path = tmp_path / "a.json"
    for content in ("\n".join(map(json.dumps, rows)), json.dumps(rows), json.dumps(rows, indent=2)):
        path.write_text(content)
        assert read_labelled(path).classes == ["a", "b"]
        assert read_texts(path).texts == [row["text"] for row in rows]
    path.write_text(json.dumps({"data": rows}, indent=2))
    with pytest.raises(
        ValueError, match="a.json: an object in JSON over several lines is no table"
    ):
        read_labelled(path)
    path.write_text("[1, 2")
    with pytest.raises(
        ValueError, match="a.json is no list in JSON .*; give an object in each line"
    ):
        read_labelled(path)


SEVERAL_HOT = [[0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
ONE_HOT = [[0, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("kind", [int, float, bool, str, np.float32])
def test_lists_of_0_and_1_are_indicators(kind, tmp_path):
    """One column may never be 1: there are as many classes as numbers."""
    several, alone = ([[kind(x) for x in row] for row in hot] for hot in (SEVERAL_HOT, ONE_HOT))
    numbers = [[1, 2], [], [0], [2]]
    texts = [f"text {i}" for i in range(4)]
    corpus = read_labelled((texts, several), separator=",")
    assert (corpus.classes, corpus.labels) == (["0", "1", "2"], numbers)
    corpus = read_labelled((texts, alone))
    assert (corpus.classes, corpus.labels) == (["0", "1", "2"], [1, 0, 0, 1])
    assert read_labelled((texts, alone), ["x", "y", "z"]).labels == [1, 0, 0, 1]
    targets = targets_of((texts, several), None, None, None, None)
    assert (targets.problem_type, targets.values) == ("multi_label_classification", numbers)
    targets = targets_of((texts, alone), None, None, None, None)
    assert (targets.problem_type, targets.values) == ("single_label_classification", [1, 0, 0, 1])
    scored = targets_of((texts, several), None, targets.problem_type, None, ["x", "y", "z"], True)
    assert (scored.classes, scored.values) == (["x", "y", "z"], [0, 2])
    pixels = np.zeros((4, 8, 8, 3), "uint8")
    images = read_images((pixels, several), separator=",")
    assert images.labels.tolist() == SEVERAL_HOT and images.classes == ["0", "1", "2"]
    assert read_images((pixels, alone)).labels.tolist() == [1, 0, 0, 1]
    if kind is not np.float32:
        rows = [{"text": t, "label": row} for t, row in zip(texts, several, strict=True)]
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert read_labelled(tmp_path / "a.jsonl", separator=",").labels == numbers
        files = {"train": f"{tmp_path}/*.jsonl", "valid": tmp_path / "a.jsonl"}
        files["test"] = files["valid"]
        stream = load_labelled(**files, separator=",")
        assert [row[1] for row in stream.shards.rows()] == SEVERAL_HOT
        assert stream.valid.labels == numbers


def test_other_lists_are_names_and_probabilities_are_refused():
    texts = ["a", "b"]
    names = read_labelled((texts, [["0", "1"], ["1"]]), separator=",")
    assert (names.classes, names.labels) == (["0", "1"], [[0, 1], [1]])
    numbers = read_labelled((texts, [[0, 2], [1, 2]]), separator=",")
    assert numbers.classes == ["0", "1", "2"] and numbers.labels == [[0, 2], [1, 2]]
    known = read_labelled((texts, [[0, 1], [1, 0]]), ["0", "1", "2"], separator=",")
    assert known.labels == [[0, 1], [1, 0]]  # as many classes as numbers would be two
    for read in (read_labelled, lambda data: targets_of(data, None, None, None, None)):
        with pytest.raises(ValueError, match="Labels must be names, or lists of 0 and 1.*0.1, 0.9"):
            read((texts, [[0.1, 0.9], [0.7, 0.3]]))


@pytest.mark.parametrize(
    ("labels", "problem", "classes"),
    [
        ([0, 1, None, 1], "single_label_classification", ["0", "1"]),
        ([0.5, 1, None, 1], "regression", None),
        ([0.5, 1.0, 2.0, 1.0], "regression", None),
        ([0.0, 1.0, 2.0, 1.0], "regression", None),
        (["a", "b", None, "b"], "single_label_classification", ["a", "b"]),
    ],
)
def test_a_missing_label_changes_neither_problem_nor_classes(labels, problem, classes, tmp_path):
    """pandas holds, and writes, whole numbers as floats where one is missing."""
    texts = [f"text {i}" for i in range(4)]
    held = np.array(labels, object if "a" in labels else float)
    columns = {"text": texts, "label": labels}
    arrays = {"text": texts, "label": held}
    cells = ["" if cell in ("nan", "None") else cell for cell in map(str, held)]
    rows = [*zip(texts, cells, strict=True)]
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        lines = [mark.join(row) for row in [("text", "label"), *rows]]
        (tmp_path / name).write_text("\n".join(lines))
    values = [None if label is None or label != label else label for label in held.tolist()]
    lines = [{"text": t, "label": label} for t, label in zip(texts, values, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    files = [tmp_path / name for name in ("a.csv", "a.tsv", "a.jsonl")]
    frame = Columns({"text": np.array(texts), "label": held})
    for data in (columns, arrays, frame, *files):
        targets = targets_of(data, None, None, None, None)
        assert (targets.problem_type, targets.classes) == (problem, classes)
        if classes:
            assert targets.values == [0, 1, 1] and read_labelled(data).classes == classes
            assert len(targets_of(data, None, problem, None, classes, True)) == 3
    if classes:
        pixels = np.zeros((4, 8, 8, 3), "uint8")
        assert read_images({"image": pixels, "label": arrays["label"]}).classes == classes


def test_a_test_set_without_gaps_has_the_classes_of_a_training_set_with_gaps():
    assert read_labelled((["a", "b"], [1.0, 0.0]), ["0", "1"]).labels == [1, 0]
    assert read_labelled((["a", "b"], [1.5, 0.0]), ["0", "1"]).labels == [0]


def test_a_stream_with_missing_labels_has_whole_numbers_for_classes(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\none,0.0\ntwo,1.0\nthree,\nfour,1.0\n")
    files = {"train": f"{tmp_path}/*.csv", "valid": tmp_path / "a.csv", "test": tmp_path / "a.csv"}
    stream = load_labelled(**files)
    assert stream.train.classes == stream.valid.classes == ["0", "1"]
    assert [row[1] for row in stream.shards.rows()] == [0, 1, 1] == stream.valid.labels


@pytest.mark.parametrize("ending", PACK)
def test_packed_text_that_grows_out_of_proportion_is_refused(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("keras_transformers.data.table_files.UNPACKED", 1 << 10)
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACK[ending](b"a cat sat.\n" * 100))
    assert tables.read_bytes(path, "a text") == b"a cat sat.\n" * 100
    path.write_bytes(PACK[ending](b"a" * (1 << 20)))
    with pytest.raises(ValueError, match="must have at most .* when it is unpacked, 100 times"):
        tables.read_bytes(path, "a text")
