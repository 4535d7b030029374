"""Claims about WordPieceTokenizer: BERT's ids, special tokens, training, files, SavedModels."""

import gzip
import json
import pathlib
import subprocess
import sys
import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import WordPieceTokenizer

GOLDEN = json.loads(
    gzip.decompress(
        pathlib.Path(__file__).parents[1].joinpath("golden/wordpiece.json.gz").read_bytes()
    )
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES = [
    "The cat sat on the mat.",
    "A dog chased the old cat!",
    "日本語 и кот",
    "café au lait",
] * 20
TRAINED = WordPieceTokenizer.train(LINES, 120)
KINDS = [pytest.param(True, id="uncased"), pytest.param(False, id="cased")]


def golden(lower_case):
    case = GOLDEN["uncased" if lower_case else "cased"]
    return WordPieceTokenizer(case["vocab"], lower_case), case


def small(*pieces, **options):
    return WordPieceTokenizer([*SPECIAL, *pieces], **options)


def texts(strings):
    return [text.decode() for text in strings.numpy()]


def words_by_rule(text, lower_case):
    """BERT's words, character by character, for text without special tokens in it."""
    kept = ""
    for character in text:
        kind = unicodedata.category(character)
        if character in "\t\n\r" or kind in ("Zs", "Zl", "Zp"):
            kept += " "
        elif kind not in ("Cc", "Cf", "Co") and character != "\ufffd":
            kept += f" {character} " if "\u3400" <= character <= "\u9fff" else character
    if lower_case:
        kept = unicodedata.normalize("NFD", kept)
        kept = "".join(c.lower() for c in kept if unicodedata.category(c) != "Mn")
    apart = ""
    for c in kept:
        symbol = c.isascii() and c.isprintable() and not c.isalnum() and c != " "
        apart += f" {c} " if symbol or unicodedata.category(c)[0] == "P" else c
    return apart.split(" ")


def ids_by_rule(text, vocab, lower_case):
    """The longest piece first, from the left, in each word."""
    ids = []
    for word in filter(None, words_by_rule(text, lower_case)):
        pieces, start = [], 0
        while start < len(word):
            ends = range(len(word), start, -1)
            known = (("##" if start else "") + word[start:end] for end in ends)
            piece = next((piece for piece in known if piece in vocab), None)
            if piece is None:
                pieces = ["[UNK]"]
                break
            pieces.append(piece)
            start += len(piece.removeprefix("##")) if start else len(piece)
        ids += [vocab[piece] for piece in pieces]
    return ids


@pytest.mark.parametrize("lower_case", KINDS)
def test_a_thousand_lines_of_many_scripts_get_the_ids_of_transformers(lower_case):
    tokenizer, case = golden(lower_case)
    lines = GOLDEN["lines"]
    assert len(lines) > 1000
    ids = tokenizer.tokenize(lines, start=True, end=True).to_list()
    wrong = [
        line for line, ours, theirs in zip(lines, ids, case["ids"], strict=True) if ours != theirs
    ]
    assert wrong == []


@pytest.mark.parametrize("lower_case", KINDS)
def test_two_texts_get_the_ids_of_transformers(lower_case):
    tokenizer, case = golden(lower_case)
    first, second = GOLDEN["lines"][: GOLDEN["pairs"]], GOLDEN["lines"][-GOLDEN["pairs"] :]
    ids = tokenizer.tokenize(first, start=True, end=True, pair=second)
    assert ids.to_list() == case["pairs"]
    one = tokenizer.tokenize(first[0], start=True, end=True, pair=second[0])
    assert one.numpy().tolist() == case["pairs"][0]


# Latin, Greek, Cyrillic and ideographs: in these Python's Unicode is that of TensorFlow.
ALPHABET = st.characters(max_codepoint=0x2FF, exclude_characters="\x01\x02\x03\x04\x05")
ALPHABET |= st.sampled_from("[]#'thecats\u0301\u0308\u03a3\u03c2\u0416\u4e00\u200b\u2028\u3000")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=20), max_size=6), st.booleans())
def test_any_text_is_cut_by_the_published_rules(lines, lower_case):
    tokenizer, case = golden(lower_case)
    vocab = {piece: number for number, piece in enumerate(case["vocab"])}
    wanted = [ids_by_rule(line, vocab, lower_case) for line in lines]
    assert tokenizer.tokenize(lines).to_list() == wanted


def test_special_ids_are_where_the_vocabulary_has_them():
    tokenizer = WordPieceTokenizer(["[PAD]", "x", "[SEP]", "[MASK]", "y", "[CLS]", "[UNK]"])
    assert (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.mask_id) == (0, 6, 3)
    assert (tokenizer.class_id, tokenizer.start_id) == (5, 5)
    assert (tokenizer.separator_id, tokenizer.end_id, tokenizer.vocab_size) == (2, 2, 7)
    ids = tokenizer.tokenize(["x z", ""], start=True, end=True)
    assert ids.dtype == tf.int32
    assert ids.to_list() == [[5, 1, 6, 2], [5, 2]]


def test_special_tokens_are_read_only_as_they_are_written():
    tokenizer = small("a", "mask", "[", "]")
    assert tokenizer.tokenize("a[MASK]a [mask] [SEP]").numpy().tolist() == [5, 4, 5, 7, 6, 8, 3]
    # A control character inside is no special token, even one that stands for it in the graph.
    assert 4 not in tokenizer.tokenize("[MA\u200bSK] [MA\x05SK] \x05").numpy()


def test_words_are_measured_in_characters():
    tokenizer = small("é", "##é", lower_case=False, max_word_length=7)
    assert tokenizer.tokenize("é" * 7).numpy().tolist() == [5] + [6] * 6
    assert tokenizer.tokenize("é" * 8).numpy().tolist() == [tokenizer.unknown_id]


def test_bytes_that_are_no_text_are_left_out():
    tokenizer = small("cat")
    assert tokenizer.tokenize([b"\xffcat", b"c\xfeat", b"\xff"]).to_list() == [[5], [5], []]


def test_one_string_gives_one_sequence():
    one = TRAINED.tokenize(LINES[0], start=True, end=True)
    assert one.shape.rank == 1
    assert one.numpy().tolist() == TRAINED.tokenize(LINES[:1], start=True, end=True).to_list()[0]
    assert TRAINED.detokenize(one).numpy().decode() == "the cat sat on the mat ."


def test_no_strings_and_empty_strings_give_no_ids():
    assert TRAINED.tokenize(tf.zeros([0], tf.string)).to_list() == []
    assert TRAINED.tokenize(["", " ", "\u200b"]).to_list() == [[], [], []]


def test_a_graph_takes_batches_of_any_size():
    spec = tf.TensorSpec([None], tf.string)
    traced = tf.function(lambda lines: TRAINED.tokenize(lines, end=True), input_signature=[spec])
    for count in (0, 1, 5):
        lines = tf.constant(LINES[:count], tf.string)
        assert traced(lines).to_list() == TRAINED.tokenize(lines, end=True).to_list()


def test_text_comes_back_in_words():
    tokenizer = small("play", "##ing", "##s", ",", "é", lower_case=False)
    ids = tokenizer.tokenize(["playing,plays é", "[MASK] play what"], start=True, end=True)
    assert texts(tokenizer.detokenize(ids)) == ["playing , plays é", "play"]
    assert texts(tokenizer.detokenize(ids.to_tensor())) == texts(tokenizer.detokenize(ids))


def test_nothing_after_the_first_separator_is_read():
    tokenizer = small("cat", "dog")
    assert texts(tokenizer.detokenize([[2, 5, 0, 5, 3, 6, 3, 0]])) == ["cat cat"]


def test_hypotheses_of_a_beam_keep_their_two_axes():
    ids = TRAINED.tokenize(["the cat", "a dog"]).to_tensor()
    strings = TRAINED.detokenize(tf.stack([ids, ids[::-1], ids], axis=1))
    assert strings.shape == (2, 3)
    assert texts(strings[:, 1]) == ["a dog", "the cat"]


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_empty_batches_and_empty_rows_give_empty_strings(shape):
    assert texts(TRAINED.detokenize(tf.zeros(shape, tf.int32))) == [""] * shape[0]


def test_pieces_and_beginnings_of_words_follow_the_ids():
    tokenizer = small("play", "##ing", "#")
    ids = tokenizer.tokenize("playing # what")
    assert tokenizer.pieces(ids) == ["play", "##ing", "#", "[UNK]"]
    np.testing.assert_array_equal(tokenizer.starts_word[ids], [True, False, True, True])
    assert tokenizer.starts_word.shape == (tokenizer.vocab_size,)


def test_a_trained_vocabulary_has_special_tokens_first_then_every_character():
    assert TRAINED.pieces(range(5)) == SPECIAL
    assert {"日", "к", "##т", "!", "c", "##t"} <= set(TRAINED.pieces(range(TRAINED.vocab_size)))
    assert "cat" in TRAINED.vocab and "##," not in TRAINED.vocab
    assert TRAINED.vocab_size <= 120
    assert TRAINED.unknown_id not in TRAINED.tokenize(LINES).flat_values.numpy()


def test_training_twice_gives_the_same_vocabulary():
    assert WordPieceTokenizer.train(iter(LINES), 120).vocab == TRAINED.vocab


def test_training_keeps_capitals_and_accents_where_told_to():
    tokenizer = WordPieceTokenizer.train(LINES, 120, lower_case=False)
    assert "é" not in TRAINED.vocab and "##é" in tokenizer.vocab
    assert "T" in tokenizer.vocab and not tokenizer.lower_case


@pytest.mark.parametrize("line", ["a", "日本", "\u2581", "\u2585 \u2581x", "[MASK] a"])
def test_training_takes_text_with_nothing_to_merge(line):
    tokenizer = WordPieceTokenizer.train([line], 20)
    assert tokenizer.tokenize(line).numpy().min() > tokenizer.unknown_id
    assert len(set(tokenizer.vocab) & set("\x01\x02\x03\x04\x05")) == 0


def test_a_larger_vocabulary_needs_fewer_pieces():
    counts = [
        WordPieceTokenizer.train(LINES, size).tokenize(LINES).flat_values.shape[0]
        for size in (48, 52, 65)
    ]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("lines", [[], [""], ["  ", "\u200b"]])
def test_an_empty_corpus_is_refused(lines):
    with pytest.raises(ValueError, match="no text"):
        WordPieceTokenizer.train(lines)


def test_too_small_a_vocabulary_is_refused_with_the_smallest_that_works():
    with pytest.raises(ValueError, match=r"use at least \d+") as refusal:
        WordPieceTokenizer.train(LINES, 9)
    smallest = int(str(refusal.value).split("at least ")[1].rstrip("."))
    assert WordPieceTokenizer.train(LINES, smallest).vocab_size == smallest


def test_a_vocabulary_file_loads_as_the_same_tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    tokenizer = small("a", "\u2028", "##\x85", "\u3000")  # no lines of their own
    tokenizer.save(path)
    assert path.read_bytes().startswith(b"[PAD]\n[UNK]\n")
    loaded = WordPieceTokenizer.load(path, lower_case=False)
    assert loaded.vocab == tokenizer.vocab
    assert not loaded.lower_case


def test_a_missing_file_and_a_file_of_another_kind_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        WordPieceTokenizer.load(tmp_path / "none.txt")
    for content in (b"", b"hello\nworld\n", b"\xff\xfe"):
        (tmp_path / "other.txt").write_bytes(content)
        with pytest.raises(ValueError, match="not a WordPiece vocabulary"):
            WordPieceTokenizer.load(tmp_path / "other.txt")


@pytest.mark.parametrize(
    "vocab, message",
    [
        ([], "id 0 is None"),
        (["a", *SPECIAL], r"\[PAD\] at id 0.*id 0 is 'a'"),
        (SPECIAL[:4], r"Missing: \['\[MASK\]'\]"),
        ([*SPECIAL, "a", "b", "a"], r"no piece twice.*Received: \['a'\]"),
        ([*SPECIAL, ""], r"no empty one. Received: \[''\]"),
        ([*SPECIAL, "a", "ä" * 129], "bad piece: .*exceeds the max supported"),
        ([*SPECIAL, "\0"], "bad piece: "),
    ],
)
def test_what_is_no_vocabulary_is_refused(vocab, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocab)


def test_the_configuration_makes_the_same_tokenizer():
    tokenizer = small("a", "##b", lower_case=False, max_word_length=11)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(tokenizer)))
    made = keras.saving.deserialize_keras_object(config)
    assert made.get_config() == tokenizer.get_config()
    assert made.tokenize("ab AB").numpy().tolist() == tokenizer.tokenize("ab AB").numpy().tolist()


def test_a_seed_set_later_leaves_the_tokenizer_whole():
    before = TRAINED.tokenize(LINES[:1]).to_list()
    dataset = tf.data.Dataset.from_tensors(LINES[:1]).map(TRAINED.tokenize)
    keras.utils.set_random_seed(3)
    keras.utils.clear_session()
    assert TRAINED.tokenize(LINES[:1]).to_list() == before
    assert [ids.to_list() for ids in dataset] == [before]


@pytest.mark.slow
def test_a_saved_model_with_the_tokenizer_runs_in_another_process(tmp_path):
    class Reader(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = TRAINED

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, lines):
            ids = self.tokenizer.tokenize(lines, start=True, end=True)
            return {"ids": ids.to_tensor(), "text": self.tokenizer.detokenize(ids)}

    reader = Reader()
    tf.saved_model.save(reader, str(tmp_path), signatures=reader.__call__)
    code = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "out = serve(tf.constant([sys.argv[2], '']))\n"
        "print(out['ids'].numpy().tolist(), out['text'].numpy().tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), LINES[0]]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ids = TRAINED.tokenize([LINES[0], ""], start=True, end=True).to_tensor().numpy().tolist()
    assert printed.strip() == f"{ids} {[b'the cat sat on the mat .', b'']}"
