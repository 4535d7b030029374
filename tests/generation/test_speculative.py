"""Claims about speculative decoding: greedy's tokens, and the distribution of sampling."""

import itertools

import keras
import numpy as np
import pytest
import scipy.stats

from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Sampling,
    Speculative,
    generate,
    generate_all,
)
from keras_transformers.layers import (
    ALiBi,
    CausalSelfAttention,
    LocalAttention,
    RelativePositionBias,
    RotaryEmbedding,
    ShawRelativePosition,
)
from keras_transformers.models import LanguageModel, RecurrentTranslator, Transformer
from tests.contract import to_numpy
from tests.generation.model import END, PROMPT, SOURCE, VOCAB, make, shared_model, whole_pass

LENGTH = 19


def draft_of(model, noise=0.15):
    """A model that agrees with another one often, not always."""
    draft = make(seed=38)
    rng = np.random.default_rng(3)
    draft.set_weights(
        [w + noise * rng.normal(size=w.shape) * np.std(w) for w in model.get_weights()]
    )
    return draft


@pytest.fixture(scope="module")
def draft():
    return draft_of(shared_model())


def same(found, alone):
    np.testing.assert_array_equal(found["tokens"], alone["tokens"])
    np.testing.assert_array_equal(found["lengths"], alone["lengths"])
    np.testing.assert_allclose(found["scores"], alone["scores"], atol=1e-4)


CONSTRAINTS = Constraints(min_length=4, max_ratio=2.0, no_repeat_ngram=2, banned=(7, (5, 9)))


@pytest.mark.parametrize("constraints", [CONSTRAINTS, Constraints(repetition_penalty=1.6)])
@pytest.mark.slow
def test_constraints_and_prompts_decide_as_they_do_without_a_draft(draft, constraints):
    search = Greedy(constraints)
    alone = generate(shared_model(), SOURCE, PROMPT, search, max_length=LENGTH)
    search = Speculative(draft, 3, search)
    same(generate(shared_model(), SOURCE, PROMPT, search, max_length=LENGTH), alone)


def test_greedy_tokens_of_any_batch_are_those_of_the_model_alone(draft):
    sources = [row[row != 0] for row in SOURCE] * 7  # more rows than are written one by one
    options = {"lengths": (5,), "batch_size": 21, "verbose": 0}
    found = generate_all(shared_model(), sources, Speculative(draft, 2), **options)
    same(found, generate_all(shared_model(), sources, **options))
    # Some drafts are kept, and some are not.
    assert np.all(found["passes"] < found["lengths"])
    assert np.any(found["passes"] > np.ceil(found["lengths"] / 3))


@pytest.mark.slow
def test_language_models_go_on_with_prompts_of_any_length():
    """Up to the last position of a learned table, which no draft may pass."""
    sizes = {"hidden_dim": 24, "num_heads": 4, "mlp_dim": 32, "max_length": LENGTH}
    model, small = (
        LanguageModel.from_variant("tiny", VOCAB, num_layers=n, **sizes) for n in (2, 1)
    )
    rng = np.random.default_rng(5)
    for each in (model, small):
        each.build((None, None))
        each.set_weights([rng.normal(size=w.shape) * 0.6 for w in each.weights])
    prompts = np.array([[4, 9, 3, 8], [7, 0, 0, 0], [5, 6, 0, 0]])
    options = {"prompt": prompts, "max_length": LENGTH, "start_id": None}
    same(generate(model, search=Speculative(small), **options), generate(model, **options))


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: CausalSelfAttention(4, num_key_value_heads=2, position=RotaryEmbedding()),
        lambda: CausalSelfAttention(2, position=ALiBi()),
        lambda: CausalSelfAttention(2, position=ShawRelativePosition(3)),
        lambda: LocalAttention(2, window_size=3, causal=True),
    ],
    ids=["rotary", "alibi", "shaw", "local"],
)
def test_a_block_step_gives_what_the_whole_sequence_gives(make_layer):
    layer, x = make_layer(), np.random.default_rng(0).normal(size=(3, 7, 16)).astype("float32")
    whole = to_numpy(layer(x))
    _, cache = layer.prefill(x[:, :4], layer.start_cache(3, 1, 7), 1)
    index = np.array([2, 4, 0], "int32")  # what the cache has from there on is written anew
    block = np.stack([row[i : i + 3] for row, i in zip(x, index, strict=True)])
    y, cache = layer.step(block, cache, keras.ops.convert_to_tensor(index))
    expected = np.stack([row[i : i + 3] for row, i in zip(whole, index, strict=True)])
    np.testing.assert_allclose(to_numpy(y), expected, atol=1e-5)


@pytest.mark.slow
def test_a_model_that_drafts_for_itself_is_always_right():
    """Also where its blocks share a bias of positions."""
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 16, "num_layers": 1}
    bias = RelativePositionBias(bidirectional=False)
    model = Transformer(VOCAB, positions=(None, bias), **sizes)
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(2)
    model.set_weights([rng.normal(size=w.shape) * 0.6 for w in model.weights])
    alone = generate(model, SOURCE, max_length=9)
    found = generate(model, SOURCE, search=Speculative(model, 2), max_length=9)
    same(found, alone)
    np.testing.assert_array_equal(found["passes"], np.ceil(found["lengths"] / 3))


# ---------------------------------------------------------------------------------- sampling


def after(log_probabilities, search):
    """The distribution that is drawn from, as the papers on sampling say it, in float64."""
    logits = np.float64(log_probabilities) / search.temperature
    logits[0] = -np.inf  # padding
    p = np.exp(logits - np.max(logits))
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept = order[: search.top_k or VOCAB]
    if search.top_p:
        share = np.cumsum(p[kept]) / p[kept].sum()
        kept = kept[: np.searchsorted(share, search.top_p) + 1]
    cut = np.zeros(VOCAB)
    cut[kept] = p[kept]
    return cut / cut.sum()


def distribution(search, length=3):
    """The probability of every sequence, by whole passes over all that it may begin with."""
    prefixes = np.array(list(itertools.product(range(VOCAB), repeat=length - 1)), "int32")
    prefixes = np.pad(prefixes, ((0, 0), (0, 1)))
    source, found = np.repeat(SOURCE[:1], len(prefixes), axis=0), {}
    for prefix, logp in zip(prefixes, whole_pass()(source, prefixes), strict=True):
        p, ended = 1.0, False
        for token, row in zip(prefix[:-1], logp, strict=False):
            p *= token == 0 if ended else after(row, search)[token]
            ended = ended or token == END
        for token, share in enumerate(after(logp[-1], search)):
            share = p * (token == 0 if ended else share)
            if share > 0:
                found[*prefix[:-1], token] = share
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "search",
    [Sampling(seed=1), Sampling(temperature=1.5, top_k=6, top_p=0.9, seed=1)],
    ids=["plain", "cut"],
)
def test_samples_follow_the_distribution_of_the_model(draft, search):
    rows, expected = 20_000, distribution(search)
    assert sum(expected.values()) == pytest.approx(1)
    source = np.repeat(SOURCE[:1], rows, axis=0)
    drafting = Speculative(draft, 2, search)
    found = generate(shared_model(), source, search=drafting, max_length=3)
    assert 0.05 < np.mean(found["passes"] > 1) < 0.95  # where a draft was refused
    counts = dict.fromkeys(expected, 0)
    for tokens in map(tuple, found["tokens"]):
        counts[tokens] += 1
    seen = np.array([counts[key] for key in expected])
    mean = rows * np.array(list(expected.values()))
    rare = mean < 5  # together in one
    seen, mean = (np.append(each[~rare], np.sum(each[rare])) for each in (seen, mean))
    used = mean > 0
    assert np.sum(used) > 20
    assert scipy.stats.chisquare(seen[used], mean[used]).pvalue > 1e-3
    # Scores are the model's own log-probabilities.
    tokens = found["tokens"][:9]
    logp = whole_pass()(source[:9], tokens)
    chosen = np.take_along_axis(logp, tokens[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(found["scores"][:9], np.sum(chosen * (tokens != 0), 1), atol=1e-4)


# ------------------------------------------------------------------------------------ errors


def test_what_cannot_draft_is_refused(draft):
    with pytest.raises(ValueError, match="search"):
        Speculative(draft, search=BeamSearch(2))
    with pytest.raises(ValueError, match="one sample"):
        Speculative(draft, search=Sampling(num_samples=2))
    with pytest.raises(ValueError, match="num_tokens"):
        Speculative(draft, 0)
    other = Transformer(VOCAB + 1, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=1)
    with pytest.raises(ValueError, match=rf"vocabulary.*{VOCAB}.*Received.*{VOCAB + 1}"):
        generate(shared_model(), SOURCE, search=Speculative(other), max_length=4)
    recurrent = RecurrentTranslator(VOCAB, hidden_dim=8)
    with pytest.raises(ValueError, match="cache"):
        generate(shared_model(), SOURCE, search=Speculative(recurrent), max_length=4)


def test_an_export_refuses_a_draft(draft):
    pytest.importorskip("tensorflow")
    from keras_transformers.tasks.rounds import exportable_search

    with pytest.raises(ValueError, match="Translator: `search`"):
        exportable_search("Translator", Speculative(draft))
