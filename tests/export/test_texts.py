"""Claims about the SavedModels that classify, fill in and continue raw text."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.export import MaskFiller, SentenceEncoder, TextClassifier, TextGenerator
from keras_transformers.generation import Greedy, Sampling, generate
from keras_transformers.models import LanguageModel, TextEncoder
from keras_transformers.text import SentencePieceTokenizer, WordPieceTokenizer

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 2 + i % 9)) for i in range(70)]
WORDPIECE = WordPieceTokenizer.train(LINES, 60)
PIECES = SentencePieceTokenizer.train(LINES, 300, lossless=True)
SIZES = {"hidden_dim": 24, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
LENGTHS = (8, 16)


def random(model):
    model.build((None, None))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 2 for weight in model.get_weights()])
    return model


CLASSIFIER = random(
    TextEncoder.from_variant(
        "base", WORDPIECE.vocab_size, head="classification", num_classes=3, **SIZES
    )
)
MASKED = random(
    TextEncoder.from_variant("base", WORDPIECE.vocab_size, head="masked_language", **SIZES)
)
ENCODER = random(TextEncoder(WORDPIECE.vocab_size, **SIZES))
WRITER = random(LanguageModel.from_variant("small", PIECES.vocab_size, style="modern", **SIZES))


def text(strings):
    return [string.decode() for string in strings.numpy()]


# ------------------------------------------------------------------------------ classification


@pytest.fixture(scope="module")
def classifier():
    return TextClassifier(CLASSIFIER, WORDPIECE, ["x", "y", "z"], LENGTHS)


@pytest.mark.parametrize("batch", [1, 3, 70])
def test_probabilities_are_the_models_whatever_the_batch(classifier, batch):
    found = classifier.probabilities(LINES[:batch])
    assert found.shape == (batch, 3)
    for number in {0, batch // 2, batch - 1}:
        ids = WORDPIECE.tokenize([LINES[number]], start=True, end=True).to_tensor()
        expected = tf.nn.softmax(CLASSIFIER(ids, training=False)).numpy()[0]
        np.testing.assert_allclose(found[number], expected, atol=1e-5)


def test_labels_empty_texts_and_long_texts(classifier):
    result = classifier(tf.constant(["", " ".join(WORDS * 3), "the cat"]))
    assert result["truncated"].numpy().tolist() == [False, True, False]
    best = result["probabilities"].numpy().argmax(1)
    assert text(result["label"]) == [["x", "y", "z"][i] for i in best]
    np.testing.assert_allclose(result["probabilities"].numpy().sum(1), 1, atol=1e-5)
    assert classifier.probabilities([]).shape == (0, 3)


# ------------------------------------------------------------------------------- masked tokens


@pytest.fixture(scope="module")
def filler():
    return MaskFiller(MASKED, WORDPIECE, LENGTHS)


def test_a_mask_becomes_the_most_probable_ordinary_token(filler):
    sentences = ["the [MASK] sat on [MASK]", "a dog", "[MASK]"]
    result = filler(tf.constant(sentences))
    for number, sentence in enumerate(sentences):
        ids = WORDPIECE.tokenize([sentence], start=True, end=True).to_tensor()
        logits = MASKED(ids, training=False).numpy()[0]
        logits[:, :5] = -np.inf  # the special tokens
        filled = np.where(ids[0] == WORDPIECE.mask_id, logits.argmax(-1), ids[0])
        assert text(result["text"])[number] == WORDPIECE.detokenize(filled).numpy().decode()
        positions = np.flatnonzero(ids[0] == WORDPIECE.mask_id)
        probabilities = result["probabilities"][number].numpy()
        if not len(positions):
            assert not probabilities.any()
            continue
        expected = np.sort(tf.nn.softmax(logits[positions[0]]).numpy())[::-1][:5]
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert text(result["candidates"][1]) == [""] * 5


# -------------------------------------------------------------------------------- continuations


@pytest.fixture(scope="module")
def writer():
    return TextGenerator(WRITER, PIECES, Greedy(), new_tokens=9, prompt_lengths=(4, 12))


PROMPTS = ["the cat", "", "a dog and the old house", "so\n  it"]


@pytest.mark.slow
def test_continuations_are_those_of_generate(writer):
    result = writer(tf.constant(PROMPTS))
    for number, prompt in enumerate(PROMPTS):
        ids = PIECES.tokenize([prompt]).to_tensor().numpy()
        size = ids.shape[1]
        found = generate(WRITER, prompt=ids, search=Greedy(), max_length=size + 10)["tokens"][0]
        assert text(result["text"])[number] == PIECES.detokenize(found[: size + 9]).numpy().decode()
        assert text(result["text"])[number].startswith(prompt)
        assert prompt + text(result["continuation"])[number] == text(result["text"])[number]


def test_a_text_is_continued_as_if_it_were_alone(writer):
    many = (PROMPTS * 20)[:70]
    assert writer.write(many)[-1] == writer.write(many[-1:])[0]
    assert writer.write([]) == []


def test_the_end_of_a_long_prompt_is_gone_on_with(writer):
    long = " ".join(WORDS * 2)
    result = writer(tf.constant([long, "the"]))
    assert result["truncated"].numpy().tolist() == [True, False]
    ids = PIECES.tokenize([long]).to_tensor().numpy()[:, -12:]
    cut = PIECES.detokenize(ids).numpy()[0].decode()
    assert text(result["text"])[0].startswith(cut)
    assert writer.write([cut])[0] == text(result["text"])[0]


def test_a_seed_makes_samples_the_same_and_none_makes_them_new():
    options = {"new_tokens": 9, "prompt_lengths": (12,)}
    fixed = TextGenerator(WRITER, PIECES, Sampling(seed=3), **options)
    assert fixed.write(PROMPTS) == fixed.write(PROMPTS)
    free = TextGenerator(WRITER, PIECES, **options)
    assert free.write(PROMPTS) != free.write(PROMPTS)


# -------------------------------------------------------------------------------------- errors


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`labels` must have a name for each of the model's 3"):
        TextClassifier(CLASSIFIER, WORDPIECE, ["x"])
    with pytest.raises(ValueError, match="TextClassifier: `lengths` must increase"):
        TextClassifier(CLASSIFIER, WORDPIECE, ["x", "y", "z"], (8, 8))
    with pytest.raises(ValueError, match="MaskFiller: `lengths` must increase"):
        MaskFiller(MASKED, WORDPIECE, ())
    with pytest.raises(ValueError, match="TextGenerator: `new_tokens` must be positive.*0"):
        TextGenerator(WRITER, PIECES, new_tokens=0)
    short = LanguageModel(PIECES.vocab_size, 8, num_heads=2, mlp_dim=8, num_layers=1, max_length=80)
    with pytest.raises(ValueError, match="TextGenerator: the model's 80 positions must hold"):
        TextGenerator(short, PIECES, new_tokens=16, prompt_lengths=(16, 65))
    assert "truncated" in TextGenerator(short, PIECES, Greedy(), 16)(tf.constant(["a cat"]))


# ----------------------------------------------------------------------------------- sentences


@pytest.mark.parametrize("pooling", ["mean", "token"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_sentences_vector_is_that_of_its_own_tokens(pooling, normalize):
    encoder = SentenceEncoder(ENCODER, WORDPIECE, pooling, normalize, LENGTHS)
    found = encoder.encode([LINES[0], "", LINES[1]])
    for sentence, vector in zip([LINES[0], "", LINES[1]], found, strict=True):
        ids = WORDPIECE.tokenize([sentence], start=True, end=True).to_tensor()
        tokens = ENCODER(ids, training=False).numpy()[0].astype("float64")
        expected = tokens.mean(axis=0) if pooling == "mean" else tokens[0]
        expected = expected / np.linalg.norm(expected) if normalize else expected
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_a_sentence_encoder_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match='`pooling` must be "mean" or "token"'):
        SentenceEncoder(ENCODER, WORDPIECE, pooling="last")
    with pytest.raises(ValueError, match="must give a vector for each token"):
        SentenceEncoder(CLASSIFIER, WORDPIECE)
