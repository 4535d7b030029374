"""Claims about texts from files: every line is kept or counted, bad files are refused."""

import gzip

import pytest

from keras_transformers.text import TextCorpus, read_documents, read_labelled, read_texts

GOOD = b"a cat\tanimal\na rose\tplant\n"


def labelled(tmp_path, content, name="toy.tsv", **options):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_labelled(path, **options)


@pytest.mark.parametrize("name", ["toy.tsv", "toy.tsv.gz"])
def test_labelled_texts_are_read_from_plain_and_gzip_files(tmp_path, name):
    corpus = labelled(tmp_path, b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"), name)
    assert corpus.texts == ["a cat", "a rose"]
    assert corpus.labels == [0, 1]
    assert corpus.classes == ["animal", "plant"]
    assert corpus.summary() == f"{name}: 2 texts of 2 classes, 4 words"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "blank"),
        (b"no tab here\n", "without a tab"),
        (b"a\tb\tc\n", "with more than two columns"),
        (b"\xff\tanimal\n", "with invalid UTF-8"),
        (b" \tanimal\n", "empty"),
        (b"a cat\t \n", "without a label"),
    ],
)
def test_a_bad_line_is_left_out_and_counted(tmp_path, line, reason):
    corpus = labelled(tmp_path, GOOD + line + GOOD)
    assert len(corpus) == 4
    assert corpus.left_out == {reason: 1}
    assert corpus.summary().endswith(f"; left out: 1 {reason}")


def test_classes_of_the_training_set_hold_for_the_others(tmp_path):
    corpus = labelled(tmp_path, GOOD + b"a stone\tmineral\n", classes=["stone", "plant", "animal"])
    assert corpus.labels == [2, 1]
    assert corpus.left_out == {"of a class that is not in the training set": 1}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"no tab\n"])
def test_a_file_without_a_labelled_text_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match="toy.tsv.*text.*tab.*|toy.tsv is empty"):
        labelled(tmp_path, content)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.tsv does not exist; give a file of text TAB"):
        read_labelled(tmp_path / "none.tsv")


def test_a_folder_of_documents_is_read_and_what_is_broken_counted(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    (tmp_path / "b" / "c.txt.gz").write_bytes(gzip.compress("drei ä".encode()))
    (tmp_path / "empty.txt").write_bytes(b" \n")
    (tmp_path / "latin.txt").write_bytes("ä".encode("latin-1"))
    (tmp_path / "d.txt.gz").write_bytes(b"no gzip")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    corpus = read_documents(tmp_path)
    assert corpus.texts == ["one\ntwo", "drei ä"]
    assert corpus.left_out == {"empty, broken or not in UTF-8": 3}


@pytest.mark.parametrize(
    ("content", "message"), [(b"  ", "is empty"), (b"\xff", "is not in UTF-8")]
)
def test_a_document_that_cannot_be_read_is_refused(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"a.txt {message}"):
        read_documents(path)


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing to learn from: .* must hold .txt"):
        read_documents(tmp_path)


def test_a_sample_is_drawn_without_repetition_and_keeps_its_labels():
    texts = [f"text {i}" for i in range(50)]
    corpus = TextCorpus("toy", texts, list(range(50)), texts)
    sample = corpus.sample(20, seed=3)
    assert len(set(sample.texts)) == 20
    assert [f"text {label}" for label in sample.labels] == sample.texts
    assert corpus.sample(20, seed=3).texts == sample.texts
    assert corpus.sample(99) is corpus


def test_texts_can_have_several_classes_or_none(tmp_path):
    path = tmp_path / "several.tsv"
    path.write_text("miaow, moo\tcow, cat,cat\nhello\t\nwoof\tdog\n\t\nno tab\n\tdog\n", "utf-8")
    corpus = read_labelled(path, separator=",")
    assert corpus.classes == ["cat", "cow", "dog"]
    assert corpus.texts == ["miaow, moo", "hello", "woof"]
    assert corpus.labels == [[1, 0], [], [2]]
    assert corpus.left_out == {"blank": 1, "without a tab": 1, "empty": 1}
    assert corpus.summary().endswith("; kept but worth knowing: 1 with a label given twice")
    known = read_labelled(path, ["dog", "cow"], separator=",")
    assert known.labels == [[], [0]]
    assert known.left_out["of a class that is not in the training set"] == 1
    path.write_text("hello\t\nmiaow\t\n", "utf-8")
    with pytest.raises(ValueError, match="no text has a class"):
        read_labelled(path, separator=",")


def test_the_documents_of_a_pattern_are_read(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text("" if name == "c" else f"A text called {name}.")
    corpus = read_texts(f"{tmp_path}/*.txt")
    assert corpus.texts == ["A text called a.", "A text called b."]
    assert corpus.left_out == {"empty, broken or not in UTF-8": 1}
    with pytest.raises(FileNotFoundError, match="No file fits"):
        read_texts(f"{tmp_path}/*.md")
