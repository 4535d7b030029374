"""Claims about translators into several languages: one model, and who asks for which."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import Translator
from keras_transformers.generation import Greedy
from keras_transformers.models import Transformer
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.text import SentencePieceTokenizer

TAG = "<bt>"
LINES = ["the cat sat on the mat", "a dog sat on a log"] * 9
TEXTS = ["the cat", "", "a dog sat on the mat", "the log <2es>"]
ASKED = ["de", "es", "es", "de"]


@pytest.fixture(scope="module")
def translator():
    """With random weights."""
    tokenizer = SentencePieceTokenizer.train(LINES, 23, languages=("de", "es"), tags=(TAG,))
    model = Transformer(23, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return Translator(model, tokenizer, Greedy(), source_lengths=(16,))


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    return translator.save(tmp_path_factory.mktemp("translator"))


def asked_of(run, asked):
    found = run(text=tf.constant(TEXTS), target_language=tf.constant(asked))
    return found["translation"].numpy().tolist(), found["score"].numpy()


@pytest.mark.slow
def test_a_saved_model_answers_as_python_and_the_language_decides(translator, saved):
    serve = tf.saved_model.load(str(saved)).signatures["serving_default"]
    compiled = translator.translate(TEXTS, ASKED)
    scores = {}
    for asked in (ASKED, ["es", "de", "de", "es"]):
        translations, scores[asked[0]] = asked_of(serve, asked)
        here, expected = asked_of(lambda **given: translator.portable(*given.values()), asked)
        assert translations == here
        np.testing.assert_allclose(scores[asked[0]], expected, rtol=1e-5)
        if asked == ASKED:
            assert [text.decode() for text in translations] == compiled
    assert scores["de"][1] == scores["es"][1] == 0
    assert (np.abs(scores["de"] - scores["es"])[[0, 2, 3]] > 1e-2).all()


@pytest.mark.slow
def test_a_row_is_what_its_own_tokenizer_with_that_target_gives(translator):
    """The choice per row is the fixed one, whose program takes texts alone."""
    mixed = translator.portable(tf.constant(TEXTS), tf.constant(ASKED))["score"].numpy()
    for code in ("de", "es"):
        tokenizer = translator.tokenizer.towards(code)
        fixed = Translator(translator.model, tokenizer, Greedy(), source_lengths=(16,))
        assert fixed.target_languages == ()
        alone, of_code = fixed.portable(tf.constant(TEXTS))["score"], np.array(ASKED) == code
        np.testing.assert_allclose(alone.numpy()[of_code], mixed[of_code], rtol=1e-5)


def test_no_mark_is_written(translator):
    """The marks' logits are the highest by far, and none is chosen."""
    weights = translator.model.get_weights()
    table = next(i for i, each in enumerate(weights) if each.shape == (23, 16))
    raised = [each.copy() for each in weights]
    raised[table][[4, 5, 6]] *= 50
    translator.model.set_weights(raised)
    try:
        assert set(translator.search.constraints.banned_ids) == {4, 5, 6}
        found = translator._decode(tf.constant([[4, 7, 8, 2], [5, 9, 7, 2]]), None, None)
        assert not set(np.ravel(found[0])) & {4, 5, 6}
    finally:
        translator.model.set_weights(weights)


def test_an_unknown_language_is_refused_with_those_known(translator):
    choice = translator.languages
    run = tf.function(choice.marks)
    assert run(tf.constant(TEXTS), tf.constant(ASKED))[0].numpy().tolist() == [[4], [5], [5], [4]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be one of de, es.*fr"):
        run(tf.constant(["a", "b"]), tf.constant(["de", "fr"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="one language for each text"):
        run(tf.constant(["a", "b"]), tf.constant(["de"]))
    for asked in (None, "fr", ["de"], ["de", "fr"]):
        with pytest.raises(ValueError, match=r"`target_language` must be one of de, es\. Received"):
            translator.translate(["a", "b"], asked)
    predictor = TranslatorPredictor(translator)
    for asked in (None, "fr"):
        with pytest.raises(ValueError, match=f"must be one of de, es. Received: {asked!r}"):
            predictor.predict(TEXTS, target_language=asked)


@pytest.mark.slow
def test_a_predictor_of_a_saved_model_asks_for_a_language(translator, saved):
    predictor = keras_transformers.load(saved)
    assert predictor.target_languages == ("de", "es")
    for code in ("de", "es"):
        expected = asked_of(lambda **given: translator.portable(*given.values()), [code] * 4)
        found = predictor.predict(TEXTS, target_language=code, details=True)
        np.testing.assert_allclose([row["score"] for row in found], expected[1], rtol=1e-4)
        assert predictor.towards(code).predict(TEXTS[0]) == found[0]["translation"]
        scored = predictor.score(TEXTS[:1], ["a cat"], target_language=code)
        given = (tf.constant([each]) for each in (TEXTS[0], "a cat", code))
        expected = translator.further_signature("score").portable(*given)["score"].numpy()
        np.testing.assert_allclose(scored[0]["score"], expected[0], rtol=1e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be one of de, es.*fr"):
        predictor.loaded.signatures["serving_default"](
            text=tf.constant(["a"]), target_language=tf.constant(["fr"])
        )


def test_a_translator_of_one_language_has_no_choice():
    tokenizer = SentencePieceTokenizer.train(LINES, 20)
    model = Transformer(20, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    translator = Translator(model, tokenizer, source_lengths=(8,))
    with pytest.raises(ValueError, match="`target_language` must be None"):
        translator.translate(["a cat"], "de")
    with pytest.raises(ValueError, match="`target_language` must be None: there is no choice"):
        translator.predict("a cat", target_language="de")
