"""Claims about what an exported translator says of its translations, piece by piece."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch, Boundaries, Constraints, Greedy
from keras_transformers.models import Transformer
from keras_transformers.predictors import QualityEstimator, TranslatorPredictor
from keras_transformers.tasks.served import Signature
from keras_transformers.tasks.translation_quality import ConfidenceCurve
from keras_transformers.text import SentencePieceTokenizer

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 7)) for i in range(60)]
TEXTS = [*LINES[:5], "", "the cat"]


def random_translator(search, languages=(), seed=5):
    tokenizer = SentencePieceTokenizer.train(LINES, 36, languages=languages)
    model = Transformer(36, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    generator = np.random.default_rng(seed)
    model.set_weights([generator.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return Translator(model, tokenizer, search, source_lengths=(16,))


@pytest.fixture(scope="module")
def translator():
    return random_translator(Greedy())


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    translator.confidence = ConfidenceCurve((-3.5, -3.0, -1.0), (10.0, 30.0, 70.0))
    return translator.save(tmp_path_factory.mktemp("translator"))


def float64_log_probabilities(translator, text, target):
    """Of every token behind each of the target's, by a forward pass of one sentence."""
    source = translator.tokenizer.tokenize([text], end=True).to_tensor()
    logits = translator.model({"source": source, "target": tf.constant([target])})
    logits = np.asarray(logits[0], "float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.slow
def test_the_pieces_of_a_translation_have_the_model_s_own_log_probabilities(translator):
    """The score of greedy search is their sum, by its cached steps."""
    tokenizer, rows = translator.tokenizer, TranslatorPredictor(translator).predict(
        TEXTS, scores=True
    )  # fmt: skip
    vocab = tokenizer.pieces(range(36))
    for text, row, plain in zip(TEXTS, rows, translator.translate(TEXTS), strict=True):
        assert row["translation"] == plain
        ids = [vocab.index(piece) for piece, _ in row["tokens"]]
        found = [value for _, value in row["tokens"]]
        np.testing.assert_allclose(row["log_probability"], row["score"], atol=1e-4)
        np.testing.assert_allclose(row["log_probability"], sum(found), atol=1e-4)
        if not text:
            assert row["tokens"] == [] and row["score"] == 0
            continue
        assert tokenizer.detokenize([ids]).numpy()[0].decode() == plain
        of_all = float64_log_probabilities(translator, text, [tokenizer.start_id, *ids[:-1]])
        np.testing.assert_allclose(found, of_all[np.arange(len(ids)), ids], atol=1e-4)


@pytest.mark.slow
def test_a_length_penalty_is_not_in_the_pieces_probabilities(translator):
    search = BeamSearch(3, length_penalty=2.0)
    other = Translator(translator.model, translator.tokenizer, search, (16,))
    row = TranslatorPredictor(other).predict(LINES[0], scores=True)
    again = other.score([LINES[0]], [row["translation"]])[0]
    pieces = [piece for piece, _ in row["tokens"]]
    if pieces == [piece for piece, _ in again["tokens"]]:
        np.testing.assert_allclose(row["log_probability"], again["score"], atol=1e-4)
    assert abs(row["log_probability"] - row["score"]) > 1e-2


def test_a_language_s_own_token_at_the_start_is_none_of_the_pieces():
    """As NLLB has it: the search puts it first, whatever the model thinks of it."""
    search = Greedy(Constraints(boundaries=Boundaries(first=7)))
    translator = random_translator(search)
    row = TranslatorPredictor(translator).predict(LINES[0], scores=True)
    ids = [translator.tokenizer.pieces(range(36)).index(piece) for piece, _ in row["tokens"]]
    start = translator.tokenizer.start_id
    of_all = float64_log_probabilities(translator, LINES[0], [start, 7, *ids[:-1]])[1:]
    found = [value for _, value in row["tokens"]]
    np.testing.assert_allclose(found, of_all[np.arange(len(ids)), ids], atol=1e-4)
    np.testing.assert_allclose(row["log_probability"], row["score"], atol=1e-4)


@pytest.mark.slow
def test_pieces_are_scored_by_the_settings_of_the_request_beside_a_saved_model(translator):
    """Whose own signature has others."""
    ours = TranslatorPredictor(lambda text: {})
    vars(ours)["loaded"] = type("Saved", (), {"signatures": {"tokens": None}})
    ours._made["served"] = translator
    ours._fitting = None
    row = ours.predict(LINES[0], scores=True, new_tokens=3)
    assert len(row["tokens"]) <= 3
    expected = TranslatorPredictor(translator).predict(LINES[0], scores=True, new_tokens=3)
    assert row == expected


def test_alternatives_are_the_likeliest_of_the_whole_vocabulary(translator):
    predictor, tokenizer = TranslatorPredictor(translator), translator.tokenizer
    prefixes = ["the cat", "", "a"]
    found = predictor.alternatives(LINES[:3], prefixes, k=5)
    for text, prefix, row in zip(LINES, prefixes, found, strict=False):
        target = tokenizer.tokenize([prefix], start=True).numpy()[0].tolist()
        expected = float64_log_probabilities(translator, text, target)[-1]
        best = np.argsort(-expected)[:5]
        assert [piece for piece, _ in row] == tokenizer.pieces(best)
        np.testing.assert_allclose([value for _, value in row], expected[best], atol=1e-4)
    first = predictor.alternatives(LINES[0], "the cat", k=2)
    assert [piece for piece, _ in first] == [piece for piece, _ in found[0][:2]]
    whole = predictor.alternatives(LINES[0], "the cat", k=64)
    assert sum(np.exp([value for _, value in whole])) == pytest.approx(1, abs=1e-4)


def test_alternatives_refuse_what_they_cannot_answer(translator):
    predictor = TranslatorPredictor(translator)
    for k in (0, 65):
        with pytest.raises(ValueError, match=f"`k` must be from 1 to 64. Received: {k}"):
            predictor.alternatives("a", "", k=k)
    with pytest.raises(ValueError, match="`prefix` must be as `text` is"):
        predictor.alternatives(["a"], "a")
    with pytest.raises(ValueError, match="item 1 is longer than the translator takes"):
        predictor.alternatives(["a", "a"], ["", " ".join(LINES)])
    with pytest.raises(AttributeError, match="no signature 'alternatives'"):
        TranslatorPredictor(lambda text: {}).alternatives("a", "")


def test_a_translator_that_was_not_calibrated_has_no_confidence():
    def answer(text):
        return {name: tf.zeros([1]) for name in ("score", "truncated")} | {"translation": text}

    class Uncalibrated:
        @staticmethod
        def further_signature(name):
            return Signature(answer, answer)

    with pytest.raises(ValueError, match="`confidence` must be False.*calibrate_confidence"):
        TranslatorPredictor(Uncalibrated()).predict("the cat", confidence=True)


@pytest.mark.slow
def test_a_saved_translator_says_the_same_with_tensorflow_alone(translator, saved):
    loaded = tf.saved_model.load(str(saved))
    text, prefix = tf.constant(TEXTS), tf.constant([*LINES[:5], "", "the"])
    found = loaded.signatures["tokens"](text=text)
    expected = translator.further_signature("tokens").portable(text)
    assert found["tokens"].numpy().tolist() == expected["tokens"].numpy().tolist()
    assert found["translation"].numpy().tolist() == expected["translation"].numpy().tolist()
    np.testing.assert_allclose(found["log_probabilities"], expected["log_probabilities"], atol=1e-5)
    of_python = TranslatorPredictor(translator)
    rows = of_python.predict(TEXTS, confidence=True)
    curve = translator.confidence
    for i, row in enumerate(rows):
        number = max((found["tokens"][i].numpy() != b"").sum(), 1)
        mean = found["log_probability"][i].numpy() / number
        np.testing.assert_allclose(found["confidence"][i], curve(mean), rtol=1e-4)
        np.testing.assert_allclose(row["confidence"], curve(mean), rtol=1e-3)
    answer = loaded.signatures["alternatives"](text=text, prefix=prefix)
    predictor = keras_transformers.load(saved)
    for i, row in enumerate(predictor.alternatives(TEXTS, [*LINES[:5], "", "the"], k=3)):
        assert [piece.encode() for piece, _ in row] == answer["tokens"][i, :3].numpy().tolist()
    scored = predictor.predict(TEXTS[0], scores=True, confidence=True)
    assert scored["translation"] == rows[0]["translation"]
    assert scored["log_probability"] == pytest.approx(scored["score"], abs=1e-4)


@pytest.mark.slow
def test_a_translator_of_several_languages_tells_of_each(tmp_path):
    translator = random_translator(Greedy(), ("de", "es"))
    predictor = keras_transformers.load(translator.save(tmp_path / "saved"))
    for code in ("de", "es"):
        row = predictor.predict("the cat", target_language=code, scores=True)
        assert row["log_probability"] == pytest.approx(row["score"], abs=1e-4)
        first = row["tokens"][0]
        likeliest = predictor.alternatives("the cat", "", k=36, target_language=code)
        assert dict(likeliest)[first[0]] == pytest.approx(first[1], abs=1e-4)


def test_quality_is_the_mean_log_probability_one_way_or_both(translator):
    backward = Translator(translator.model, translator.tokenizer, Greedy(), (16,))
    texts, translations = LINES[:3], ["the cat", "a", ""]
    there = [row["score"] / len(row["tokens"]) for row in translator.score(texts, translations)]
    back = [row["score"] / len(row["tokens"]) for row in backward.score(translations, texts)]
    np.testing.assert_allclose(QualityEstimator(translator).estimate(texts, translations), there)
    both = QualityEstimator(translator, TranslatorPredictor(backward))
    np.testing.assert_allclose(both.estimate(texts, translations), np.add(there, back) / 2)


def test_next_log_probabilities_do_not_depend_on_padding():
    keras.utils.set_random_seed(1)
    model = Transformer(13, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    source, target = np.array([[5, 7, 2]]), np.array([[1, 4, 6]])
    plain = keras.ops.convert_to_numpy(model.next_log_probabilities(source, target))
    padded = model.next_log_probabilities(source, np.pad(target, ((0, 0), (0, 4))))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(padded), plain, atol=1e-5)
    logits = keras.ops.convert_to_numpy(model({"source": source, "target": target}))[:, -1]
    logits = logits.astype("float64")
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(plain, expected, atol=1e-5)
