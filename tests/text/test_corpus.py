"""Claims about PairCorpus and mixtures: every line is kept or counted, and languages are mixed."""

import gzip
import lzma

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.data.streams import epochs
from keras_transformers.text import (
    Mixture,
    PairCorpus,
    SentencePieceTokenizer,
    SubwordSampler,
    encode_pairs,
    read_pairs,
)
from keras_transformers.text.sentence_pieces import trained

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


LINES = ["the cat sat on the mat", "a dog sat on a log <2de>"] * 10
TOKENIZER = SentencePieceTokenizer.train(LINES, 20, languages=("de", "pt_BR"))


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("lossless", [False, True])
def test_a_mark_is_one_piece_that_no_text_becomes(model_type, lossless):
    size = 276 if lossless else 20
    tokenizer = SentencePieceTokenizer.train(
        LINES, size, model_type, lossless=lossless, languages=("de", "pt_BR")
    )
    assert tokenizer.language_marks == {"de": 4, "pt_BR": 5}
    marked = tokenizer.towards("pt_BR")
    for text in ("a dog <2de>", "<2pt_BR> a dog", "<2de>", ""):
        ids = tokenizer.tokenize(text).numpy().tolist()
        assert not {4, 5} & {*ids}
        assert marked.tokenize(text, end=True).numpy().tolist() == [5, *ids, 2]
        assert marked.tokenize(text).numpy().tolist() == ids
        assert tokenizer.detokenize([5, *ids, 2]) == tokenizer.detokenize(ids)
    in_graph = tf.function(lambda texts: marked.tokenize(texts, end=True).to_tensor())
    expected = marked.tokenize(LINES[:2], end=True).to_tensor()
    np.testing.assert_array_equal(in_graph(tf.constant(LINES[:2])), expected)
    assert marked.pieces(expected[0])[0] == "<2pt_BR>"
    again = SentencePieceTokenizer.from_config(marked.get_config())
    assert (again.target, again.language_marks) == ("pt_BR", marked.language_marks)
    assert marked.for_targets().tokenize("a dog", end=True)[0] != 5


def test_subword_regularisation_makes_no_mark_and_cuts_none():
    sampler = SubwordSampler(TOKENIZER, LINES, alpha=0.0)
    ids, _ = sampler.sample(np.arange(len(LINES)), seed=1)
    assert not {4, 5} & {*ids.tolist()}
    pairs = encode_pairs(
        LINES, LINES, TOKENIZER, shuffle_seed=1, sample=0.1, mixture=Mixture((8, 12), (4, 5))
    )
    firsts = [int(pair["source"][0]) for pair in pairs]
    assert sorted(firsts) == [4] * 8 + [5] * 12
    for pair in pairs:
        source = pair["source"].numpy()[1:]
        assert not {4, 5} & {*source.tolist(), *pair["target"].numpy().tolist()}


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_tag_is_one_piece_that_no_text_becomes(model_type):
    lines = [*LINES, "<bt> a <b>cat</b>"]
    tokenizer = SentencePieceTokenizer.train(
        lines, 26, model_type, languages=("de",), tags=("<bt>", "<noised>")
    )
    assert tokenizer.tags == {"<bt>": 5, "<noised>": 6} and tokenizer.language_marks == {"de": 4}
    assert tokenizer.pieces([5, 6]) == ["<bt>", "<noised>"]
    for text in ("<bt> a dog", "a dog<bt>", "<bt>"):
        ids = tokenizer.tokenize(text).numpy().tolist()
        assert not {4, 5, 6} & {*ids}
        assert tokenizer.detokenize([5, *ids, 2]) == tokenizer.detokenize(ids) == text.encode()
    again = SentencePieceTokenizer.from_config(tokenizer.get_config())
    assert again.towards("de").tags == tokenizer.tags


def test_a_symbol_that_text_becomes_is_no_tag():
    settings = {"user_defined_symbols": ["<b>"], "model_type": "bpe"}
    tokenizer = SentencePieceTokenizer(trained(["a <b> b"] * 9, 9, settings, lambda folder: {}))
    assert 4 in tokenizer.tokenize("a <b>") and tokenizer.pieces([4]) == ["<b>"]
    assert tokenizer.tags == {}


def test_tags_that_cannot_be_are_refused():
    for wrong in (("<bt>", "<bt>"), "<bt>", ("bt",), ("<2de>",), ("<s>",)):
        with pytest.raises(ValueError, match="`tags` must be a list of marks"):
            SentencePieceTokenizer.train(LINES, 20, tags=wrong)


def test_each_part_has_its_own_number_of_marks():
    mixture = Mixture((2, 3, 1), ((), (7,), (8, 9)))
    ids = tf.ragged.constant([[1], [2, 3], [], [4], [5], [6]], tf.int32)
    found = mixture.marked(ids, tf.range(6)).to_list()
    assert found == [[1], [2, 3], [7], [7, 4], [7, 5], [8, 9, 6]]


def test_weights_say_how_often_a_part_is_shown_beside_another():
    mixture = Mixture((100, 300), weights=(2, 1))
    assert mixture.counts == (160, 240)  # 200 to 300, of 400
    shown = np.zeros(400, int)
    for epoch in range(5):
        for numbers in mixture.orders(50, 1, epoch):
            np.add.at(shown, numbers.numpy(), 1)
    assert set(shown[:100]) == {8} and set(shown[300:]) == set(shown[100:300]) == {4}
    assert Mixture((100, 300), weights=(3, 3)).counts == (100, 300)
    for wrong in ((1,), (0, 1), (1, float("inf"))):
        with pytest.raises(ValueError, match="`weights` must be positive and as many as `sizes`"):
            Mixture((1, 2), weights=wrong)


def test_languages_that_cannot_be_are_refused():
    for wrong in (("de", "de"), ("d e",), "de"):
        with pytest.raises(ValueError, match="`languages` must be a list of codes"):
            SentencePieceTokenizer.train(LINES, 20, languages=wrong)
    with pytest.raises(ValueError, match=r"`target` must be one of de, pt_BR\. Received: 'fr'"):
        TOKENIZER.towards("fr")
    plain = SentencePieceTokenizer.train(LINES, 20)
    with pytest.raises(ValueError, match="one of none, the vocabulary has no marks"):
        plain.towards("de")


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0, 100.0])
def test_shares_are_powers_of_the_sizes(temperature):
    sizes = (1009, 101, 11)
    weights = np.array(sizes, np.float64) ** (1 / temperature)
    expected = sum(sizes) * weights / weights.sum()
    counts = Mixture(sizes, temperature=temperature).counts
    assert sum(counts) == sum(sizes)
    np.testing.assert_allclose(counts, expected, atol=1)
    if temperature == 1:
        assert counts == sizes


def test_an_epoch_has_the_shares_and_every_pair_comes_before_one_comes_again():
    sizes, number = (97, 13), 7
    mixture = Mixture(sizes, temperature=5)
    seen = np.zeros(110, int)
    for epoch in range(number):
        chosen = np.concatenate([*mixture.orders(16, 3, epoch).as_numpy_iterator()])
        assert (np.sum(chosen < 97), np.sum(chosen >= 97)) == mixture.counts
        seen += np.bincount(chosen, minlength=110)
    for part in (seen[:97], seen[97:]):
        assert part.max() - part.min() <= 1
    assert np.any(np.diff(chosen) < 0) and len({*(chosen[:20] < 97)}) == 2  # mixed


def test_a_run_that_goes_on_sees_the_same_pairs():
    mixture = Mixture((12, 8), (4, 5), temperature=5)

    def make(epoch):
        return encode_pairs(
            LINES, LINES, TOKENIZER, 7, 0.2, batch_size=4, epoch=epoch, mixture=mixture
        )

    whole = [batch["source"].to_list() for batch in epochs(make, 5).take(15)]
    rest = [batch["source"].to_list() for batch in epochs(make, 5, start=(1, 2)).take(8)]
    assert whole[7:] == rest
    assert whole[:5] != whole[5:10]


def test_without_a_seed_all_pairs_come_once_in_their_order():
    mixture = Mixture((15, 5), (4, 5), temperature=5)
    pairs = encode_pairs(LINES, LINES, TOKENIZER, mixture=mixture)
    assert [int(pair["source"][0]) for pair in pairs] == [4] * 15 + [5] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": ()}, "`sizes` must be positive"),
        ({"sizes": (3, 0)}, "`sizes` must be positive"),
        ({"sizes": (3, 2), "marks": (4,)}, "`marks` must be as many as `sizes`, 2"),
        ({"sizes": (3,), "temperature": 0.5}, "`temperature` must be 1 or more"),
        ({"sizes": (3,), "temperature": float("nan")}, "`temperature` must be 1 or more"),
    ],
)
def test_wrong_mixtures_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixture(**arguments)


def test_a_mixture_of_other_pairs_is_refused():
    with pytest.raises(ValueError, match="encode_pairs: `mixture` must have as many .*, 20"):
        encode_pairs(LINES, LINES, TOKENIZER, mixture=Mixture((3, 4)))
