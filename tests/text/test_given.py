"""Claims about what enters a tokenizer: ids are in the vocabulary, texts are texts."""

import io

import numpy as np
import pytest
import sentencepiece as published
import tensorflow as tf

from keras_transformers.text import (
    BytePairTokenizer,
    FairseqTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)
from keras_transformers.words import byte_letters

LINES = ["the cat sat on the mat", "a dog sat on the log"] * 20


def sentencepiece():
    return SentencePieceTokenizer.train(LINES, 20)


def wordpiece():
    return WordPieceTokenizer.train(LINES, 40)


def byte_pairs():
    pieces = [*byte_letters(), "at", "cat", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return BytePairTokenizer(vocab, [("a", "t"), ("c", "at")])


def marian():
    trained = sentencepiece()
    pieces = trained.pieces(range(trained.vocab_size))
    kept = [piece for piece in pieces if piece not in ("<pad>", "<s>")]
    return MarianTokenizer(trained.proto, [*kept, "<pad>"])


def fairseq():
    file, options = io.BytesIO(), {"vocab_size": 19, "minloglevel": 2}
    lines = iter(LINES)
    published.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, **options)
    return FairseqTokenizer(file.getvalue())


MADE = {make.__name__: make() for make in (sentencepiece, wordpiece, byte_pairs, marian, fairseq)}
ALL = pytest.mark.parametrize("kind", MADE)
TRAINED = pytest.mark.parametrize("kind", [SentencePieceTokenizer, WordPieceTokenizer])


def outside(tokenizer):
    """Ids that are none of the vocabulary, nor padding."""
    ids = (-2, -1, tokenizer.vocab_size, 2**31 - 1, -(2**31))
    return [each for each in ids if each != tokenizer.pad_id]


def texts(strings):
    return [text.decode() for text in np.ravel(strings.numpy())]


@ALL
def test_every_id_of_the_vocabulary_has_a_piece_and_no_other_has(kind):
    tokenizer = MADE[kind]
    assert len(tokenizer.pieces(range(tokenizer.vocab_size))) == tokenizer.vocab_size
    assert tokenizer.pieces([]) == []
    for wrong in {*outside(tokenizer), -1}:
        for ids in ([wrong], np.array([5, wrong]), tf.constant([wrong])):
            with pytest.raises(ValueError, match=rf"\.pieces: `ids` must be from 0.*\[{wrong}\]"):
                tokenizer.pieces(ids)
    for ids in ([[5]], 5.5, np.array([5.5])):
        with pytest.raises((ValueError, TypeError)):
            tokenizer.pieces(ids)


@ALL
def test_ids_outside_the_vocabulary_are_refused_by_detokenize(kind):
    tokenizer = MADE[kind]
    for wrong in (*outside(tokenizer), 2**32 + 5):  # the last is 5 in 32 bits
        for ids in ([[5, wrong]], np.array([[wrong]]), tf.ragged.constant([[5], [wrong, 5]])):
            if isinstance(ids, tf.RaggedTensor) or wrong < 2**31:
                with pytest.raises(ValueError, match=r"detokenize: `ids` must be from 0 to.*Rec"):
                    tokenizer.detokenize(ids)
    with pytest.raises(ValueError, match="detokenize: `ids` must be integers. Received: float"):
        tokenizer.detokenize([[5.0]])
    with pytest.raises(ValueError, match="detokenize: `ids` must be integers. Received: string"):
        tokenizer.detokenize(["cat"])


@ALL
def test_in_a_graph_they_end_the_program_with_the_same_sentence(kind):
    tokenizer = MADE[kind]
    spec = tf.TensorSpec([None, None], tf.int32)
    read = tf.function(tokenizer.detokenize, input_signature=[spec])
    ids = tokenizer.tokenize(["the cat", "a"], end=True).to_tensor(tokenizer.pad_id)
    assert texts(read(ids)) == texts(tokenizer.detokenize(ids))
    for wrong in outside(tokenizer)[:3]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="`ids` must be from 0 to"):
            read(tf.constant([[5, wrong]]))


@ALL
def test_lists_of_any_lengths_are_ids(kind):
    tokenizer = MADE[kind]
    lines = ["the cat sat", "a", "the dog on the log"]
    ids = tokenizer.tokenize(lines)
    rows = ids.to_list()
    expected = texts(tokenizer.detokenize(ids))
    assert texts(tokenizer.detokenize(rows)) == expected
    assert texts(tokenizer.detokenize(tuple(map(tuple, rows)))) == expected
    assert texts(tokenizer.detokenize([np.array(row) for row in rows])) == expected
    assert texts(tokenizer.detokenize(list(ids))) == expected
    assert texts(tokenizer.detokenize([[], rows[0]])) == ["", expected[0]]
    assert texts(tokenizer.detokenize(rows[2])) == expected[2:]
    assert texts(tokenizer.detokenize([[], []])) == ["", ""]


@TRAINED
def test_a_vocabulary_is_learnt_from_texts_and_from_nothing_that_is_none(kind):
    for strings, received in (
        ({"file1": LINES}, "a dict; `.values.*` are its values"),
        ("the cat sat on the mat", "a str"),
        (b"the cat sat on the mat", "a bytes"),
        (7, "a int"),
        ([*LINES, ["the cat"]], "a list at position 40"),
        ([None], "a NoneType at position 0"),
    ):
        with pytest.raises(ValueError, match=rf"train: `strings` must be .*Received: {received}"):
            kind.train(strings, 40)


@TRAINED
def test_texts_may_come_as_a_dataset_or_in_bytes(kind):
    size = 20 if kind is SentencePieceTokenizer else 40
    expected = kind.train(LINES, size).get_config()
    assert kind.train((line.encode() for line in LINES), size).get_config() == expected
    assert kind.train(tf.data.Dataset.from_tensor_slices(LINES), size).get_config() == expected
