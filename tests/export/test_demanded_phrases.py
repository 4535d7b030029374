"""Claims about translations that must hold phrases: glossaries, placeables, the signature."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.core.words import kept_placeables
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.models import Transformer
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.text import Glossary, SentencePieceTokenizer

LINES = ["the cat sat on the mat in 12 of 120", "a dog sat on {name} <b>", "3.5 % of 40 </b>"] * 9
TEXTS = ["the cat sat on a log", "a dog", "the mat 12, {name} 120 12", "", "dog <b>3.5</b>"]
GLOSSARY = {"cat": "sat on", "dog": "mat", "log": "cat the"}
EXPECTED = [["sat on", "cat the"], ["mat"], [], [], ["mat"]]


@pytest.fixture(scope="module")
def translator():
    """With random weights: of itself it would write none of the phrases."""
    tokenizer = SentencePieceTokenizer.train(LINES, 35)
    model = Transformer(35, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return Translator(model, tokenizer, BeamSearch(2), source_lengths=(24,))


@pytest.fixture(scope="module")
def compiled(translator):
    return translator.translate(TEXTS, glossary=GLOSSARY, keep_placeables=True)


@pytest.mark.slow
def test_a_translation_holds_its_phrases_and_its_placeables(compiled):
    for text, phrases, found in zip(TEXTS, EXPECTED, compiled, strict=True):
        assert all(phrase in found for phrase in phrases)
        for kept, expected in kept_placeables([(text, text, found)]).values():
            assert kept == expected
    assert compiled[3] == ""


@pytest.mark.slow
def test_a_text_without_phrases_is_translated_as_ever(translator):
    texts = ["a mat", "the mat sat"]
    plain = translator.translate(texts)
    assert translator.translate([*texts, TEXTS[0]], glossary=GLOSSARY)[:2] == plain


@pytest.mark.slow
def test_a_saved_model_takes_phrases_by_a_signature(translator, compiled, tmp_path):
    folder = translator.save(tmp_path / "served")
    run = tf.saved_model.load(str(folder)).signatures["phrases"]
    phrases = tf.constant([["sat on", "cat the"], ["", "mat"]])
    found = run(text=tf.constant(TEXTS[:2]), phrases=phrases)
    assert [each.decode() for each in found["translation"].numpy()] == compiled[:2]
    loaded = keras_transformers.load(folder)
    path = tmp_path / "glossary.tsv"
    path.write_text("".join(f"{term}\t{phrase}\n" for term, phrase in GLOSSARY.items()))
    for glossary in (GLOSSARY, Glossary(GLOSSARY), path):
        answers = loaded.predict(TEXTS, glossary=glossary, keep_placeables=True)
        assert answers == compiled
    details = loaded.predict(TEXTS[0], glossary=GLOSSARY, details=True)
    assert details["translation"] == compiled[0] and np.isfinite(details["score"])
    assert loaded.predict(TEXTS[0]) == translator.translate(TEXTS[:1])[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row for each text, of at most 12"):
        run(text=tf.constant(TEXTS[:2]), phrases=tf.constant([["mat"]]))


def test_what_was_exported_without_the_signature_says_so():
    translator = TranslatorPredictor(lambda text: {"translation": text})
    with pytest.raises(AttributeError, match="has no signature 'phrases'"):
        translator.predict("a cat", glossary=GLOSSARY)


@pytest.mark.slow
def test_a_phrase_of_unknown_characters_is_left_out(translator):
    plain, asked = ["the cat"], {"cat": "日本"}
    assert translator.translate(plain, glossary=asked) == translator.translate(plain)
