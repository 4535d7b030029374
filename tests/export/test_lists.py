"""Claims about translators that translate within lists."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.export import Translator
from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Sampling,
    Shortlist,
    Shortlisted,
    generate,
)
from keras_transformers.models import Transformer
from keras_transformers.tasks.translation_signatures import Lists
from keras_transformers.text import SentencePieceTokenizer

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
RNG = np.random.default_rng(0)
LINES = [" ".join(RNG.choice(WORDS, 1 + i % 9)) for i in range(70)]
LENGTHS = (16, 32)


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(LINES, vocab_size=36)


@pytest.fixture(scope="module")
def shortlist(tokenizer):
    ids = tokenizer.tokenize(LINES).to_list()
    return Shortlist.learn(ids, ids[1:] + ids[:1], 36, 36, 3, 2, shared=False)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 16, "num_layers": 1}
    model = Transformer.from_variant("base", 36, **sizes, norm_first=True)
    model.build({"source": (None, None), "target": (None, None)})
    return model


@pytest.mark.parametrize("padding", [0, 899, -1])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_lists_of_a_batch_in_the_graph_are_those_of_numpy(padding, compiled):
    pairs = [[RNG.integers(3, 899, 9).tolist() for _ in range(300)] for _ in range(2)]
    shortlist = Shortlist.learn(*pairs, 900, 900, likeliest=20, frequent=10)
    source = RNG.integers(3, 899, (40, 11)).astype("int32")
    source[3, 4:] = padding
    search = Shortlisted(shortlist, Greedy(Constraints(banned=(7, 800))))
    expected = shortlist.within(source, search.named(padding, 2, 1))
    assert expected.ids.shape == (1024,)
    assert expected.ids[:5].tolist() == [padding, 1, 2, 7, 800]
    within = tf.function(Lists(search, padding, 1, 2).within)
    found = within(tf.constant(source), compiled)
    number = found.ids.shape[0]
    assert number == 1024 if compiled else 512 < number < 1024
    np.testing.assert_array_equal(found.ids, expected.ids[:number])
    np.testing.assert_array_equal(found.allowed, expected.allowed[:, :number])
    assert not expected.allowed[:, number:].any()


@pytest.mark.slow
@pytest.mark.parametrize("search", [BeamSearch(3), Sampling(top_p=0.9, top_k=600, seed=2)])
def test_a_translator_is_within_its_lists_in_python_and_in_the_saved_model(
    model, tokenizer, shortlist, search, tmp_path
):
    translator = Translator(model, tokenizer, search, LENGTHS, shortlist)
    found = translator(tf.constant(LINES))
    path = translator.save(tmp_path / "saved")
    loaded = tf.saved_model.load(str(path)).signatures
    for name in ("serving_default", "xla"):
        for lines in (LINES, LINES[8:9]):
            again = loaded[name](text=tf.constant(lines))
            want = found["translation"] if lines is LINES else found["translation"][8:9]
            if isinstance(search, Sampling) and lines is not LINES:
                continue  # a seed's numbers go by the row
            np.testing.assert_array_equal(again["translation"], want)
    everything = Translator(model, tokenizer, search, LENGTHS)(tf.constant(LINES))
    assert (everything["translation"] != found["translation"]).numpy().any()


@pytest.mark.slow
def test_a_translator_gives_what_generate_gives_within_the_same_lists(model, tokenizer, shortlist):
    source = tokenizer.tokenize(LINES[:4], end=True).to_tensor(shape=(None, 32)).numpy()
    found = generate(model, source, search=Shortlisted(shortlist, BeamSearch(2)), max_length=40)
    translator = Translator(model, tokenizer, BeamSearch(2), (32,), shortlist)
    same = translator(tf.constant(LINES[:4]))
    for row, (translation, score) in enumerate(
        zip(same["translation"].numpy(), same["score"].numpy(), strict=True)
    ):
        length = int((source[row] != 0).sum())
        if found["lengths"][row] < 2 * length + 10:  # else it is cut
            tokens = found["tokens"][row : row + 1]
            assert tokenizer.detokenize(tokens).numpy()[0] == translation
            np.testing.assert_allclose(found["scores"][row], score, atol=1e-5)


def test_a_list_that_does_not_fit_is_refused(model, tokenizer, shortlist):
    other = Shortlist.learn([[3]], [[4]], 36, 37)
    with pytest.raises(ValueError, match=r"of the model, \(36, 36\). Received: \(36, 37\)"):
        Translator(model, tokenizer, shortlist=other)
    with pytest.raises(ValueError, match=r"Translator: `search` .* give `shortlist` beside it"):
        Translator(model, tokenizer, Shortlisted(shortlist))
