"""Claims about every option of the searches, against all sequences that there are.

The toy vocabulary has two words and END: at most 31 sequences of up to 5 tokens. A beam that holds
all of them must find the best under the stated scoring.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Request,
    Sampling,
)
from tests.generation.toy import (
    BATCH,
    END,
    LENGTH,
    START,
    STATES,
    VOCAB,
    WORDS,
    coverage,
    every_sequence,
    find,
    log_probability,
    next_state,
    penalty,
    random_table,
    searcher,
    seeds,
    toy_step,
    words_of,
)
from tests.slow import slow_except

EVERYTHING = 48  # 16 unfinished sequences, each with three continuations
SOURCE_LENGTHS = np.array([3, 2])


def repeats(tokens, size):
    grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return len(set(grams)) < len(grams)


def permitted(tokens, constraints, source_length):
    """Whether a sequence keeps the constraints, said once more in plain words."""
    shortest = max(constraints.min_length, math.ceil(constraints.min_ratio * source_length))
    most = constraints.max_ratio
    return (
        len(tokens) >= shortest
        and (most is None or len(tokens) <= max(1, math.floor(most * source_length)))
        and not (constraints.no_repeat_ngram and repeats(tokens, constraints.no_repeat_ngram))
        and not set(tokens) & set(constraints.banned)
        and not set(zip(tokens, tokens[1:], strict=False)) & set(constraints.banned)
        and len(tokens) > constraints.min_new
        and set(tokens) >= set(constraints.required)
    )


def limits(constraints):
    """The fields of a `Request` that follow from the sources' lengths."""
    found = constraints.limits(ops.convert_to_tensor(SOURCE_LENGTHS, "int32"))
    named = zip(("min_lengths", "max_lengths"), found, strict=True)
    return {name: ops.convert_to_numpy(limit) for name, limit in named if limit is not None}


OPTIONS = {
    "plain": {},
    "length penalty": {"length_penalty": 1.5},
    "coverage penalty": {"coverage_penalty": 0.7, "length_penalty": 0.6},
    "no repeated word": {"constraints": Constraints(no_repeat_ngram=1)},
    "no repeated pair": {"constraints": Constraints(no_repeat_ngram=2)},
    "minimum length": {"constraints": Constraints(min_length=4)},
    "minimum of the source's": {"constraints": Constraints(min_ratio=1.5)},
    "maximum of the source's": {"constraints": Constraints(max_ratio=1.0)},
    "banned word": {"constraints": Constraints(banned=(4,))},
    "banned pair": {"constraints": Constraints(banned=((4, 3), (3, END)))},
    "new tokens": {"constraints": Constraints(min_new=3)},
    "required word": {"constraints": Constraints(required=(4,))},
    "both required": {"constraints": Constraints(required=(4, 3)), "length_penalty": 1.0},
    "several": {
        "coverage_penalty": 0.2,
        "length_penalty": 0.6,
        "constraints": Constraints(min_length=3, no_repeat_ngram=2, required=(3,)),
    },
}


@pytest.mark.parametrize(
    "options", slow_except(OPTIONS, "plain", "no repeated pair", "required word", "several")
)
@settings(max_examples=4)
@given(seed=seeds)
def test_a_beam_of_everything_finds_the_best_of_all_sequences(options, seed):
    search = BeamSearch(EVERYTHING, **{"length_penalty": 0.0, **options}, n_best=EVERYTHING)
    table, constraints = random_table(seed), search.constraints
    compiled = options is OPTIONS["several"]  # which has all of it in one program
    result = find(search, table, compiled=compiled, **limits(constraints))
    for row in range(BATCH):
        scores, logp = {}, {}
        for tokens in every_sequence():
            if permitted(tokens, constraints, SOURCE_LENGTHS[row]):
                logp[tokens] = log_probability(table[row], tokens)
                covered = np.sum(np.log(np.minimum(coverage(tokens), 1.0)))
                scores[tokens] = logp[tokens] / penalty(len(tokens), search.length_penalty)
                scores[tokens] += search.coverage_penalty * covered
        expected = sorted(scores, key=scores.get, reverse=True)
        number = len(expected)
        assert [words_of(tokens) for tokens in result["tokens"][row, :number]] == expected
        for name, values in (("scores", scores), ("log_probabilities", logp)):
            received = result[name][row, :number]
            np.testing.assert_allclose(received, [values[s] for s in expected], rtol=2e-5)


@settings(max_examples=4)
@given(seed=seeds)
def test_a_forced_prefix_leaves_the_best_of_its_continuations(seed):
    table, forced = random_table(seed), np.zeros((BATCH, LENGTH), "int32")
    forced[0, :2], forced[1, 0] = (4, 3), 3
    result = find(BeamSearch(EVERYTHING, 0.6), table, forced)
    for row, prefix in enumerate([(4, 3), (3,)]):
        scores = {
            tokens: log_probability(table[row], tokens) / penalty(len(tokens), 0.6)
            for tokens in every_sequence()
            if tokens[: len(prefix)] == prefix
        }
        best = max(scores, key=scores.get)
        assert words_of(result["tokens"][row]) == best
        assert result["scores"][row] == pytest.approx(scores[best], rel=2e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@settings(max_examples=4)
@given(seed=seeds)
def test_a_length_penalty_is_for_the_tokens_that_the_score_counts(alpha, seed):
    table, forced = random_table(seed), np.zeros((BATCH, LENGTH), "int32")
    forced[0, :3], forced[1, :1] = (4, END, 3), 3  # END in a prompt ends nothing
    search = BeamSearch(EVERYTHING, alpha, n_best=EVERYTHING)
    step, state, shared = toy_step(ops.convert_to_tensor(table), EVERYTHING, LENGTH)
    request = Request(ops.convert_to_tensor(forced), START, END, prompt_scores=False)
    result = search(step, state, request, shared)
    for row, prefix in enumerate([(4, END, 3), (3,)]):
        scores = {}
        for tokens in every_sequence(LENGTH - len(prefix)):
            logp = log_probability(table[row], (*prefix, *tokens))
            logp -= log_probability(table[row], prefix)
            scores[(*prefix, *tokens)] = logp / penalty(len(tokens), alpha)
        expected = sorted(scores, key=scores.get, reverse=True)
        tokens = ops.convert_to_numpy(result["tokens"])[row, : len(expected)]
        assert [words_of(each) for each in tokens] == expected
        received = ops.convert_to_numpy(result["scores"])[row, : len(expected)]
        np.testing.assert_allclose(received, [scores[s] for s in expected], rtol=2e-5)


@pytest.mark.parametrize(
    "compiled", [pytest.param(True, marks=pytest.mark.slow), False], ids=["xla", "eager"]
)
@pytest.mark.parametrize("make", [Greedy, Sampling, BeamSearch])
@pytest.mark.parametrize("size", [1, 2])
def test_a_padding_id_outside_the_vocabulary_repeats_nothing(size, make, compiled):
    constraints = Constraints(no_repeat_ngram=size, banned=((3, 4, 3),))
    search, table = make(constraints=constraints), random_table(4, batch=3, end=1.0)
    table[1, :, END] += 9.0  # one text ends early
    numbers = np.random.default_rng(0).random((3, 8, search.beams), "float32")
    others = {"uniform": numbers} if make is Sampling else {}
    results = []
    for padding in (0, -1):
        forced = np.full((3, 8), padding, "int32")
        run = searcher(search, tuple(others), compiled=compiled, padding_id=padding)
        given = (table, forced, *others.values())
        result = run(*(ops.convert_to_tensor(each) for each in given))
        tokens = ops.convert_to_numpy(result["tokens"])
        results.append(np.where(tokens == padding, 0, tokens))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("make", [Greedy, Sampling, BeamSearch])
@pytest.mark.parametrize("renormalize", [False, True])
def test_a_forced_token_that_the_model_excludes_is_taken_and_counts_nothing(make, renormalize):
    table = random_table(6, end=1.0)
    table[:, :, 4] = -np.inf
    table[..., END] = -np.inf
    boundaries = Boundaries(first=4, last=END)
    constraints = Constraints(boundaries=boundaries, renormalize=renormalize)
    search = make(constraints=constraints, **({"length_penalty": 0} if make is BeamSearch else {}))
    forced = np.zeros((BATCH, LENGTH), "int32")
    forced[1, :2] = (4, 4)
    numbers = np.random.default_rng(0).random((BATCH, LENGTH, search.beams), "float32")
    others = {"uniform": numbers} if make is Sampling else {}
    others["max_lengths"] = np.array([LENGTH, LENGTH - 1], "int32")
    result = find(search, table, forced, **others)
    assert [words_of(row) for row in result["tokens"]] == [(4, 3, 3, 3, END), (4, 4, 3, END)]
    np.testing.assert_allclose(result["scores"], 0.0, atol=1e-6)  # 3 is all that is possible


@pytest.mark.parametrize("normalization", ["gnmt", "length"])
@pytest.mark.parametrize("early_stopping", [True, False])
@settings(max_examples=2)
@given(seed=seeds)
def test_beams_beyond_the_sequences_that_there_are_stay_empty(normalization, early_stopping, seed):
    length, table = 2, random_table(seed)
    kind = {"normalization": normalization, "early_stopping": early_stopping}
    search = BeamSearch(EVERYTHING, 1.0, n_best=EVERYTHING, **kind)
    result = find(search, table, max_length=length, compiled=False)
    every = {*every_sequence(length), *itertools.product(WORDS, repeat=length)}
    for row in range(BATCH):
        tokens = result["tokens"][row]
        assert {words_of(each) for each in tokens[: len(every)]} == every
        assert np.isfinite(result["scores"][row, : len(every)]).all()
        assert not tokens[len(every) :].any() and not result["lengths"][row, len(every) :].any()
        assert not result["finished"][row, len(every) :].any()
        for name in ("scores", "log_probabilities"):
            assert np.all(result[name][row, len(every) :] == -np.inf)


CONSTRAINTS = {
    name: option["constraints"] for name, option in OPTIONS.items() if "constraints" in option
}


@pytest.mark.parametrize("constraints", CONSTRAINTS.values(), ids=CONSTRAINTS)
@pytest.mark.parametrize("make", [Greedy, Sampling, BeamSearch])
@settings(max_examples=2)
@given(seed=seeds)
def test_every_search_keeps_the_constraints_and_scores_by_the_model(make, constraints, seed):
    search, table = make(constraints=constraints), random_table(seed, end=1.0)
    numbers = np.random.default_rng(seed).random((BATCH, LENGTH + 1, search.beams), "float32")
    others = {"uniform": numbers} if make is Sampling else {}
    others |= limits(constraints)
    compiled = constraints is CONSTRAINTS["several"]  # which has several in one program
    result = find(search, table, max_length=LENGTH + 1, compiled=compiled, **others)
    for row in range(BATCH):
        tokens = words_of(result["tokens"][row])
        if tokens[-1] == END:
            assert permitted(tokens, constraints, SOURCE_LENGTHS[row])
        else:
            assert len(tokens) == LENGTH + 1
        logp = result["log_probabilities" if make is BeamSearch else "scores"][row]
        assert logp == pytest.approx(log_probability(table[row], tokens), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("penalty", [0.02, 50.0])
@pytest.mark.parametrize("make", [Greedy, Sampling])
def test_a_repetition_penalty_changes_what_is_chosen_and_no_score(make, penalty):
    numbers = np.random.default_rng(7).random((BATCH, LENGTH + 1, 1), "float32")
    others = {"uniform": numbers} if make is Sampling else {}
    results = {1.0: [], penalty: []}
    for seed, value in itertools.product(range(4), results):
        table = random_table(seed, end=-1.0)
        search = make(constraints=Constraints(repetition_penalty=value))
        found = find(search, table, max_length=LENGTH + 1, compiled=False, **others)
        for row, tokens in enumerate(map(words_of, found["tokens"])):
            logp = log_probability(table[row], tokens)
            assert found["scores"][row] == pytest.approx(logp, rel=2e-5, abs=1e-6)
            results[value].append(tokens)
    assert results[1.0] != results[penalty]


def test_a_required_word_of_no_probability_is_found_by_a_narrow_beam_too():
    table = random_table(4, end=2.0)
    table[..., 4] -= 30.0
    for beam_size in (1, 2, 4):
        search = BeamSearch(beam_size, 0.0, constraints=Constraints(required=(4, 3)))
        for tokens in find(search, table, max_length=7, compiled=False)["tokens"]:
            assert {4, 3} <= set(words_of(tokens))
    # A position is kept for those that have it early, where it costs least.
    everything = [s for s in every_sequence() if {3, 4} <= set(s)]
    best = max(log_probability(table[0], s) for s in everything)
    search = BeamSearch(6, 0.0, constraints=Constraints(required=(4, 3)))
    found = find(search, table, compiled=False)
    assert found["log_probabilities"][0] > best - 3.0


def test_a_sequence_ends_where_nothing_is_left_to_choose():
    constraints = Constraints(no_repeat_ngram=1, min_length=5)
    for search in (Greedy(constraints), BeamSearch(4, constraints=constraints)):
        for tokens in find(search, random_table(2), **limits(constraints))["tokens"]:
            words = words_of(tokens)
            assert words[-1] == END and sorted(words[:-1]) == list(WORDS)


# ------------------------------------------------------------------------------- sampling


def filtered(probabilities, search):
    """What the first token is drawn from, by full sorting in float64."""
    order = np.argsort(-probabilities, kind="stable")
    p = probabilities[order] ** (1 / search.temperature)
    p /= p.sum()
    if search.top_k:
        p[search.top_k :] = 0
        p /= p.sum()
    if search.top_p:
        p[np.cumsum(p) - p >= search.top_p] = 0
        p /= p.sum()
    if search.min_p:
        p[p < search.min_p * p.max()] = 0
        p /= p.sum()
    back = np.zeros_like(p)
    back[order] = p
    return back


SAMPLINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 2},
    {"top_p": 0.75},
    {"min_p": 0.3},
    {"temperature": 1.5, "top_k": 2, "top_p": 0.9, "min_p": 0.1},
]


@pytest.mark.parametrize("settings_of", SAMPLINGS, ids=str)
def test_numbers_spread_evenly_draw_every_token_in_its_share(settings_of):
    number = 2000
    search = Sampling(num_samples=number, **settings_of)
    table = random_table(9)
    uniform = np.tile((np.arange(number, dtype="float32") + 0.5) / number, (BATCH, 1, 1))
    result = find(search, table, max_length=1, uniform=uniform)
    for row in range(BATCH):
        logits = np.float64(table[row, next_state(0, START)])
        p = np.exp(logits - logits.max())
        expected = filtered(p / p.sum(), search)
        drawn = np.bincount(result["tokens"][row, :, 0], minlength=VOCAB) / number
        np.testing.assert_allclose(drawn, expected, atol=1.5 / number)


def test_a_number_next_to_one_draws_a_token_that_can_be_drawn():
    table = np.full((1, STATES, VOCAB), -2e9, "float32")
    table[..., 3] = 0.0
    almost = np.full((1, LENGTH, 1), np.nextafter(np.float32(1), np.float32(0)))
    for search in (Sampling(), Sampling(top_k=3), Sampling(top_p=1.0), Sampling(min_p=0.5)):
        assert words_of(find(search, table, uniform=almost)["tokens"][0]) == (3,) * LENGTH


def test_several_samples_of_a_source_are_drawn_apart():
    numbers = np.random.default_rng(0).random((BATCH, LENGTH, 7), "float32")
    result = find(Sampling(num_samples=7), random_table(1), uniform=numbers)
    assert result["tokens"].shape == (BATCH, 7, LENGTH)
    assert len({words_of(tokens) for tokens in result["tokens"][0]}) > 1
    alone = find(Sampling(), random_table(1), uniform=numbers[..., 3:4])
    np.testing.assert_array_equal(result["tokens"][:, 3], alone["tokens"])


@pytest.mark.parametrize(
    ("make", "settings_of", "message"),
    [
        (
            Constraints,
            {"repetition_penalty": 0.0},
            "`repetition_penalty` must be a positive number",
        ),
        (Sampling, {"temperature": 0.0}, r"Received: temperature=0.0"),
        (Sampling, {"temperature": 1e-39}, r"smallest normal number.*Received: temperature=1e-39"),
        (Sampling, {"temperature": math.nan}, r"Received: temperature=nan"),
        (Sampling, {"temperature": math.inf}, r"Received: temperature=inf"),
        (Sampling, {"top_k": 2.5}, r"Received: top_k=2.5"),
        (Sampling, {"top_p": math.nan}, r"Received: top_p=nan"),
        (Sampling, {"min_p": math.nan}, r"Received: min_p=nan"),
        (Sampling, {"num_samples": 1.5}, r"Received: num_samples=1.5"),
        (Sampling, {"seed": -1}, r"Received: seed=-1"),
        (Sampling, {"seed": 0.5}, r"Received: seed=0.5"),
        (BeamSearch, {"beam_size": 2.5}, r"an integer of at least 1.*Received: beam_size=2.5"),
        (BeamSearch, {"n_best": 1.5}, r"Received: beam_size=4, n_best=1.5"),
        (BeamSearch, {"length_penalty": math.nan}, r"finite numbers. Received: nan and 0.0"),
        (BeamSearch, {"coverage_penalty": math.inf}, r"finite numbers. Received: 0.6 and inf"),
        (Constraints, {"min_length": 2.5}, "must be integers.*min_length=2.5"),
        (Constraints, {"no_repeat_ngram": 1.5}, "must be integers.*no_repeat_ngram=1.5"),
        (Constraints, {"min_new": 0.5}, "must be integers.*min_new=0.5"),
        (Constraints, {"min_ratio": math.nan}, "must not be negative.*min_ratio=nan"),
        (Constraints, {"max_ratio": math.inf}, "must not be negative.*max_ratio=inf"),
        (Constraints, {"banned": (2.5,)}, r"`banned` must be integers.*\(2.5,\)"),
        (Constraints, {"required": (2.5,)}, r"ids from 0 on.*required=\(2.5,\)"),
        (Boundaries, {"ends": (2.5,)}, r"ids must be from 0 on.*2.5"),
        (Boundaries, {"first": 2.5}, r"ids must be from 0 on.*2.5"),
        (Sampling, {"top_k": 0}, r"Received: top_k=0"),
        (Sampling, {"top_p": 1.1}, r"Received: top_p=1.1"),
        (Sampling, {"min_p": -0.1}, r"Received: min_p=-0.1"),
        (Sampling, {"num_samples": 0}, r"Received: num_samples=0"),
        (Constraints, {"min_length": -1}, "must not be negative.*min_length=-1"),
        (Constraints, {"max_ratio": 0.0}, "must not be negative.*max_ratio=0.0"),
        (Constraints, {"min_ratio": 2, "max_ratio": 1}, "`min_ratio` must not exceed"),
        (Constraints, {"banned": (-1,)}, r"ids from 0 on.*banned=\(-1,\)"),
        (Constraints, {"banned": (3,), "required": (3,)}, "none in common"),
    ],
)
def test_impossible_options_are_refused(make, settings_of, message):
    with pytest.raises(ValueError, match=f"{make.__name__}: .*{message}"):
        make(**settings_of)


@pytest.mark.parametrize("ends", [(), (END,), (4, END)], ids=str)
def test_an_end_that_is_required_is_refused(ends):
    search = Greedy(Constraints(required=(3, END), boundaries=Boundaries(ends)))
    with pytest.raises(ValueError, match="`required` must have no token that ends a sequence"):
        find(search, random_table(0))


@pytest.mark.parametrize("end", [0, -1, VOCAB])
def test_a_request_whose_end_never_comes_is_refused(end):
    step, state, shared = toy_step(ops.convert_to_tensor(random_table(0)), 1, LENGTH)
    request = Request(ops.zeros((BATCH, LENGTH), "int32"), START, end)
    with pytest.raises(ValueError, match="Constraints: .*Received: .*" + str(end)):
        Greedy()(step, state, request, shared)


@pytest.mark.parametrize(("option", "wrong"), [("banned", 5), ("required", 5), ("required", 0)])
def test_ids_beyond_the_vocabulary_and_required_padding_are_refused(option, wrong):
    search = Greedy(Constraints(**{option: (4, wrong)}))
    message = rf"below the vocabulary's size, {VOCAB}, .*not padding, 0. Received: \[{wrong}\]"
    with pytest.raises(ValueError, match=message):
        find(search, random_table(0))
