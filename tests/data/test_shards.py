"""Claims about shards: every row once a pass, in an order of the seed, from any position on."""

import dataclasses
import gzip
import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.shards import Shards
from keras_transformers.tables import PAIRS, TEXTS, read_table

SIZES = (13, 1, 7, 29)
ROWS = [(f"s{shard}.{row}", f"t{shard}.{row}") for shard in range(4) for row in range(SIZES[shard])]


def of_shard(number):
    return [row for row in ROWS if row[0].startswith(f"s{number}.")]


def write(path, rows):
    """A file of pairs, by TensorFlow's, pyarrow's or Python's own writers."""
    names, columns = ("source", "target"), list(zip(*rows, strict=True))
    kind = path.name.partition(".")[2]
    if kind.startswith("tfrecord"):
        options = tf.io.TFRecordOptions("GZIP" if kind.endswith("gz") else "")
        with tf.io.TFRecordWriter(str(path), options) as writer:
            for row in rows:
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                    for name, text in zip(names, row, strict=True)
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    elif kind in ("parquet", "arrow"):
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table(dict(zip(names, columns, strict=True)))
        if kind == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, path, row_group_size=3)
        else:
            with arrow.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=5)
    else:
        kind, _, packed = kind.partition(".")
        lines = {
            "tsv": "\n".join(map("\t".join, rows)),
            "csv": "\n".join(["target,source", *(f'"{t}",{s}' for s, t in rows)]),
            "jsonl": "\n".join(
                json.dumps({"id": 7, **dict(zip(names, row, strict=True))}) for row in rows
            ),
        }
        data = lines[kind].encode()
        path.write_bytes(gzip.compress(data) if packed else data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for number in range(4):
        write(folder / f"{number}.tsv", of_shard(number))
    return folder


def some(shards, number, position=None):
    blocks = shards.blocks(position)
    return [next(blocks) for _ in range(number)]


def rows_of(block):
    return [(s.decode(), t.decode()) for s, t in zip(*block.columns, strict=True)]


def first_pass(shards):
    blocks = shards.blocks()
    while (block := next(blocks)).position.passed == 0:
        yield block


@pytest.mark.parametrize(
    "kind",
    ["tsv", "tsv.gz", "csv", "jsonl", "jsonl.gz", "tfrecord", "tfrecord.gz", "parquet", "arrow"],
)
def test_shards_of_every_kind_are_read_from_any_row_on(kind, tmp_path):
    write(tmp_path / f"a.{kind}", ROWS[:13])
    shards = Shards.find(tmp_path / f"a.{kind}", PAIRS, buffer=3)
    blocks = list(first_pass(shards))
    assert [row for block in blocks for row in rows_of(block)] == ROWS[:13]
    for number, block in enumerate(blocks):
        assert (
            rows_of(some(shards, 1, block.position)[0]) == ROWS[3 * number :][:3][: 13 - 3 * number]
        )
    kept, left_out = read_table(tmp_path / f"a.{kind}", PAIRS, "pairs")
    assert [tuple(values) for _, values in kept] == ROWS[:13] and not left_out


@pytest.mark.parametrize("streamed", [False, True])
def test_a_hugging_face_dataset_is_read_from_any_row_on(streamed):
    datasets = pytest.importorskip("datasets")
    columns = dict(zip(("source", "target"), map(list, zip(*ROWS, strict=True)), strict=True))
    dataset = datasets.Dataset.from_dict(columns)
    dataset = dataset.to_iterable_dataset(num_shards=3) if streamed else dataset
    shards = Shards.of_dataset(dataset, PAIRS, seed=1, parts=3, buffer=11)
    assert len(shards.parts) == 3
    blocks = some(shards, 6)
    assert sorted(sum(map(rows_of, blocks[:5]), [])) == sorted(ROWS)
    assert rows_of(some(shards, 2, blocks[4].position)[1]) == rows_of(blocks[5])


def test_every_row_comes_once_a_pass_in_an_order_that_follows_from_the_seed(folder):
    shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed=1, buffer=9, open_files=2)
    blocks = some(shards, 12)
    passes = [[r for b in blocks if b.position.passed == n for r in rows_of(b)] for n in (0, 1)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(ROWS) and passes[0] != passes[1]
    assert list(map(rows_of, some(shards, 12))) == list(map(rows_of, blocks))
    others = some(dataclasses.replace(shards, seed=2), 12)
    assert list(map(rows_of, others)) != list(map(rows_of, blocks))
    assert all(len(block.origins) == 9 for block in blocks[:5])
    for block in blocks:  # the file and the line of each row
        assert rows_of(block) == [of_shard(part)[line - 1] for part, line in block.origins]


def test_without_a_seed_rows_keep_the_order_of_the_files(folder):
    shards = Shards.find(folder, PAIRS, open_files=1, buffer=8)
    assert [row for block in first_pass(shards) for row in rows_of(block)] == ROWS


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 120), st.integers(0, 7))
def test_a_stream_goes_on_from_the_position_of_any_buffer(folder, buffer, files, size, number):
    own = {"buffer": buffer, "open_files": files, "buffer_bytes": size}
    shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed=3, **own)
    blocks = some(shards, number + 3)
    again = some(shards, 3, blocks[number].position)
    for one, other in zip(blocks[number:], again, strict=True):
        assert one.position == other.position and rows_of(one) == rows_of(other)
        np.testing.assert_array_equal(one.origins, other.origins)


def test_rows_that_cannot_be_used_are_named_by_file_and_line(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nno tab\n\na\t \n\xff\tb\n")
    (tmp_path / "b.jsonl").write_text('{"source": "a", "target": "b"}\n{"source": 1}\n[]\n{')
    (tmp_path / "c.tsv").write_text("")
    shards = Shards.find(f"{tmp_path}/*", PAIRS, open_files=1)
    (block,) = list(first_pass(shards))
    assert len(block.origins) == 2
    found = [(each.file[-7:].strip("/"), each.line, each.reason) for each in block.left_out]
    found = [(name.split("/")[-1], line, reason) for name, line, reason in found]
    assert found[:4] == [
        ("a.tsv", 2, "without a tab"),
        ("a.tsv", 3, "blank"),
        ("a.tsv", 4, "with an empty column"),
        ("a.tsv", 5, "with invalid UTF-8"),
    ]
    assert [line for _, line, _ in found[4:]] == [2, 3, 4, 1]
    assert "c.tsv is empty" in found[7][2]


def test_a_shard_that_breaks_off_is_named_and_the_others_go_on(tmp_path):
    for number in range(2):
        write(tmp_path / f"{number}.tsv.gz", [(f"{i}" * 40, "t") for i in range(3000)])
    path = tmp_path / "0.tsv.gz"
    path.write_bytes(path.read_bytes()[:-40])
    shards = Shards.find(f"{tmp_path}/*.gz", PAIRS, seed=1)
    (block,) = list(first_pass(shards))
    assert 3000 <= len(block.origins) < 6000
    (broken,) = block.left_out
    assert broken.file == str(path) and "is not a whole gzip file" in broken.reason
    assert broken.line == (block.origins[:, 0] == 0).sum() + 1


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are others there")
def test_a_shard_that_cannot_be_read_ends_the_run(folder, monkeypatch):
    """It may be readable again when the run is resumed, which must give the same rows."""
    shards = Shards.find(f"{folder}/*.tsv", PAIRS)

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("keras_transformers.data.table_files.open", fail, raising=False)
    with pytest.raises(ValueError, match="cannot be read .Input/output error"):
        next(shards.blocks())


def test_text_files_are_documents(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"One.\n\nDocument {number}.\n")
    (tmp_path / "note.md").write_text("of another kind")
    shards = Shards.find(tmp_path, [TEXTS], open_files=2)
    texts = sorted(text.decode() for block in first_pass(shards) for text in block.columns[0])
    assert texts == [f"One.\n\nDocument {number}." for number in range(3)]
    with pytest.raises(ValueError, match="txt: a .txt has one column"):
        next(Shards.find(tmp_path, PAIRS).blocks())


def test_what_is_no_stream_is_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="No file fits"):
        Shards.find(f"{tmp_path}/*.tsv", PAIRS)
    (tmp_path / "a.md").write_text("a")
    with pytest.raises(ValueError, match="a.md: a shard must end in .txt, .tsv"):
        Shards.find(f"{tmp_path}/*", PAIRS)
    with pytest.raises(ValueError, match="all numbers be positive. Received: 4 shards.*: 0"):
        Shards.find(folder, PAIRS, buffer=0)
    (tmp_path / "b.tsv").write_text("no tab\n" * 5)
    shards = Shards.find(f"{tmp_path}/*.tsv", PAIRS)
    blocks = shards.blocks()
    assert len(next(blocks).left_out) == 5
    with pytest.raises(ValueError, match="no row can be used; left out: 5 without a tab"):
        next(blocks)
