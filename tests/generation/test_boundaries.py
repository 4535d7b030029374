"""Claims about the beginning and the end of a sequence, against all sequences that there are."""

import functools

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
from tests.generation import toy
from tests.generation.toy import (
    BATCH,
    END,
    LENGTH,
    START,
    VOCAB,
    WORDS,
    every_sequence,
    log_probability,
    next_state,
    penalty,
    random_table,
    seeds,
    toy_step,
    words_of,
)

find = functools.partial(toy.find, compiled=False)
EVERYTHING = 48  # more than there are sequences
LONGEST = 4


def with_random_numbers(search, length=LENGTH):
    """The numbers that `Sampling` needs."""
    if not isinstance(search, Sampling):
        return {}
    numbers = np.random.default_rng(0).random((BATCH, length, search.beams), "float32")
    return {"uniform": numbers}


def best_of(search, table, scores):
    """The sequences that a beam of everything finds, best first, are those of `scores`."""
    result = find(search, table)
    expected = sorted(scores, key=scores.get, reverse=True)
    assert [words_of(row) for row in result["tokens"][0, : len(expected)]] == expected
    received = result["scores"][0, : len(expected)]
    np.testing.assert_allclose(received, [scores[s] for s in expected], rtol=2e-5, atol=1e-6)


@settings(max_examples=4)
@given(seed=seeds)
def test_each_of_several_ends_ends_a_sequence(seed):
    ends, table = (END, WORDS[1]), random_table(seed)[:1]
    constraints = Constraints(boundaries=Boundaries(ends=ends))
    words = [(WORDS[0],) * number for number in range(LENGTH)]
    scores = {
        (*before, end): log_probability(table[0], (*before, end))
        for before in words
        for end in ends
    }
    scores[(WORDS[0],) * LENGTH] = log_probability(table[0], (WORDS[0],) * LENGTH)
    search = BeamSearch(
        EVERYTHING, 0.0, n_best=EVERYTHING, constraints=constraints, early_stopping=False
    )
    best_of(search, table, scores)
    for each in (Greedy(constraints), Sampling(constraints=constraints), BeamSearch(2, 1.0)):
        each = type(each)(**{**vars(each), "constraints": constraints})
        for row in find(each, random_table(seed), **with_random_numbers(each))["tokens"]:
            tokens = words_of(row)
            assert not set(tokens[:-1]) & set(ends)
            assert len(tokens) == LENGTH or tokens[-1] in ends


@settings(max_examples=4)
@given(seed=seeds)
def test_what_is_forced_first_and_last_counts_nothing(seed):
    table = random_table(seed)[:1]
    constraints = Constraints(boundaries=Boundaries(first=4, last=END))
    scores = {}
    for tokens in every_sequence():
        if tokens[0] == 4:
            score = log_probability(table[0], tokens) - log_probability(table[0], (4,))
            if len(tokens) == LENGTH:
                before = log_probability(table[0], tokens[:-1])
                score -= log_probability(table[0], tokens) - before
            scores[tokens] = score
    best_of(BeamSearch(EVERYTHING, 0.0, n_best=EVERYTHING, constraints=constraints), table, scores)
    for search in (Greedy(constraints), BeamSearch(1, 0.0, constraints=constraints)):
        result = find(search, table)
        tokens = words_of(result["tokens"][0])
        assert tokens[0] == 4 and tokens[-1] == END
        assert result["scores"][0] == pytest.approx(scores[tokens], rel=2e-5, abs=1e-6)


def test_decoding_starts_with_the_id_of_the_search():
    assert Boundaries(start=5).start_of(1) == 5
    assert Boundaries().start_of(1) == 1
    assert Boundaries(start=5).start_of(None) is None  # texts that begin with their first token


@pytest.mark.parametrize("make", [Greedy, Sampling, BeamSearch])
@settings(max_examples=3)
@given(seed=seeds)
def test_what_may_not_be_first_is_not_behind_a_prompt_either(make, seed):
    search = make(constraints=Constraints(boundaries=Boundaries(banned_first=(4, END))))
    forced = np.zeros((BATCH, LENGTH), "int32")
    forced[0, :2] = (4, 4)
    tokens = find(search, random_table(seed), forced, **with_random_numbers(search))["tokens"]
    assert tokens[0, :3].tolist() == [4, 4, 3] and tokens[1, 0] == 3


@pytest.mark.parametrize("make", [Greedy, Sampling, BeamSearch])
@settings(max_examples=3)
@given(seed=seeds)
def test_so_many_new_tokens_stand_behind_a_prompt(make, seed):
    search = make(constraints=Constraints(min_new=2))
    forced = np.zeros((BATCH, LENGTH), "int32")
    forced[0, :2] = (4, 3)
    tokens = find(search, random_table(seed, end=30.0), forced, **with_random_numbers(search))
    assert END not in tokens["tokens"][0, :4] and END not in tokens["tokens"][1, :2]
    assert tokens["tokens"][1, 2] == END  # as soon as may be, for it is much the likeliest


@settings(max_examples=4)
@given(seed=seeds)
def test_banned_sequences_and_ngrams_may_begin_with_start(seed):
    """START stands for the first token of a prompt where texts have no START of their own."""
    table = random_table(seed, end=1.0)
    banned = ((START, 3), (3, 4, 3), (4, END))
    for search in (Greedy, BeamSearch):
        constraints = Constraints(banned=banned)
        for row in find(search(constraints=constraints), table, max_length=8)["tokens"]:
            text = f" {START} {' '.join(map(str, words_of(row)))} "
            for sequence in banned:
                assert f" {' '.join(map(str, sequence))} " not in text
        forced = np.full((BATCH, 6), 0, "int32")
        forced[:, 0] = 4
        # START is a word here: 3 4 and what follows 4.
        request = {"start_id": 3}
        constraints = Constraints(no_repeat_ngram=2)
        step, state, shared = toy_step(table, search(constraints=constraints).beams, 6)
        asked = Request(ops.convert_to_tensor(forced), end_id=END, **request)
        found = search(constraints=constraints)(step, state, asked, shared)
        for row in ops.convert_to_numpy(found["tokens"]):
            tokens = (3, *words_of(row))
            pairs = list(zip(tokens, tokens[1:], strict=False))
            assert len(set(pairs)) == len(pairs)


@settings(max_examples=4)
@given(seed=seeds)
def test_renormalized_scores_are_those_among_what_is_allowed(seed):
    table = random_table(seed)
    changed = table.copy()
    changed[..., 4] = -2e9  # as if the model gave the banned word no probability
    constraints = Constraints(banned=(4,), renormalize=True)
    for search, plain in (
        (Greedy(constraints), Greedy()),
        (BeamSearch(3, 1.0, constraints=constraints), BeamSearch(3, 1.0)),
    ):
        received, expected = find(search, table), find(plain, changed)
        np.testing.assert_array_equal(received["tokens"], expected["tokens"])
        np.testing.assert_allclose(received["scores"], expected["scores"], rtol=1e-5, atol=1e-6)


CUT = [
    Greedy(),
    Sampling(),
    BeamSearch(3, 0.6, n_best=2),
    BeamSearch(3, 1.0, n_best=2, normalization="length"),
    BeamSearch(3, 1.0, n_best=2, normalization="length", early_stopping=False),
    BeamSearch(3, 2.0, n_best=2, normalization="length", early_stopping="never"),
    BeamSearch(2, 0.6, constraints=Constraints(boundaries=Boundaries(last=END))),
]


@pytest.mark.parametrize("search", CUT)
@settings(max_examples=3)
@given(seed=seeds)
def test_a_row_that_is_cut_early_is_what_it_is_alone_with_that_limit(search, seed):
    table, limits = random_table(seed), np.array([LONGEST, LENGTH + 1], "int32")
    numbers = with_random_numbers(search, LENGTH + 2)
    together = find(search, table, max_length=LENGTH + 2, cut_lengths=limits, **numbers)
    for row, limit in enumerate(limits):
        mine = {name: value[row : row + 1, :limit] for name, value in numbers.items()}
        alone = find(search, table[row : row + 1], max_length=int(limit), **mine)
        for name, value in alone.items():
            received = together[name][row : row + 1]
            if name == "tokens":
                assert not received[..., limit:].any()
                received = received[..., :limit]
            np.testing.assert_allclose(received, value, rtol=1e-5, atol=1e-6)


def test_a_cut_sequence_stays_behind_a_finished_one_while_other_rows_go_on():
    """END is unlikely, but possible in the first step; a long sequence has the better score."""
    table = np.full_like(random_table(0), -2e9)
    table[..., WORDS[0]], table[..., WORDS[1]] = 5.0, 0.0
    table[:, next_state(0, START), END] = 1.0
    limits = np.array([LONGEST, LENGTH + 2], "int32")
    together = find(BeamSearch(3, 3.0, n_best=3), table, max_length=LENGTH + 2, cut_lengths=limits)
    alone = find(BeamSearch(3, 3.0, n_best=3), table[:1], max_length=LONGEST)
    for found in (alone, together):
        assert words_of(found["tokens"][0, 0]) == (END,)
        assert found["scores"][0, 0] < found["scores"][0, 1]
        assert found["finished"][0].tolist() == [True, False, False]
    np.testing.assert_array_equal(together["tokens"][0, :, :LONGEST], alone["tokens"][0])
    np.testing.assert_allclose(together["scores"][0], alone["scores"][0], rtol=1e-5)


def test_an_end_inside_a_prompt_that_is_taken_in_ends_nothing():
    forced = np.array([[END, 3, 0, 0], [3, END, 0, 0]], "int32")
    for search in (Greedy(), BeamSearch(2)):
        step, state, shared = toy_step(random_table(3, end=-9.0), search.beams, 4)
        request = Request(ops.convert_to_tensor(forced), START, END, prompt_length=2)
        tokens = ops.convert_to_numpy(search(step, state, request, shared)["tokens"])
        assert tokens[:, :2].tolist() == forced[:, :2].tolist()
        assert (tokens[:, 2:] != 0).all()


@settings(max_examples=4)
@given(seed=seeds)
def test_cut_sequences_compete_with_those_that_ended_where_length_is_all(seed):
    """With positions for all, the best is the best of all sequences that end or are cut."""
    table = random_table(seed, end=-1.0)[:1]
    cut = list(np.stack(np.meshgrid(*[WORDS] * LENGTH), axis=-1).reshape(-1, LENGTH).tolist())
    everything = [*every_sequence(), *map(tuple, cut)]
    alpha = 1.5
    scores = {s: log_probability(table[0], s) / len(s) ** alpha for s in everything}
    for early_stopping in (True, False, "never"):
        search = BeamSearch(
            EVERYTHING, alpha, normalization="length", early_stopping=early_stopping
        )
        found = find(search, table)
        assert words_of(found["tokens"][0]) == max(scores, key=scores.get)
        assert found["scores"][0] == pytest.approx(max(scores.values()), rel=2e-5)


def test_the_default_puts_what_ended_before_what_is_cut():
    table = random_table(3, end=-6.0)[:1]
    everything = {s: log_probability(table[0], s) / penalty(len(s), 0.6) for s in every_sequence()}
    found = find(BeamSearch(EVERYTHING, 0.6), table)
    assert words_of(found["tokens"][0]) == max(everything, key=everything.get)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Boundaries(ends=(-1,)), r"Boundaries: ids must be from 0 on.*-1"),
        (lambda: Boundaries(first=-2), r"Boundaries: ids must be from 0 on.*-2"),
        (lambda: Boundaries(start=-2), r"Boundaries: ids must be from 0 on.*-2"),
        (lambda: Constraints(banned=((),)), "`banned` must hold no empty sequence"),
        (lambda: Constraints(banned=((3, -1),)), "`banned` and `required` must be ids from 0 on"),
        (lambda: Constraints(min_new=-1), "must not be negative.*min_new=-1"),
        (lambda: BeamSearch(early_stopping="soon"), '`early_stopping` must be True.*"never"'),
    ],
)
def test_impossible_boundaries_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("boundaries", [{"first": VOCAB}, {"start": VOCAB}, {"ends": (2, VOCAB)}])
def test_boundaries_beyond_the_vocabulary_are_refused(boundaries):
    search = Greedy(Constraints(boundaries=Boundaries(**boundaries)))
    with pytest.raises(ValueError, match=rf"below the vocabulary's size, {VOCAB}.*\[{VOCAB}\]"):
        find(search, random_table(0))


def test_logits_of_any_size_are_followed():
    """Ones of 1e9 too, as models give whose choice is certain."""
    chosen = [4, 3, 3, END]
    for search in (Greedy(), Sampling(temperature=1e-9), BeamSearch(5, 1.0)):

        def step(ids, index, state, shared, back_pointers):
            logits = ops.one_hot(ops.take(ops.convert_to_tensor(chosen), index), VOCAB) * 1e9
            return ops.broadcast_to(logits, (1, ids.shape[1], VOCAB)), state

        numbers = ops.full((1, 4, search.beams), 0.7)
        request = Request(ops.zeros((1, 4), "int32"), START, END, uniform=numbers)
        assert ops.convert_to_numpy(search(step, {}, request)["tokens"])[0].tolist() == chosen
