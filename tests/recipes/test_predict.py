"""Claims about `recipes.predict`: one answer or very many, and none lost or doubled."""

import csv
import gzip
import json
import lzma
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import pretrained
from keras_transformers.predictors import ImageClassifierPredictor
from keras_transformers.tables import ending
from recipes import predict
from recipes.lib.jobs import Shards, record
from recipes.lib.rows import Row, find
from tests.loading.saved import save_shouter
from tests.pretrained import folders

ROOT = pathlib.Path(__file__).parents[2]
ROWS, SHARD = 400, 10


@pytest.fixture(scope="module")
def shouter(tmp_path_factory):
    """A translator that writes in capitals."""
    return str(save_shouter(tmp_path_factory.mktemp("shouter")))


@pytest.fixture(scope="module")
def slow_shouter(tmp_path_factory):
    """The same, but a request takes its time."""
    return str(save_shouter(tmp_path_factory.mktemp("slow"), work=300))


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    content = [f"line {i} of all" for i in range(ROWS)]
    path.write_bytes(
        b"".join(b"\xff\n" if i == 7 else content[i].encode() + b"\n" for i in range(ROWS))
    )
    return path


def test_lines_of_several_labels_name_those_that_are_present(tmp_path):
    job = Shards(tmp_path / "answers", {})
    answers = [{"label": "cat", "labels": ["cat", "dog"]}, {"label": "cat", "labels": []}]
    told = [record("image_classifier", Row(i, None, ""), each) for i, each in enumerate(answers, 1)]
    job.write(0, b"".join(told))
    job.join(1, "txt", "image_classifier")
    assert (tmp_path / "answers" / "predictions.txt").read_text() == "cat, dog\n\n"


def expected(line):
    return b"" if line == b"\xff" else line.upper()


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ask(shouter, source, tmp_path, **options):
    """Runs in this process; the folder of the answers."""
    output = tmp_path / "answers"
    predict.run(predict.Config(shouter, input=str(source), output=str(output), **options))
    return output


def started(*arguments):
    command = [sys.executable, "-m", "recipes.predict", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_shards(output, number, process):
    while len(list(output.glob("shards/*.jsonl"))) < number:
        assert process.poll() is None, process.communicate()[1][-2000:]
        time.sleep(0.01)


def test_the_command_answers_each_argument_on_a_line(shouter, capsys):
    predict.run(predict.Config(shouter, ("Open the door", "é")))
    assert capsys.readouterr().out == "OPEN THE DOOR\nÉ\n"


def test_a_stream_prints_what_is_printed_at_once(tmp_path, capsys):
    model = folders.gpt2(tmp_path)
    model.build((None, None))
    pretrained.save(model, tmp_path)
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 5}')  # greedily
    texts = ("to be", "the king 日本")
    predict.run(predict.Config(str(tmp_path), texts))
    at_once = capsys.readouterr().out
    predict.run(predict.Config(str(tmp_path), texts, stream=True))
    assert capsys.readouterr().out == at_once and at_once.startswith("to be")


class Interrupted:
    """Stands for a text generator, and what it writes, whose user has read enough."""

    kind = "text_generator"

    def stream(self, text):
        self.prompt = text
        return self

    def __iter__(self):
        yield " or not"
        raise KeyboardInterrupt


def test_a_stream_that_is_interrupted_ends_its_line(monkeypatch, capsys):
    monkeypatch.setattr(predict, "load_predictor", lambda *asked: Interrupted())
    with pytest.raises(SystemExit) as ended:
        predict.run(predict.Config("runs/any", ("to be", "the king"), stream=True))
    assert ended.value.code == 130
    assert capsys.readouterr().out == "to be or not\n"


def test_what_cannot_be_streamed_is_refused_in_a_sentence(shouter, lines, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="stream: .* has no model that learns"):
        predict.run(predict.Config(shouter, ("Open",), stream=True))
    with pytest.raises(ValueError, match="--stream is of texts on the command line"):
        ask(shouter, lines, tmp_path, stream=True)
    monkeypatch.setattr(predict, "load_predictor", lambda *asked: ImageClassifierPredictor(None))
    with pytest.raises(ValueError, match="--stream is of text generators and translators. .*image"):
        predict.run(predict.Config("runs/vit", ("a.png",), stream=True))


def test_answers_come_in_the_order_of_the_lines(shouter, lines, tmp_path, capsys):
    output = ask(shouter, lines, tmp_path, shard_rows=64)
    found = (output / "predictions.txt").read_bytes().splitlines()
    assert found == [expected(line) for line in lines.read_bytes().splitlines()]
    head, bad = (output / "bad_rows.tsv").read_text().splitlines()
    assert bad.startswith("8\t\tmust be text in UTF-8") and bad.endswith("\t\\xff")
    printed = capsys.readouterr().out
    assert "400 rows, in" in printed and "rows a second" in printed and "1 bad rows" in printed
    assert {path.name for path in output.iterdir()} == {
        "predictions.txt",
        "bad_rows.tsv",
        "job.json",
        "lock",
    }


def test_a_finished_job_is_not_done_again(shouter, lines, tmp_path, capsys):
    before = (ask(shouter, lines, tmp_path) / "predictions.txt").stat().st_mtime_ns
    output = ask(shouter, lines, tmp_path)
    assert "are finished" in capsys.readouterr().out
    assert (output / "predictions.txt").stat().st_mtime_ns == before


def test_answers_that_were_removed_are_computed_again(shouter, lines, tmp_path, capsys):
    output = ask(shouter, lines, tmp_path)
    before = (output / "predictions.txt").read_bytes()
    (output / "predictions.txt").unlink()
    assert (ask(shouter, lines, tmp_path) / "predictions.txt").read_bytes() == before
    assert "are finished" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", '{"about": {}}', '{"about": 1, "finished": null}'])
def test_a_job_that_cannot_be_read_is_named(content, shouter, lines, tmp_path):
    output = ask(shouter, lines, tmp_path)
    (output / "job.json").write_text(content)
    with pytest.raises(ValueError, match="job.json is damaged: .* Delete it, or choose another"):
        ask(shouter, lines, tmp_path)


def test_another_input_in_the_same_folder_is_refused(shouter, lines, tmp_path):
    ask(shouter, lines, tmp_path)
    with pytest.raises(ValueError, match="begun with another shard size.*There: 1024.*: 5"):
        ask(shouter, lines, tmp_path, shard_rows=5)
    lines.write_bytes(lines.read_bytes() + b"one more\n")
    with pytest.raises(ValueError, match="begun with another input; choose another --output"):
        ask(shouter, lines, tmp_path)


def test_tables_and_json_lines_are_read_with_their_bad_rows(shouter, tmp_path):
    table = b"\xef\xbb\xbfid\ttext\r\n1\tone\r\n2\r\n3\tthree\r\n"
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "a.tsv.gz", "wb") as file:
        file.write(table)
    told = ['{"text": "four", "n": 1}', "{broken", '{"n": 2}', '{"text": 5}', "[]", '{"text": ""}']
    (tmp_path / "in" / "b.jsonl").write_text("\n".join(told))
    output = ask(shouter, tmp_path / "in" / "*", tmp_path, column="text", format="jsonl")
    found = rows(output / "predictions.jsonl")
    names = [pathlib.Path(row["file"]).name for row in found]
    assert list(zip(names, (row["row"] for row in found), strict=True)) == [
        *[("a.tsv.gz", number) for number in (2, 3, 4)],
        *[("b.jsonl", number) for number in range(1, 7)],
    ]
    answers = [row.get("translation") for row in found]
    assert answers == ["ONE", None, "THREE", "FOUR", None, None, None, None, ""]
    reasons = ["2 columns", "object in JSON", "the field 'text'", "must be text", "object in JSON"]
    bad = (output / "bad_rows.tsv").read_text().splitlines()[1:]
    assert all(reason in line for reason, line in zip(reasons, bad, strict=True))
    assert bad[1].endswith("{broken")


def tables_of(folder, texts):
    """The same texts in a column `text` of every kind of table; paths of the files."""
    import pyarrow
    import pyarrow.parquet

    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    for name, delimiter in (("a.csv", ","), ("b.csv", ";"), ("c.tsv", "\t")):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, ["id", "text"], delimiter=delimiter)
            table.writeheader()
            table.writerows(rows)
    wide = (folder / "c.tsv").read_text(encoding="utf-8").encode("utf-16")
    (folder / "d.tsv").write_bytes(wide)
    (folder / "e.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    (folder / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "g.json").write_text(json.dumps(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "h.parquet")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("column", [None, "text", "2"])
def test_every_table_is_read_as_a_table(column, tmp_path):
    """Without a column the usual name is looked for; a number says that there is no header."""
    pytest.importorskip("pyarrow")
    texts = ['say "yes", please; now', "two\nlines", "plain"]
    for path in tables_of(tmp_path, texts):
        found = [row.content for row in find(str(path), "text", column)]
        has_header = column == "2" and ending(path) in (".csv", ".tsv")
        assert found == (["text", *texts] if has_header else texts), path.name


def test_a_csv_file_is_answered_by_its_column(shouter, tmp_path):
    (tmp_path / "in.csv").write_text('id,text\n1,"one, ""two"""\n2\n3,three\n')
    output = ask(shouter, tmp_path / "in.csv", tmp_path, column="text")
    assert (output / "predictions.txt").read_text() == 'ONE, "TWO"\n\nTHREE\n'
    assert (output / "bad_rows.tsv").read_text().splitlines()[1:] == [
        "3\t\tmust have 2 columns.\t2"
    ]


def test_questions_and_their_contexts_are_two_columns(tmp_path):
    asked = {"question": "Who?", "context": "A cat, a dog."}
    contents = ['id,context,question\n1,"A cat, a dog.",Who?\n', 'Who?,"A cat, a dog."\n']
    for content in contents:
        (tmp_path / "a.csv").write_text(content)
        (row,) = find(str(tmp_path / "a.csv"), "question_and_context")
        assert {name: row.content[name] for name in asked} == asked
    (tmp_path / "a.jsonl").write_text(json.dumps(asked))
    assert [row.content for row in find(str(tmp_path / "a.jsonl"), "question_and_context")] == [
        asked
    ]


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("a.docx", b"PK", "a.docx does not have a text in each line; recipes.translate_files"),
        ("a.xlsx", b"PK", "a.xlsx does not have a text in each line; give lines of text, or"),
        ("a.bin", b"\x7fELF\0\0", "a.bin cannot be read to its end: it holds no text in UTF-8"),
        ("a.csv", b"id,body\n1,a\n", "--column must be .*a.csv: id, body. Received: text"),
    ],
)
def test_files_that_have_no_lines_are_refused(name, content, advice, shouter, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=advice):
        ask(shouter, tmp_path / name, tmp_path, column="text")


def test_images_of_a_folder_are_answered_with_their_names(tmp_path, monkeypatch):
    def classify(image):
        return {
            "label": tf.map_fn(
                lambda each: tf.cast(
                    tf.strings.as_string(tf.shape(tf.io.decode_image(each))[0]), tf.string
                ),
                image,
            ),
            "probability": tf.ones(tf.shape(image)),
            "probabilities": tf.ones((tf.size(image), 1)),
        }

    classifier = ImageClassifierPredictor(classify, ["any"])
    monkeypatch.setattr(keras_transformers, "load", lambda *_: classifier)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name, height in (("b.png", 5), ("a.jpg", 7), ("deep/c.png", 3)):
        PIL.Image.fromarray(np.zeros((height, 4), np.uint8)).save(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.md").write_text("no image")
    found = rows(ask("a model", tmp_path / "in", tmp_path) / "predictions.jsonl")
    told = [(pathlib.Path(row["file"]).name, row["row"], row.get("label")) for row in found]
    assert told == [("a.jpg", 1, "7"), ("b.png", 2, "5"), ("c.png", 3, "3"), ("notes.md", 4, None)]
    (tmp_path / "list.txt").write_text("in/b.png\nin/nowhere.png\n")
    found = rows(ask("a model", tmp_path / "list.txt", tmp_path / "of_list") / "predictions.jsonl")
    assert found[0]["label"] == "5" and "No such file" in found[1]["error"]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "Give texts or images"),
        ({"raw": ("a",), "input": "b"}, "and not both"),
        ({"input": "lines.txt"}, "--input and --output go together"),
        ({"input": "nowhere.txt", "output": "out"}, "there is no file nowhere.txt"),
        ({"raw": ("a",), "address": "auto"}, "--address needs --workers"),
        ({"raw": ("a",), "workers": -1}, "--workers must be 0 or more"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, advice, shouter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=advice):
        predict.run(predict.Config(shouter, **options))


def test_a_broken_archive_is_refused(shouter, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a line\n" * 99)[:-9])
    with pytest.raises(ValueError, match="a.txt.gz cannot be read to its end"):
        ask(shouter, tmp_path / "a.txt.gz", tmp_path)
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"a line\n" * 99)[:-9])
    with pytest.raises(ValueError, match="a.txt.xz cannot be read to its end"):
        ask(shouter, tmp_path / "a.txt.xz", tmp_path / "other")


def test_a_killed_run_goes_on_and_loses_and_doubles_nothing(slow_shouter, lines, tmp_path):
    output = tmp_path / "answers"
    command = (slow_shouter, "--input", lines, "--output", output, "--shard-rows", SHARD)
    process = started(*command)
    wait_for_shards(output, 5, process)
    with pytest.raises(ValueError, match="Another process is at work"):
        ask(slow_shouter, lines, tmp_path, shard_rows=SHARD)
    process.kill()
    process.communicate()
    there = {path.name: path.stat().st_mtime_ns for path in output.glob("shards/*.jsonl")}
    assert 5 <= len(there) < ROWS // SHARD and not (output / "predictions.txt").exists()
    ask(slow_shouter, lines, tmp_path, shard_rows=SHARD)
    found = (output / "predictions.txt").read_bytes().splitlines()
    assert found == [expected(line) for line in lines.read_bytes().splitlines()]
    finished = json.loads((output / "job.json").read_text())["finished"]
    assert finished["rows"] == ROWS
    assert finished["rows_of_this_process"] == ROWS - SHARD * len(there)


def descendants(pid):
    """Ids and commands of the processes that a process has started, and of those that they have."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            name = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append((int(path.name), name))
    found, waiting = [], [pid]
    while waiting:
        for each in children.get(waiting.pop(), []):
            found.append(each)
            waiting.append(each[0])
    return found


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_a_lost_worker_loses_and_doubles_nothing(slow_shouter, lines, tmp_path):
    pytest.importorskip("ray.data")
    output = tmp_path / "answers"
    command = (slow_shouter, "--input", lines, "--output", output, "--shard-rows", SHARD)
    process = started(*command, "--workers", 2, "--worker-cpus", 1)
    wait_for_shards(output, 4, process)
    workers = [pid for pid, name in descendants(process.pid) if name.startswith("ray::MapWorker")]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    assert len(list(output.glob("shards/*.jsonl"))) < ROWS // SHARD - 2
    printed, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    assert f"{ROWS} rows" in printed
    found = (output / "predictions.txt").read_bytes().splitlines()
    assert found == [expected(line) for line in lines.read_bytes().splitlines()]


def test_bad_input_ends_in_a_sentence(tmp_path):
    process = started(tmp_path, "a text")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "recipes.predict: load: " in errors and "Traceback" not in errors
