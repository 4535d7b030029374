"""Claims about lists of target tokens: how they are learned, and searches within them."""

import collections
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    Shortlist,
    Shortlisted,
    Speculative,
    generate,
    generate_all,
)
from keras_transformers.generation.request import MASKED
from keras_transformers.generation.shortlists import learn_lexicon
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.embeddings import ListedTokens
from keras_transformers.models import LanguageModel, RecurrentTranslator
from keras_transformers.training import add_lora
from tests.adapters import fill
from tests.contract import to_numpy
from tests.generation.model import END, LENGTH, PROMPT, SOURCE, START, VOCAB, make, shared_model
from tests.slow import slow_except

RNG = np.random.default_rng(5)
PAIRS = [[RNG.integers(3, VOCAB, n).tolist() for n in (2, 5, 3, 4, 1)] for _ in range(2)]
LISTS = Shortlist.learn(*PAIRS, VOCAB, VOCAB, likeliest=1, frequent=1)


def by_hand(sources, targets, iterations):
    """IBM model 1 as the paper writes it, a pair of words at a time."""
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = collections.Counter(), collections.Counter()
        for source, target in zip(sources, targets, strict=True):
            source = [None, *source]
            for f in target:
                whole = sum(t[e, f] for e in source)
                for e in source:
                    counts[e, f] += t[e, f] / whole
                    totals[e] += t[e, f] / whole
        t = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return {pair: p for pair, p in t.items() if pair[0] is not None}


def test_the_lexicon_is_that_of_ibm_model_1(monkeypatch):
    sources, targets = [[*PAIRS[0], [7, 7, 8], []], [*PAIRS[1], [3, 9], [4]]]
    monkeypatch.setattr("keras_transformers.generation.shortlists.AT_ONCE", 20)  # several chunks
    found = learn_lexicon(sources, targets, iterations=3)
    expected = by_hand(sources, targets, 3)
    assert {(s, t): p for s, t, p in zip(*map(np.ndarray.tolist, found), strict=True)} == (
        pytest.approx(expected, rel=1e-12)
    )


def test_lists_have_the_most_probable_the_most_frequent_and_the_token_itself():
    expected = by_hand(*PAIRS, 5)
    for token in {e for e, _ in expected}:
        ranked = sorted((-p, f) for (e, f), p in expected.items() if e == token)
        assert LISTS.of(token).tolist() == sorted({token, *(f for _, f in ranked[:1])})
    assert LISTS.of(START).tolist() == [START]  # of what was never seen, itself alone
    counts = np.bincount(list(itertools.chain(*PAIRS[1])))
    assert LISTS.frequent.tolist() == [int(counts.argmax())]


class Masked(keras.Model):
    """A model whose logits of all that is not listed are minus infinity: the full softmax."""

    def __init__(self, model, shortlist, also=(0, START, END)):
        super().__init__()
        self.model = model
        self.lists = np.zeros((VOCAB, VOCAB), bool)
        for token in range(VOCAB):
            self.lists[token, [*shortlist.of(token), *shortlist.frequent, *also]] = True
        self.built = True

    def start_decoding(self, source, *arguments, **options):
        state, shared = self.model.start_decoding(source, *arguments, **options)
        allowed = ops.any(ops.take(ops.convert_to_tensor(self.lists), source, axis=0), axis=1)
        return state, (shared, allowed)

    def decode_step(self, ids, index, state, shared, back_pointers):
        logits, state = self.model.decode_step(ids, index, state, shared[0], back_pointers)
        return ops.where(shared[1][:, None], logits, MASKED), state


def same(found, expected):
    np.testing.assert_array_equal(found["tokens"], expected["tokens"])
    np.testing.assert_array_equal(found["lengths"], expected["lengths"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


CONSTRAINED = Constraints(no_repeat_ngram=2, banned=(4, (5, 9)), required=(3,), max_ratio=2.0)
SEARCHES = {
    "greedy": Greedy(),
    "beam": BeamSearch(3, n_best=3, coverage_penalty=0.2),
    "sampling": Sampling(2.0, top_k=5, top_p=0.9, min_p=0.01, num_samples=2, seed=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("search", slow_except(SEARCHES, "beam"))
def test_a_search_within_lists_is_the_full_search_without_all_other_tokens(search):
    found = generate(shared_model(), SOURCE, search=Shortlisted(LISTS, search), max_length=LENGTH)
    masked = Masked(shared_model(), LISTS)
    same(found, generate(masked, SOURCE, search=search, max_length=LENGTH))
    for source, tokens in zip(SOURCE, found["tokens"], strict=True):
        allowed = np.any(masked.lists[source], axis=0)
        assert allowed[tokens].all()
        assert not allowed.all()


@pytest.mark.slow
def test_a_list_of_all_tokens_changes_nothing():
    search = Sampling(2.0, num_samples=2, seed=3)
    nothing, splits = np.zeros(0, "int32"), np.zeros(VOCAB + 1, int)
    every = Shortlist(nothing, splits, np.arange(VOCAB, dtype="int32"), VOCAB)
    found = generate(shared_model(), SOURCE, search=Shortlisted(every, search), max_length=LENGTH)
    same(found, generate(shared_model(), SOURCE, search=search, max_length=LENGTH))


@pytest.mark.slow
def test_constraints_hold_within_lists_and_what_they_name_is_listed():
    boundaries = Boundaries(ends=(END, 7), first=10, last=END, banned_first=(5,))
    constraints = Constraints(**vars(CONSTRAINED) | {"boundaries": boundaries})
    search = BeamSearch(3, constraints=constraints)
    found = generate(shared_model(), SOURCE, search=Shortlisted(LISTS, search), max_length=9)
    masked = Masked(shared_model(), LISTS, (0, START, END, 3, 4, 5, 7, 9, 10))
    same(found, generate(masked, SOURCE, search=search, max_length=9))
    assert (found["tokens"][:, 0] == 10).all()
    assert (found["tokens"] == 3).any(axis=1).all()


def test_a_prompt_may_hold_what_is_not_listed():
    found = generate(shared_model(), SOURCE, PROMPT, Shortlisted(LISTS), max_length=LENGTH)
    given = PROMPT != 0
    np.testing.assert_array_equal(found["tokens"][:, :2][given], PROMPT[given])


@pytest.mark.slow
def test_what_a_source_becomes_within_its_lists_does_not_depend_on_its_neighbours():
    sources = [row[row != 0] for row in SOURCE]
    search = Shortlisted(LISTS, BeamSearch(2))
    options = {"lengths": (5,), "batch_size": 3, "verbose": 0, "stages": 2}
    found = generate_all(shared_model(), sources, search, **options)
    for number, source in enumerate(sources):
        alone = generate_all(shared_model(), [source] * 3, search, **options)
        length = alone["tokens"].shape[1]
        np.testing.assert_array_equal(found["tokens"][number, :length], alone["tokens"][0])


def test_a_recurrent_translator_searches_within_lists():
    model = RecurrentTranslator(VOCAB, embedding_dim=6, hidden_dim=8)
    model.build({"source": (None, None), "target": (None, None)})
    found = generate(model, SOURCE, search=Shortlisted(LISTS), max_length=LENGTH)
    same(found, generate(Masked(model, LISTS), SOURCE, max_length=LENGTH))


def embedding(**options):
    layer = TokenEmbedding(VOCAB, 8, logits_bias=True, logits_scale=0.5, **options)
    layer.build()
    layer.bias.assign(RNG.normal(size=VOCAB))
    return layer


def in_eight_bits():
    layer = embedding()
    layer.quantize("int8")
    return layer


def adapted(layer, **options):
    model = keras.Sequential([layer])
    model(np.zeros((1, 1), "int32"))
    add_lora(model, rank=2, targets=".*", **options)
    fill(model)
    return layer


KINDS = {
    "tied": embedding,
    "with an own table": lambda: embedding(tie_weights=False),
    "in 8 bits": in_eight_bits,
    "with an adapter": lambda: adapted(embedding(), dora=True),
    "with an adapter on 8 bits": lambda: adapted(in_eight_bits()),
    "in bfloat16": lambda: embedding(dtype="mixed_bfloat16"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [(1, 1), (2, 3)])
def test_logits_of_listed_tokens_are_those_of_all(kind, rows):
    layer, ids = KINDS[kind](), np.array([0, 7, 3, 12], "int32")
    x = ops.cast(RNG.normal(size=(*rows, 8)), layer.compute_dtype)
    found = to_numpy(ListedTokens(layer, ops.convert_to_tensor(ids)).step_logits(x))
    whole = to_numpy(layer.step_logits(x))[..., ids]
    loose = kind in ("in bfloat16", "with an adapter on 8 bits")  # whose sums round otherwise
    np.testing.assert_allclose(found, whole, atol=0.1 if loose else 1e-5)


def test_what_was_saved_is_loaded(tmp_path):
    LISTS.save(tmp_path / "shortlist.npz")
    found = Shortlist.load(tmp_path / "shortlist.npz")
    for name, array in vars(LISTS).items():
        np.testing.assert_array_equal(getattr(found, name), array)


def test_a_file_that_is_no_shortlist_is_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, likeliest=np.zeros(3))
    with pytest.raises(ValueError, match=r"other.npz is no shortlist"):
        Shortlist.load(path)
    path.write_bytes(b"none")
    with pytest.raises(ValueError, match=r"other.npz is no shortlist"):
        Shortlist.load(path)


def test_errors_say_what_does_not_fit():
    with pytest.raises(ValueError, match=r"Shortlist: ids must be from 0 to 12. Received: 3 to 13"):
        Shortlist(np.array([3, 13]), np.array([0, 2]), np.zeros(0, int), VOCAB)
    with pytest.raises(ValueError, match=r"Shortlist: `splits` must rise"):
        Shortlist(np.array([3, 4]), np.array([0, 1]), np.zeros(0, int), VOCAB)
    with pytest.raises(ValueError, match=r"Shortlist.learn: ids must be below 5 and 13"):
        Shortlist.learn(*PAIRS, 5, VOCAB)
    with pytest.raises(ValueError, match=r"learn_lexicon: `sources` and `targets` must be as long"):
        learn_lexicon([[3]], [])
    with pytest.raises(ValueError, match=r"Shortlisted: `search` must be"):
        Shortlisted(LISTS, Speculative(make()))
    other = Shortlist.learn(*PAIRS, VOCAB, VOCAB + 1)
    with pytest.raises(ValueError, match=r"of the model, \(13, 13\). Received: \(13, 14\)"):
        generate(shared_model(), SOURCE, search=Shortlisted(other))
    model = LanguageModel.from_variant("tiny", VOCAB, hidden_dim=8, num_heads=1, num_layers=1)
    with pytest.raises(ValueError, match=r"must have `step_within`, as translators have"):
        generate(model, None, PROMPT[:1], Shortlisted(LISTS), max_length=4)
    with pytest.raises(ValueError, match=r"must be below .* 13. Received: \[14\]"):
        search = Shortlisted(LISTS, Greedy(Constraints(banned=(14,))))
        generate(shared_model(), SOURCE, search=search)
