"""Claims about translators that read previous sentences, from ids to a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.core.words import in_context
from keras_transformers.export import Translator
from keras_transformers.generation import Greedy, generate_all
from keras_transformers.models import Transformer
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.text import SentencePieceTokenizer

LINES = ["the cat sat on the mat", "the dog sat on the log", "it is old"] * 20
MARK, LONGEST = 4, 24


def made(*tags):
    """A translator with random weights."""
    tokenizer = SentencePieceTokenizer.train(LINES, 23, tags=tags)
    model = Transformer(23, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return Translator(model, tokenizer, Greedy(), source_lengths=(LONGEST,))


@pytest.fixture(scope="module")
def translator():
    return made("<context2>")


def by_hand(translator, *sentences):
    """Ids of sentences, each by itself, with the mark between them and END behind."""
    tokenizer, ids = translator.tokenizer, []
    for sentence in sentences:
        ids += [MARK] * bool(ids) + tokenizer.tokenize(sentence).numpy().tolist()
    return [*ids, tokenizer.end_id]


def test_previous_sentences_are_read_and_the_oldest_goes_first(translator):
    rows = [["it is", "the cat"], ["the cat"], ["the dog sat on the log", "it is", "the cat"]]
    long = " ".join(["the cat"] * 9)
    texts = [in_context(row[-1], row[:-1]) for row in rows] + ["it is\x1e", f"it is\x1e{long}"]
    ids, empty, cut = translator.encode(tf.constant(texts))
    expected = [by_hand(translator, *row) for row in (rows[0], rows[1], rows[0])]
    assert len(by_hand(translator, *rows[2])) > LONGEST
    assert ids.to_list()[:3] == expected
    assert ids.to_list()[4] == [*by_hand(translator, long)[: LONGEST - 1], 2]
    assert empty.numpy().tolist() == [False, False, False, True, False]
    assert cut.numpy().tolist() == [False, False, False, False, True]


def test_more_previous_sentences_than_were_trained_with_are_refused(translator):
    without = made()
    assert (translator.context, without.context) == (2, 0)
    for owner, most, text in (
        (translator, "at most 2", "a\x1eb\x1ec\x1ed"),
        (without, "no", "a\x1eb"),
    ):
        with pytest.raises(ValueError, match=f"must have {most} previous sentences"):
            owner.translate(["it", text])
        with pytest.raises(ValueError, match=f"item 0 must have {most} previous sentences"):
            TranslatorPredictor(owner).predict([text])


@pytest.mark.slow
def test_a_saved_model_reads_context(translator, tmp_path):
    """It finds what the model makes of ids that are put together by hand."""
    predictor = keras_transformers.load(translator.save(tmp_path))
    assert predictor.context == 2
    rows = [["it is", "the cat"], ["the cat"]]
    answers = predictor.predict([in_context(row[-1], row[:-1]) for row in rows], details=True)
    for row, answer in zip(rows, answers, strict=True):
        ids = [by_hand(translator, *row)]
        found = generate_all(translator.model, ids, translator.search, verbose=0)
        np.testing.assert_allclose(answer["score"], found["scores"][0], rtol=1e-4)
    with pytest.raises(ValueError, match="at most 2 previous sentences"):
        predictor.predict("a\x1e" * 3 + "b")
