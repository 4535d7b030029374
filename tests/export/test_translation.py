"""Claims about the SavedModel that translates raw text."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import Translator
from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    generate,
)
from keras_transformers.models import Transformer
from keras_transformers.text import PieceTokenizer, SentencePieceTokenizer, encode_pairs, packed
from keras_transformers.training import SmoothedCrossEntropy

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 7)) for i in range(60)]
SOURCE_LENGTHS = (8, 16)


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(LINES, vocab_size=36)


@pytest.fixture(scope="module")
def model(tokenizer):
    keras.utils.set_random_seed(3)
    sizes = {"hidden_dim": 32, "num_heads": 2, "mlp_dim": 48, "num_layers": 1}
    model = Transformer.from_variant("base", tokenizer.vocab_size, **sizes, norm_first=True)
    # Taught to copy a little, so that its outputs differ and end.
    batches = packed(encode_pairs(LINES, LINES, tokenizer, 1), 48, 48, rows=4)
    model.compile(keras.optimizers.Adam(1e-2), SmoothedCrossEntropy(), jit_compile=True)
    model.fit(batches.repeat(), steps_per_epoch=400, shuffle=False, verbose=0)
    return model


@pytest.fixture(scope="module")
def served(model, tokenizer):
    return Translator(model, tokenizer, BeamSearch(3), SOURCE_LENGTHS)


@pytest.mark.parametrize("batch", [1, 70])
def test_a_batch_of_any_size_gives_what_its_sentences_give_alone(served, batch):
    sentences = (LINES * 2)[:batch]
    together = served(tf.constant(sentences))
    assert together["translation"].shape == together["score"].shape == (batch,)
    for i in {0, batch // 2, batch - 1}:
        alone = served(tf.constant(sentences[i : i + 1]))
        assert alone["translation"][0] == together["translation"][i]
        np.testing.assert_allclose(alone["score"][0], together["score"][i], atol=1e-5)


def test_no_sentence_gives_no_translation(served):
    assert served.translate([]) == []


def test_an_empty_sentence_gives_an_empty_translation_of_score_zero(served):
    result = served(tf.constant(["", LINES[0], "   "]))
    assert result["translation"].numpy()[[0, 2]].tolist() == [b"", b""]
    assert result["score"].numpy()[[0, 2]].tolist() == [0.0, 0.0]
    assert not result["truncated"].numpy().any()


def test_what_exceeds_the_longest_source_is_cut_and_said_so(served):
    whole = " ".join(WORDS * 40)
    result = served(tf.constant([whole, LINES[0][:10]]))
    assert result["truncated"].numpy().tolist() == [True, False]
    assert len(result["translation"][0].numpy()) > 0


def test_unknown_scripts_are_translated_without_complaint(served):
    assert len(served.translate(["日本語 😀", "Ελληνικά", "\x00"])) == 3


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, n_best=2)])
def test_the_translator_gives_what_generate_gives(model, tokenizer, search):
    sentences = LINES[:4]
    source = tokenizer.tokenize(sentences, end=True).to_tensor(shape=(None, 16))
    limit = 2 * 16 + 10
    result = generate(model, source, search=search, max_length=limit)
    tokens = result["tokens"][:, 0] if result["tokens"].ndim == 3 else result["tokens"]
    expected = [text.decode() for text in tokenizer.detokenize(tokens).numpy()]
    assert Translator(model, tokenizer, search, (16,)).translate(sentences) == expected


@pytest.mark.parametrize("new_tokens", [3, 30])
@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, n_best=2)], ids=["greedy", "beam"])
@pytest.mark.slow
def test_a_translation_is_cut_as_by_generate_and_says_so(model, tokenizer, search, new_tokens):
    source = tokenizer.tokenize(LINES[:6], end=True).to_tensor(shape=(None, 16))
    result = generate(model, source, search=search, max_length=new_tokens)
    tokens, scores = result["tokens"].reshape(6, -1, new_tokens)[:, 0], result["scores"]
    translator = Translator(model, tokenizer, search, (16,), new_tokens=new_tokens)
    for answer in (translator, translator.portable):
        found = answer(tf.constant([*LINES[:6], ""]))
        expected = [*np.any(tokens == tokenizer.end_id, axis=1), True]
        assert found["finished"].numpy().tolist() == expected
        np.testing.assert_allclose(found["score"][:6], scores.reshape(6, -1)[:, 0], atol=1e-4)
    assert any(expected[:6]) == (new_tokens == 30)


@pytest.mark.slow
def test_a_sampling_translator_obeys_its_seed_and_its_constraints(model, tokenizer):
    def translate(seed, **settings):
        search = Sampling(temperature=2.0, seed=seed, **settings)
        return Translator(model, tokenizer, search, (16,)).translate(LINES[:8])

    drawn = translate(1)
    assert translate(1) == drawn != translate(2)
    first = drawn[0].split()[0]
    banned = tokenizer.tokenize([first]).numpy()[0, 0]
    constrained = translate(1, constraints=Constraints(banned=(int(banned),)))
    assert not any(first in line.split() for line in constrained)


def test_the_translator_follows_the_weights_of_the_moment(model, tokenizer):
    live = Translator(model, tokenizer, Greedy(), (16,))
    before = live(tf.constant(LINES[:2]))["score"].numpy()
    table = model.target_embedding.table
    kept = keras.ops.convert_to_numpy(table)
    table.assign(0.5 * kept)
    after = live(tf.constant(LINES[:2]))["score"].numpy()
    table.assign(kept)
    assert not np.allclose(before, after)


def test_lengths_that_do_not_increase_are_refused(model, tokenizer):
    with pytest.raises(ValueError, match="`source_lengths` must increase.*16, 8"):
        Translator(model, tokenizer, source_lengths=(16, 8))


def float64_scores(model, tokenizer, source, translation):
    """Log-probabilities of a translation and END, one position after the other."""
    ids = {
        "source": tokenizer.tokenize([source], end=True).to_tensor(),
        "target": tokenizer.tokenize([translation], start=True, end=True).to_tensor(),
    }
    given, following = ids["target"][:, :-1], ids["target"][0, 1:].numpy()
    logits = np.asarray(model({"source": ids["source"], "target": given})[0], "float64")
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logits[np.arange(len(following)), following]


@pytest.mark.slow
def test_given_translations_are_scored_token_by_token(served, model, tokenizer, tmp_path):
    sources = [*LINES[:9], "the cat", "the"]
    translations = [*LINES[:8], "a mat by the sea", "", "dog"]
    rows = served.score(sources, translations)
    portable = served.further_signature("score").portable(
        tf.constant(sources), tf.constant(translations)
    )
    assert portable["log_probabilities"].shape == portable["tokens"].shape
    for i, (source, translation) in enumerate(zip(sources, translations, strict=True)):
        expected = float64_scores(model, tokenizer, source, translation)
        pieces, found = zip(*rows[i]["tokens"], strict=True)
        assert list(pieces) == [*tokenizer.pieces(tokenizer.tokenize(translation)), "</s>"]
        np.testing.assert_allclose(found, expected, atol=1e-4)
        np.testing.assert_allclose(rows[i]["score"], expected.sum(), atol=1e-4)
        np.testing.assert_allclose(portable["score"][i], expected.sum(), atol=1e-4)
        assert not rows[i]["truncated"]
    loaded = keras_transformers.load(served.save(tmp_path / "saved"))
    for answer, row in zip(loaded.score(sources, translations), rows, strict=True):
        assert answer["score"] == pytest.approx(row["score"], abs=1e-4)
        assert [piece for piece, _ in answer["tokens"]] == [piece for piece, _ in row["tokens"]]
    assert served.score([], []) == []
    assert served.score(["the"], [" ".join(WORDS * 9)])[0]["truncated"]
    with pytest.raises(ValueError, match="as long as each other"):
        served.score(["the"], ["a", "b"])


@pytest.mark.slow
def test_languages_whose_target_nobody_has_said_are_no_hindrance(tokenizer):
    pieces = [*tokenizer.pieces(range(tokenizer.vocab_size)), "__en__", "__de__"]
    languages = {"tokens": {"en": "__en__", "de": "__de__"}, "source": "en"}
    many = PieceTokenizer(tokenizer.proto, pieces, languages=languages)
    assert many.languages.target is None
    model = Transformer.from_variant("tiny", many.vocab_size, padding_id=many.pad_id)
    search = Greedy(Constraints(boundaries=Boundaries(start=many.end_id, first=len(pieces) - 1)))
    served = Translator(model, many, search, (8,))
    assert len(served.score(["the cat"], ["the cat"])[0]["tokens"]) > 1
