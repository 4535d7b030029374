"""Claims about read_pairs and PairCorpus: every line is kept or counted, bad files are refused."""

import gzip
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import PairCorpus, SentencePieceTokenizer, read_pairs

GOOD = b"a cat\teine Katze\n"


def read(tmp_path, content, name="toy.tsv", **options):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_pairs(path, **options)


@pytest.mark.parametrize("name", ["toy.tsv", "toy.tsv.gz"])
def test_plain_and_gzip_files_are_read(tmp_path, name):
    corpus = read(tmp_path, GOOD + "日本\tЯпония".encode(), name)
    assert corpus.sources == ["a cat", "日本"]
    assert corpus.targets == ["eine Katze", "Япония"]
    assert corpus.summary() == f"{name}: 2 pairs kept of 2 lines"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "blank"),
        (b" \t \n", "blank"),
        (b"no tab here\n", "without a tab"),
        (b"a\tb\tc\n", "with more than two columns"),
        (b"a\t\xff\xfe\n", "with invalid UTF-8"),
        (b"a\t  \n", "with an empty side"),
        (b"\tb\n", "with an empty side"),
    ],
)
def test_a_bad_line_is_left_out_and_counted(tmp_path, line, reason):
    corpus = read(tmp_path, GOOD + line + GOOD)
    assert len(corpus) == 2
    assert corpus.left_out == {reason: 1}
    assert corpus.summary() == f"toy.tsv: 2 pairs kept of 3 lines; left out: 1 {reason}"


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(st.binary(max_size=12), max_size=9))
def test_every_line_is_either_kept_or_counted(tmp_path_factory, lines):
    lines = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    content = GOOD + b"".join(line + b"\n" for line in lines)
    corpus = read(tmp_path_factory.mktemp("corpus"), content)
    assert corpus.lines == 1 + len(lines)
    assert len(corpus) + sum(corpus.left_out.values()) == corpus.lines
    assert "\n" not in corpus.summary()


def test_a_file_of_three_columns_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match="1 with more than two columns.*`columns` must say which"):
        read(tmp_path, b"a cat\teine Katze\tCC-BY\n")


def test_a_pair_with_equal_sides_is_kept_and_counted(tmp_path):
    corpus = read(tmp_path, GOOD + b"OK\tOK\n")
    assert corpus.sources[1] == "OK"
    assert corpus.summary().endswith("kept but worth knowing: 1 with source equal to target")


def test_pairs_with_equal_sides_can_be_left_out(tmp_path):
    corpus = read(tmp_path, GOOD + b"OK\tOK\n", drop_equal=True)
    assert corpus.sources == ["a cat"]
    assert corpus.left_out == {"with source equal to target": 1}


def test_pairs_of_too_many_characters_are_left_out_and_counted(tmp_path):
    corpus = read(tmp_path, GOOD + b"a\t" + b"b" * 11 + b"\n", max_length=10)
    assert corpus.sources == ["a cat"]
    assert corpus.left_out == {"over 10 characters": 1}


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    corpus = read(tmp_path, b"\xef\xbb\xbfa cat\teine Katze\r\na dog\tein Hund\r\n")
    assert corpus.sources == ["a cat", "a dog"]
    assert corpus.targets == ["eine Katze", "ein Hund"]


@pytest.mark.parametrize(
    "content", [b"\n\n", b"no tab\n", b"\xffa\x00\t\x00b\x00\n", b"a\t\n", b"\xef\xbb\xbf\n"]
)
def test_a_file_without_a_usable_pair_is_refused_with_the_counts(tmp_path, content):
    with pytest.raises(ValueError, match=r"0 pairs kept of \d+ lines; left out: \d.*a tab and its"):
        read(tmp_path, content)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match="is empty; give a file"):
        read(tmp_path, content)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; give a file"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_pairs(tmp_path)


# Named: a gzip file holds the time it was made at, and an identifier made of it
# would differ between the processes that share the tests.
@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("gz", b"plain text"),
        ("gz", gzip.compress(GOOD * 99, mtime=0)[:-9]),
        ("xz", b"plain text"),
        ("xz", lzma.compress(GOOD * 99)[:-9]),
    ],
    ids=["not gzip", "cut short", "not xz", "xz cut short"],
)
def test_a_broken_packed_file_is_refused(tmp_path, ending, content):
    (tmp_path / f"toy.tsv.{ending}").write_bytes(content)
    packed = {"gz": "gzip", "xz": "xz"}[ending]
    with pytest.raises(ValueError, match=f"not a whole {packed} file"):
        read_pairs(tmp_path / f"toy.tsv.{ending}")


def test_pairs_of_too_many_pieces_are_left_out_and_counted():
    lines = ["the cat sat on the mat", "a dog", "on"] * 9
    tokenizer = SentencePieceTokenizer.train(lines, 18)
    corpus = PairCorpus.from_pairs("toy", [*zip(lines[:3], lines[:3], strict=True), ("", "x")])
    lengths = tokenizer.tokenize(corpus.sources, end=True).row_lengths().numpy()
    longest = int(lengths.max())
    assert corpus.without_long(tokenizer, longest, longest).sources == corpus.sources
    shorter = corpus.without_long(tokenizer, longest - 1, longest)
    assert shorter.sources == lines[1:3]
    reason = f"over {longest - 1} source or {longest} target pieces"
    assert shorter.left_out == {"with an empty side": 1, reason: 1}
    assert shorter.noted == {"with source equal to target": 2}
    assert len(shorter) + sum(shorter.left_out.values()) == shorter.lines


def test_a_limit_that_leaves_no_pair_is_refused():
    tokenizer = SentencePieceTokenizer.train(["a cat"] * 9, 8)
    corpus = PairCorpus.from_pairs("toy", [("a cat", "a cat")])
    with pytest.raises(ValueError, match="toy: every pair is over 1 source"):
        corpus.without_long(tokenizer, 1, 1)
