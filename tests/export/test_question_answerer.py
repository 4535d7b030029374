"""Claims about what finds the answer to a question in a text."""

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import predictors, pretrained
from keras_transformers.core.words import byte_letters
from keras_transformers.export import QuestionAnswerer
from keras_transformers.models import ClassificationHead, LanguageModel, TextEncoder
from keras_transformers.text import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "a big cat sat on the old red mat by sea . , ?".split()
RNG = np.random.default_rng(3)
CONTEXTS = [" ".join(RNG.choice(WORDS, size)) for size in (1, 5, 11, 12, 30, 47)]
QUESTION, LONGEST = "the cat ?", 3


def words():
    return WordPieceTokenizer([*SPECIAL, *WORDS])


class Table(keras.Model):
    """Each id has a logit of the start and one of the end, wherever it stands."""

    def __init__(self):
        super().__init__()
        self.values = np.random.default_rng(1).normal(size=(2, 19)).astype("float32") * 2

    def call(self, ids, training=None):
        ids = tf.cast(tf.maximum(ids, 0), tf.int32)
        return tf.stack([tf.gather(each, ids) for each in self.values], axis=1)


def expected(model, context, length=16, overlap=3):
    """The best answer by every span of every window, one by one."""
    ids = [SPECIAL.index("[CLS]")] + [5 + WORDS.index(word) for word in context.split()]
    marks = 3 + len(QUESTION.split())
    room, text, found, nothing = length - marks, ids[1:], [], []
    start = 0
    while True:
        part = text[start : start + room]
        logits = model.values[:, [ids[0], *part]].astype("float64")
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        nothing.append(p[0, 0] * p[1, 0])
        for i in range(len(part)):
            for j in range(i, min(i + LONGEST, len(part))):
                found.append((p[0, i + 1] * p[1, j + 1], start + i, start + j))
        if start + room >= len(text):
            break
        start += room - overlap
    score, first, last = max(found)
    return " ".join(context.split()[first : last + 1]), score, min(nothing)


@pytest.fixture(scope="module")
def answerer():
    return QuestionAnswerer(Table(), words(), (8, 16), overlap=3, longest_answer=LONGEST)


@pytest.mark.parametrize("portable", [pytest.param(False, marks=pytest.mark.slow), True])
def test_it_finds_the_best_span_of_all_windows(answerer, portable):
    """Of one word to several windows; rows of other lengths beside them change nothing."""
    call = answerer.portable if portable else answerer
    found = call([[QUESTION, context] for context in CONTEXTS])
    for i, context in enumerate(CONTEXTS):
        answer, score, nothing = expected(answerer.model, context)
        assert found["answer"][i].numpy().decode() == answer
        assert float(found["score"][i]) == pytest.approx(score, rel=1e-4)
        assert float(found["no_answer"][i]) == pytest.approx(nothing, rel=1e-4)
    assert not found["truncated"].numpy().any()


def test_an_answer_is_the_piece_of_the_context_as_it_was_written(answerer):
    """Capitals, spaces, accents and characters of several bytes before it."""
    contexts = ["Überall: THE  old\tCat sat,by the Sea!", "日本語 cat", "", "   ", "\x00 cat"]
    served = predictors.QuestionAnswererPredictor(answerer.portable)
    answers = served.predict([(QUESTION, context) for context in contexts], details=True)
    for context, found in zip(contexts, answers, strict=True):
        assert found["answer"] == context[found["start"] : found["end"]]
        assert found["answer"] == found["answer"].strip()
    assert answers[0]["answer"] and not answers[2]["answer"]


@pytest.mark.slow
def test_a_saved_program_answers_the_same(answerer, tmp_path):
    pairs = [{"question": QUESTION, "context": context} for context in CONTEXTS]
    loaded = keras_transformers.load(answerer.save(tmp_path))
    assert loaded.kind == "question_answerer"
    assert loaded.predict(pairs) == answerer.predict(pairs)
    assert loaded.predict((QUESTION, CONTEXTS[1])) == answerer.predict(pairs[1])
    with pytest.raises(ValueError, match="item 0 must be a pair of question and context"):
        loaded.predict(["who?"])


def test_a_long_question_is_cut_and_said_to_be(answerer):
    found = answerer.portable([["cat " * 40, "the big cat"]])
    assert found["truncated"].numpy().all() and len(found["answer"][0].numpy())
    found = answerer.portable([["cat", "a cat " * 11000], ["cat", "a cat " * 100]])
    assert found["truncated"].numpy().tolist() == [True, False]


def test_what_leaves_no_room_is_refused():
    with pytest.raises(ValueError, match="`overlap` must be from 0 to less than .*, 7"):
        QuestionAnswerer(Table(), words(), (16,), overlap=9)
    with pytest.raises(ValueError, match="`longest_answer` must be positive. Received: 0"):
        QuestionAnswerer(Table(), words(), (16,), longest_answer=0)


def test_a_published_folder_answers_questions(tmp_path):
    """And the tokens of the context have the second type, as BERT was taught."""
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1, "max_length": 40}
    model = TextEncoder.from_variant("base", 19, **sizes, head="question_answering")
    model.build((None, None))
    folder = pretrained.save(model, tmp_path)
    words().save(folder / "vocab.txt")
    predictor = keras_transformers.load(folder)
    context = "A big cat, sat on the mat."
    found = predictor.predict((QUESTION, context), details=True)
    assert found["answer"] == context[found["start"] : found["end"]] != ""
    ids = words().tokenize([QUESTION], start=True, end=True, pair=[context]).to_tensor()
    begin = 2 + len(QUESTION.split())
    types = tf.cast(tf.range(ids.shape[1])[None] >= begin, tf.int32)
    start, end = np.asarray(model({"ids": ids, "token_types": types}))[0].astype("float64")
    allowed = [0, *range(begin, ids.shape[1] - 1)]
    best = max(
        math.exp(start[i] + end[j]) for i in allowed[1:] for j in allowed[1:] if i <= j < i + 15
    )
    total = np.exp(start[allowed]).sum() * np.exp(end[allowed]).sum()
    assert found["score"] == pytest.approx(best / total, rel=1e-4)


def test_a_decoder_that_classifies_is_loaded_with_its_tokenizer(tmp_path):
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1}
    head = ClassificationHead(2, "last", None, 0.0, None, keras.layers.Identity(), use_bias=False)
    model = LanguageModel.from_variant("small", 258, **sizes, head=head)
    model.build((None, None))
    folder = pretrained.save(model, tmp_path, classes=["bad", "good"])
    letters = {letter: i for i, letter in enumerate([*byte_letters(), "ca", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(letters))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\n")
    found = keras_transformers.load(folder).predict(["cat", "a much longer text"])
    ids = np.array([[letters["ca"], letters["t"]]])
    logits = np.asarray(model(ids))[0].astype("float64")
    expected = np.exp(logits) / np.exp(logits).sum()
    assert list(found[0]["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
