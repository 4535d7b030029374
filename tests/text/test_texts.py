"""Claims about texts from files, with tags or without: every line is kept or counted."""

import gzip
import json

import pytest

from keras_transformers.tables import TEXTS, holds_lists
from keras_transformers.text import (
    TaggedCorpus,
    TextCorpus,
    read_documents,
    read_labelled,
    read_tagged,
    read_texts,
    words_of,
)
from keras_transformers.text.texts import holds_tags

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


WORDS = [["Angela", "Merkel", "smiles"], ["Berlin", "."]]
TAGS = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
CLASSES = ["O", "B-LOC", "B-PER", "I-PER"]


def same(corpus, words=WORDS, tags=TAGS):
    return (corpus.words, corpus.tags) == (words, tags)


def test_conll_files_of_two_and_of_more_columns(tmp_path):
    rows = [[f"{w} NN x {t}" for w, t in zip(*both, strict=True)]
            for both in zip(WORDS, TAGS, strict=True)]  # fmt: skip
    text = "-DOCSTART- -X- -X- O\n\n" + "\n\n".join("\n".join(each) for each in rows)
    for name, content in {
        "a.conll": text.encode(),
        "b.txt": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        "c.tsv": text.replace(" ", "\t").encode(),
        "d.conll.gz": gzip.compress(f"\n\n{text}\n \n\n".encode()),
        "e.tsv": text.replace(" NN x ", "\t").encode(),
    }.items():
        (tmp_path / name).write_bytes(content)
        corpus = read_tagged(tmp_path / name)
        assert same(corpus) and corpus.left_out == {} and corpus.classes() == CLASSES
        assert holds_tags(tmp_path / name) == (".conll" in name)
    assert read_tagged(tmp_path / "a.conll", (0, 1)).classes() == ["NN"]


def test_words_of_conll_files_hold_what_is_no_blank(tmp_path):
    """A no-break space, a line separator of Unicode, `#`; of tabs also blanks."""
    path = tmp_path / "a.conll"
    path.write_text("10\xa0000 O\na\u2028b O\n#tag B-X\n# O\n", encoding="utf-8")
    assert read_tagged(path).words == [["10\xa0000", "a\u2028b", "#tag", "#"]]
    path.write_text("New York\tB-LOC\nis\tO\n")
    assert read_tagged(path).words == [["New York", "is"]]


def test_broken_sentences_of_conll_files_are_counted_and_comments_told(tmp_path):
    path = tmp_path / "a.conll"
    path.write_bytes(
        b"# id 5 domain=en\n# text = Hi\nHi _ _ O\n\nx O\ny _ _ O\n\n\xff _ _ O\n\nz _ _ B-X\n"
    )
    corpus = read_tagged(path)
    assert same(corpus, [["Hi"], ["z"]], [["O"], ["B-X"]])
    assert corpus.left_out == {
        "with a row of more or fewer columns than most": 1,
        "with invalid UTF-8": 1,
    }
    assert corpus.noted == {"lines of comments passed over": 2}
    assert "left out: 1 with a row of more" in corpus.summary()


def test_what_is_no_conll_file_is_refused(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Hi\nthere\n")
    with pytest.raises(ValueError, match="a word and its tag, separated by .* have 1 columns"):
        read_tagged(path)
    path.write_text("Hi O\n")
    with pytest.raises(ValueError, match=r"`columns` are \(0, 2\)"):
        read_tagged(path, (0, 2))
    with pytest.raises(ValueError, match=r"two positions, of word and tag.*Received: \('a', 'b'\)"):
        read_tagged(path, ("a", "b"))
    path.write_text(" \n")
    with pytest.raises(ValueError, match="is empty; give a file with a word and its tag"):
        read_tagged(path)
    with pytest.raises(FileNotFoundError, match="none.conll does not exist"):
        read_tagged(tmp_path / "none.conll")


def test_tables_of_lists_and_of_texts(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [{"id": i, "tokens": w, "ner_tags": t} for i, (w, t) in
            enumerate(zip(WORDS, TAGS, strict=True))]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    joined = [*zip(map(" ".join, WORDS), map(" ".join, TAGS), strict=True)]
    (tmp_path / "b.tsv").write_text("\n".join(map("\t".join, joined)))
    (tmp_path / "c.tsv").write_text("text\ttags\n" + "\n".join(map("\t".join, joined)))
    for data in (
        rows,
        tmp_path / "a.jsonl",
        pandas.DataFrame(rows),
        (WORDS, TAGS),
        {"words": WORDS, "tags": TAGS},
        [*zip(WORDS, TAGS, strict=True)],
    ):
        assert same(read_tagged(data)) and holds_tags(data)
    for data in (joined, tmp_path / "b.tsv", tmp_path / "c.tsv"):
        assert same(read_tagged(data)) and not holds_tags(data)


def test_numbers_of_a_dataset_have_their_names():
    datasets = pytest.importorskip("datasets")
    numbers = datasets.Sequence(datasets.ClassLabel(names=["O", "B-LOC", "B-PER", "I-PER"]))
    features = {"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": numbers}
    features |= {"pos_tags": datasets.Sequence(datasets.ClassLabel(names=["NN"]))}
    columns = {"tokens": WORDS, "ner_tags": TAGS, "pos_tags": [[0] * 3, [0] * 2]}
    data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    assert same(read_tagged(data)) and holds_tags(data)
    assert read_tagged(data, ("tokens", "pos_tags")).classes() == ["NN"]
    bare = [{"tokens": ["a", "b", "c"], "tags": [10, 9, 0]}]
    assert read_tagged(bare).classes() == ["0", "9", "10"]


def test_rows_that_cannot_be_used_are_counted():
    rows = [(["a", "b"], ["O"]), ([], []), (["a"], [" "]), (["a"], None), (["a"], ["O"])]
    corpus = read_tagged(rows)
    assert same(corpus, [["a"]], [["O"]])
    assert corpus.left_out == {
        "without text for 'tags'": 1,
        "with other numbers of words and tags": 1,
        "empty": 1,
        "with an empty tag": 1,
    }
    known = TaggedCorpus("toy", WORDS, TAGS).within(["O", "B-LOC"])
    assert same(known, WORDS[1:], TAGS[1:])
    assert known.left_out == {"with a tag that is not in the training set": 1}
    with pytest.raises(ValueError, match="There is nothing to learn from: each row must hold"):
        read_tagged(rows[:3])


def test_lists_are_found_by_the_name_or_position_that_is_given():
    rows = [{"id": 1, "body": ["a"], "marks": ["O"]}]
    assert holds_lists(rows, TEXTS, ("body", "marks")) and not holds_lists(rows, TEXTS)
    assert holds_lists([(1, ["a"], ["O"])], TEXTS, (1, 2)) and not holds_lists([], TEXTS)


def test_raw_text_is_split_as_by_the_basic_tokenizer_of_bert():
    hf = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    basic = hf.BasicTokenizer(do_lower_case=False)
    texts = ["It's 1889 (U.S. office), isn't it?", "Überall  in\tTokyo: 東京都 costs $5,000.00!",
             "  around \n", "новый-день, γειά… naïve¡ 🙂ok", ""]  # fmt: skip
    found = words_of(texts)
    for text, *parts in zip(texts, *(each.to_list() for each in found), strict=True):
        words = [word.decode() for word in parts[0]]
        assert words == basic.tokenize(text)
        assert words == [text[start:end] for start, end in zip(*parts[1:], strict=True)]


GERM_EVAL = (
    "#\thttp://example.org [2010-01-10]\n"
    "1\tAngela\tB-PER\tO\n2\tMerkel\tI-PER\tO\n3\tlacht\tO\tO\n\n"
    "#\thttp://example.org [2010-01-11]\n1\tBerlin\tB-LOC\tO\n2\t.\tO\tO\n"
)
UNIVERSAL = "# sent_id = 1\n# text = Vámonos al mar\n" + "".join(
    "\t".join([number, word, "_", tag, *"______"]) + "\n"
    for number, word, tag in [
        ("1-2", "Vámonos", "_"),
        ("1", "Vamos", "VERB"),
        ("2", "nos", "PRON"),
        ("3-4", "al", "_"),
        ("3", "a", "ADP"),
        ("4", "el", "DET"),
        ("5", "mar", "NOUN"),
        ("5.1", "va", "VERB"),
    ]
)


@pytest.mark.parametrize("name", ["a.conll", "a.tsv", "a.txt"])
def test_numbers_of_words_are_no_words(name, tmp_path):
    words = [["Angela", "Merkel", "lacht"], ["Berlin", "."]]
    outer = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
    (tmp_path / name).write_text(GERM_EVAL)
    corpus = read_tagged(tmp_path / name)
    assert same(corpus, words, [["O"] * 3, ["O"] * 2])
    assert corpus.noted == {"lines of comments passed over": 2}
    assert same(read_tagged(tmp_path / name, (1, 2)), words, outer)
    (tmp_path / name).write_text(GERM_EVAL.replace("\tO\n", "\n").replace("#\thttp", "# http"))
    assert same(read_tagged(tmp_path / name), words, outer)
    running = "0\ta\tX\n1\tb\tO\n\n2\tc\tX\n3\td\tO\n"  # from 0, and on in the next sentence
    (tmp_path / name).write_text(running)
    assert read_tagged(tmp_path / name).words == [["a", "b"], ["c", "d"]]


def test_universal_dependencies_have_words_and_parts_of_speech(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(UNIVERSAL, encoding="utf-8")
    corpus = read_tagged(path)
    assert same(
        corpus, [["Vamos", "nos", "a", "el", "mar"]], [["VERB", "PRON", "ADP", "DET", "NOUN"]]
    )
    assert corpus.noted["rows of no word of their own passed over"] == 3
    assert holds_tags(path)


def test_words_that_are_numbers_stay(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("1 CD O\n2 CD O\n\nin IN O\n1999 CD B-X\n")
    assert read_tagged(path).words == [["1", "2"], ["in", "1999"]]
    path.write_text("1 O\n2 B-X\n")
    assert read_tagged(path).words == [["1", "2"]]
