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
from tests.generation.model import END, VOCAB, make, shared_model


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


def test_a_thousand_sentences_compile_once_for_each_bucket():
    model, traces = make(), []
    step = model.decode_step
    model.decode_step = lambda *arguments: traces.append(arguments[0].shape) or step(*arguments)
    generate_all(model, sentences(1000, 15), lengths=(8, 16), batch_size=64, verbose=0)
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
        ([[3] * 9], (4, 8), r"`lengths` must increase up to the longest source, 9.*\(4, 8\)"),
        ([[3]], (8, 8), r"`lengths` must increase.*\(8, 8\)"),
        ([[3], [VOCAB]], None, "ids of `sources` must be from 0 to 12. Received: 13"),
        ([[-2]], None, "ids of `sources` must be from 0 to 12. Received: -2"),
    ],
)
def test_sources_and_lengths_that_do_not_fit_are_refused(sources, lengths, message):
    with pytest.raises(ValueError, match=f"generate_all: .*{message}"):
        generate_all(shared_model(), sources, lengths=lengths, verbose=0)
