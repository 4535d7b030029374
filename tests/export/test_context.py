"""Claims about translators that read previous sentences, from ids to a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.contexts import in_context
from keras_transformers.export import Translator
from keras_transformers.generation import Greedy, generate
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


def of_ids(translator, *sentences):
    """Score of the translation of ids that are put together by hand."""
    tokenizer, ids = translator._tokenizer, []
    for sentence in sentences:
        ids += [MARK] * bool(ids) + tokenizer.tokenize(sentence).numpy().tolist()
    source = np.full((1, LONGEST), tokenizer.pad_id, "int32")
    source[0, : len(ids) + 1] = [*ids, tokenizer.end_id]
    most = min(2 * (len(ids) + 1) + 10, len(ids) + 51)
    search = translator._search
    return generate(translator._model, source, search, most, start_id=1, end_id=2)["scores"][0]


def test_previous_sentences_are_read_and_the_oldest_goes_first(translator):
    rows = [["it is", "the cat"], ["the cat"], ["the dog sat on the log", "it is", "the cat"]]
    texts = tf.constant([in_context(row[-1], row[:-1]) for row in rows] + ["it is\x1e"])
    found = translator.portable(texts)
    expected = [of_ids(translator, *row) for row in (rows[0], rows[1], rows[0])]
    assert len(translator._tokenizer.tokenize(texts[2])) >= LONGEST
    np.testing.assert_allclose(found["score"].numpy(), [*expected, 0], rtol=1e-4)
    assert abs(expected[0] - expected[1]) > 1e-3
    assert not found["truncated"].numpy().any() and found["translation"].numpy()[3] == b""


def test_more_previous_sentences_than_were_trained_with_are_refused(translator):
    without = made()
    assert (translator.context, without.context) == (2, 0)
    for owner, most, text in (
        (translator, "at most 2", "a\x1eb\x1ec\x1ed"),
        (without, "no", "a\x1eb"),
    ):
        with pytest.raises(ValueError, match=f"must have {most} previous sentences"):
            owner.translate(["it", text])
        with pytest.raises(ValueError, match=f"item 1 must have {most} previous sentences"):
            TranslatorPredictor(owner).predict(["it", text])


@pytest.mark.slow
def test_a_saved_model_reads_context(translator, tmp_path):
    predictor = keras_transformers.load(translator.save(tmp_path))
    assert predictor.context == 2
    texts = ["it is\x1ethe cat", "the cat"]
    found = [row["score"] for row in predictor.predict(texts, details=True)]
    expected = translator.portable(tf.constant(texts))["score"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    with pytest.raises(ValueError, match="at most 2 previous sentences"):
        predictor.predict("a\x1e" * 3 + "b")
