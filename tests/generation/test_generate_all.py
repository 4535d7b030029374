"""Claims about decoding many sentences of any length."""

import numpy as np
import pytest

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    Speculative,
    generate,
    generate_all,
)
from keras_transformers.models import LanguageModel
from tests.generation.model import END, VOCAB, make, shared_model
from tests.slow import slow_except


def sentences(number, longest, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, number)
    return [np.append(rng.integers(3, VOCAB, length - 1), END) for length in lengths]


@pytest.mark.parametrize(
    "search",
    [BeamSearch(2, n_best=2), Sampling(seed=3), Greedy(Constraints(max_ratio=0.6))],
    ids=["beam", "sampling", "constrained greedy"],
)
def test_any_number_of_sentences_come_back_in_order_as_each_gives_alone(search):
    sources = sentences(23, 11)
    lengths, options = (4, 8, 11), {"batch_size": 5, "max_length": 9, "verbose": 0}
    together = generate_all(shared_model(), sources, search, lengths, **options)
    assert together["lengths"].max() == together["tokens"].shape[-1]
    for number in (0, 7, 22):
        source = sources[number : number + 1]
        alone = generate_all(shared_model(), source, search, lengths, **options)
        size = alone["tokens"].shape[-1]
        if not isinstance(search, Sampling) or number == 0:  # each has its own random numbers
            received = together["tokens"][number, ..., :size]
            np.testing.assert_array_equal(received, alone["tokens"][0])
            np.testing.assert_allclose(together["scores"][number], alone["scores"][0], atol=1e-4)


def test_many_sentences_compile_once_for_each_bucket():
    model, traces = make(), []
    step = model.decode_step
    model.decode_step = lambda *arguments: traces.append(arguments[0].shape) or step(*arguments)
    generate_all(model, sentences(300, 15), lengths=(8, 16), batch_size=64, verbose=0)
    number = len(traces)
    assert len(model._generators) == 2
    generate_all(model, sentences(50, 15, seed=1), lengths=(8, 16), batch_size=64, verbose=0)
    assert len(model._generators) == 2 and len(traces) == number


@pytest.mark.slow
def test_stages_change_nothing_but_the_cost():
    sources, search = sentences(13, 8), BeamSearch(2)
    options = {"lengths": (8,), "batch_size": 8, "max_length": 9, "verbose": 0}
    whole = generate_all(shared_model(), sources, search, **options)
    halved = generate_all(shared_model(), sources, search, stages=3, **options)
    np.testing.assert_array_equal(halved["tokens"], whole["tokens"])
    np.testing.assert_allclose(halved["scores"], whole["scores"], atol=1e-4)


SEARCHES = {
    "greedy": Greedy(),
    "beam": BeamSearch(3),
    "several beams": BeamSearch(3, n_best=2),
    "sampling": Sampling(seed=1),
    "several samples": Sampling(seed=1, num_samples=2),
    "drafts": Speculative(shared_model(), 2),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_no_sentence_gives_nothing_of_everything(search):
    none = generate_all(shared_model(), [], search, verbose=0)
    some = generate_all(shared_model(), [[3, END]], search, max_length=4, verbose=0)
    assert none.keys() == some.keys()
    for name, value in some.items():
        expected = (0, *value.shape[1:-1], 0) if name == "tokens" else (0, *value.shape[1:])
        assert none[name].shape == expected, name
        assert none[name].dtype == value.dtype, name


ENDS = (END, 4, 7, 9)
MANY = Constraints(boundaries=Boundaries(ENDS))


@pytest.mark.parametrize(
    "search",
    [
        Greedy(MANY),
        BeamSearch(3, n_best=2, constraints=MANY),
        BeamSearch(3, 1.0, n_best=2, normalization="length", constraints=MANY),
        Greedy(Constraints(boundaries=Boundaries(ENDS, last=END))),
    ],
    ids=["greedy", "beam", "beam of transformers", "a last token"],
)
def test_a_limit_cuts_as_that_of_generate_does(search):
    sources, length = sentences(9, 7), 5
    padded = np.zeros((9, 8), "int32")
    for row, source in zip(padded, sources, strict=True):
        row[: len(source)] = source
    options = {"search": search, "max_length": length}
    many = generate_all(shared_model(), sources, lengths=(8,), verbose=0, **options)
    batch = generate(shared_model(), padded, **options)
    assert many.keys() == batch.keys()
    for name, value in batch.items():
        np.testing.assert_allclose(many[name], value, atol=1e-5)
    chosen = length - (search.constraints.boundaries.last is not None)
    ended = np.any(np.isin(batch["tokens"][..., :chosen], ENDS), axis=-1)
    np.testing.assert_array_equal(batch["finished"], ended)
    assert ended.any()


@pytest.mark.parametrize(
    ("sources", "lengths", "message"),
    [
        ([[3, 2], []], None, r"at least one integer id, .*Received: number 1, .*shape \(0,\)"),
        ([[3.5]], None, "number 0, float64"),
        ([[3, 0, 2]], None, r"number 0, int64 of shape \(3,\), with a 0"),
        ([[3] * 9], (4, 8), r"`lengths` must increase up to the longest of `sources`, 9.*\(4, 8\)"),
        ([[3]], (8, 8), r"`lengths` must increase.*\(8, 8\)"),
        ([[3], [VOCAB]], None, "ids of `sources` must be from 0 to 12. Received: 13"),
        ([[-2]], None, "ids of `sources` must be from 0 to 12. Received: -2"),
    ],
)
def test_sources_and_lengths_that_do_not_fit_are_refused(sources, lengths, message):
    with pytest.raises(ValueError, match=f"generate_all: .*{message}"):
        generate_all(shared_model(), sources, lengths=lengths, verbose=0)


PROMPTS = [[4, 9], [], [7], [5, END, 8], [], [6, 6, 6]]  # END in a prompt ends nothing
PROMPTED = {"greedy": Greedy(), "beam": BeamSearch(2, n_best=2), "sampling": Sampling(seed=3)}


def assert_as_alone(together, number, alone):
    """Asserts that a row of `generate_all` is what `generate` gives for it alone."""
    size = alone["tokens"].shape[-1]
    tokens = together["tokens"][number]
    np.testing.assert_array_equal(tokens[..., :size], alone["tokens"][0, ..., : tokens.shape[-1]])
    assert not tokens[..., size:].any()
    np.testing.assert_allclose(together["scores"][number], alone["scores"][0], atol=1e-4)
    np.testing.assert_array_equal(together["finished"][number], alone["finished"][0])


@pytest.mark.parametrize("new_tokens", slow_except({"ratio": None, "new tokens": 5}, "ratio"))
@pytest.mark.parametrize("search", slow_except(PROMPTED, "beam"))
def test_prompts_begin_the_outputs_as_those_of_generate(search, new_tokens):
    sources, model = sentences(len(PROMPTS), 6), shared_model()
    options = {"prompts": PROMPTS, "new_tokens": new_tokens, "batch_size": 4, "verbose": 0}
    together = generate_all(model, sources, search, (8,), **options)
    for number, (source, prompt) in enumerate(zip(sources, PROMPTS, strict=True)):
        limit = min(2 * len(source) + 10, len(source) + 50)
        limit = limit if new_tokens is None else len(prompt) + new_tokens
        if isinstance(search, Sampling) and number:
            tokens = together["tokens"][number]
            assert tokens[: len(prompt)].tolist() == prompt and not tokens[limit:].any()
            continue
        alone = generate(model, source[None], [prompt], search, limit)
        assert_as_alone(together, number, alone)


@pytest.mark.parametrize("start_id", slow_except({"START": 1, "no START": None}, "no START"))
@pytest.mark.parametrize("search", slow_except(PROMPTED, "greedy"))
def test_language_models_go_on_with_prompts_as_generate_does(search, start_id):
    model = LanguageModel(VOCAB, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    prompts = [[*prompt, 3, 5] for prompt in PROMPTS]
    options = {"prompts": prompts, "new_tokens": 6, "start_id": start_id, "verbose": 0}
    together = generate_all(model, None, search, (3, 5), batch_size=2, **options)
    for number, prompt in enumerate(prompts):
        if isinstance(search, Sampling) and number:
            assert together["tokens"][number, : len(prompt)].tolist() == prompt
            continue
        limit = len(prompt) + 6
        alone = generate(model, None, [prompt], search, limit, start_id=start_id)
        assert_as_alone(together, number, alone)


@pytest.mark.slow
def test_phrases_of_each_row_occur_in_its_output():
    sources, model, search = sentences(3, 6), shared_model(), BeamSearch(3)
    phrases = [[[4, 9], [7]], [], [[5, 5, 6]]]
    together = generate_all(model, sources, search, (8,), 2, phrases=phrases, verbose=0)
    dense = np.zeros((3, 2, 3), "int32")
    for row, wanted in enumerate(phrases):
        tokens = " ".join(map(str, together["tokens"][row].tolist()))
        for which, ids in enumerate(wanted):
            dense[row, which, : len(ids)] = ids
            assert " ".join(map(str, ids)) in tokens
    for row, source in enumerate(sources):
        limit = min(2 * len(source) + 10, len(source) + 50)
        options = {"search": search, "max_length": limit, "phrases": dense[row : row + 1]}
        assert_as_alone(together, row, generate(model, source[None], **options))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"prompts": [[3], [3]]}, "`prompts` must be as many as `sources`, 3. Received: 2"),
        ({"prompts": [[3], [0, 4], []]}, r"`prompts` must be sequences of integer ids, none 0.*1,"),
        ({"prompts": [[3], [VOCAB], []]}, "ids of `prompts` must be from 0 to 12. Received: 13"),
        (
            {"prompts": [[3], [3] * 4, []], "max_length": 4},
            "each of `prompts` must be shorter than the limit on its output, 4 tokens. "
            "Received: number 1, of 4",
        ),
        ({"prompts": [[3], [], [4]], "start_id": None}, "`prompts` must be .* at least one.*1,"),
        ({"new_tokens": 0}, "`new_tokens` must be a positive integer. Received: 0"),
        ({"phrases": [[[3]], [[END]], []]}, "`phrases` must have no END, 2"),
        ({"phrases": [[[3]], [[4]]]}, r"`phrases` must be integer ids of shape \(3, phrases"),
        (
            {"sources": None, "prompts": [[3]]},
            "without `sources`, give `prompts`, and `new_tokens`",
        ),
        ({"sources": None, "new_tokens": 3}, "without `sources`, give `prompts`, and `new_tokens`"),
    ],
)
def test_prompts_and_phrases_that_do_not_fit_are_refused(options, message):
    options = {"sources": sentences(3, 6), "verbose": 0, **options}
    with pytest.raises(ValueError, match=f"generate_all: .*{message}"):
        generate_all(shared_model(), **options)
