"""Claims about greedy and beam search, over step functions made by hand (see `toy`)."""

import contextlib
import math

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from keras import ops

from keras_transformers.generation import BeamSearch, Greedy, Request, length_penalty
from tests.generation.toy import (
    BATCH,
    END,
    LENGTH,
    START,
    STATES,
    VOCAB,
    WORDS,
    find,
    log_probability,
    next_state,
    penalty,
    random_table,
    seeds,
    words_of,
)
from tests.slow import slow_except


def reference(table, beam_size, alpha, max_length=LENGTH):
    """Beam search as one would explain it, for one batch element: finished and cut sequences."""
    alive, finished = [()], []
    for _ in range(max_length):
        longer = [prefix + (token,) for prefix in alive for token in (END, *WORDS)]
        longer.sort(key=lambda tokens: -log_probability(table, tokens))
        finished += [tokens for tokens in longer[:beam_size] if tokens[-1] == END]
        alive = [tokens for tokens in longer if tokens[-1] != END][:beam_size]
        if len(finished) >= beam_size:
            break

    def scored(sequences):
        pairs = [(log_probability(table, s) / penalty(len(s), alpha), s) for s in sequences]
        return sorted(pairs, reverse=True)

    return scored(finished)[:beam_size] + scored(alive)


# --------------------------------------------------------------------------- beam search


@pytest.mark.parametrize("beam_size", [2, 3])
@given(seed=seeds)
def test_a_narrow_beam_gives_what_the_plain_algorithm_gives(beam_size, seed):
    table = random_table(seed)
    result = find(BeamSearch(beam_size, 0.6, n_best=2), table, max_length=6)
    for row in range(BATCH):
        for position, (score, tokens) in enumerate(reference(table[row], beam_size, 0.6, 6)[:2]):
            assert words_of(result["tokens"][row, position]) == tokens
            assert result["scores"][row, position] == pytest.approx(score, rel=1e-5)


def test_a_finished_sequence_competes_with_those_that_still_grow():
    def after(**probabilities):
        row = np.full(VOCAB, -1e5, "float32")
        for name, p in probabilities.items():
            row[{"end": END, "a": 3, "b": 4}[name]] = math.log(p)
        return row

    table = np.tile(after(end=0.5, a=0.5), (1, STATES, 1))
    first = next_state(0, START)
    table[0, first] = after(end=0.1, a=0.5, b=0.4)
    table[0, next_state(first, 4)] = after(end=0.9, a=0.1)  # greedy never gets here
    result = find(BeamSearch(2, 0.0, n_best=2), table, max_length=7)
    assert words_of(result["tokens"][0, 0]) == (4, END)  # 0.36 against 0.25 for (3, END)
    assert words_of(result["tokens"][0, 1]) == (3, END)
    np.testing.assert_allclose(np.exp(result["scores"][0]), [0.36, 0.25], rtol=1e-5)
    assert words_of(find(Greedy(), table, max_length=7)["tokens"][0])[0] == 3


@given(seed=seeds)
def test_finished_sequences_are_frozen(seed):
    """Their scores gather nothing more, however long the others go on."""
    table = random_table(seed, end=1.0)
    search = BeamSearch(3, 0.6, n_best=3)
    for max_length in (6, 11):
        result = find(search, table, max_length=max_length)
        for row, position in np.ndindex(BATCH, 3):
            tokens = words_of(result["tokens"][row, position])
            assert END not in tokens[:-1]
            expected = log_probability(table[row], tokens) / penalty(len(tokens), 0.6)
            assert result["scores"][row, position] == pytest.approx(expected, rel=1e-5, abs=1e-6)
            assert result["lengths"][row, position] == len(tokens)


@given(seed=seeds)
def test_the_n_best_are_distinct_and_sorted(seed):
    result = find(BeamSearch(4, 0.6, n_best=4), random_table(seed), max_length=6)
    for tokens, scores in zip(result["tokens"], result["scores"], strict=True):
        assert len({words_of(each) for each in tokens}) == 4
        ended = [END in each for each in tokens]
        assert ended == sorted(ended, reverse=True)  # those cut at the limit come last
        for kind in (True, False):
            mine = scores[np.array(ended) == kind]
            np.testing.assert_array_equal(mine, np.sort(mine)[::-1])


@given(seed=seeds)
def test_n_best_changes_nothing_but_how_many_are_returned(seed):
    table = random_table(seed)
    one, many = (find(BeamSearch(3, 0.6, n_best=n), table, max_length=6) for n in (1, 3))
    for name, value in one.items():
        np.testing.assert_array_equal(value, many[name][:, 0])


@given(seed=seeds)
def test_a_row_does_not_depend_on_the_rest_of_the_batch(seed):
    table, search = random_table(seed), BeamSearch(3, 0.6, n_best=3)
    whole = find(search, table, max_length=6)
    for row in range(BATCH):
        alone = find(search, table[row : row + 1], max_length=6)
        np.testing.assert_array_equal(alone["tokens"][0], whole["tokens"][row])
        np.testing.assert_allclose(alone["scores"][0], whole["scores"][row], rtol=1e-6)


def test_a_longer_sequence_wins_only_with_a_length_penalty():
    row = np.full(VOCAB, -1e5, "float32")
    table = np.tile(row, (1, STATES, 1))
    table[..., END] = 0.0
    first = next_state(0, START)
    table[0, first, [END, 3]] = np.log([0.52, 0.48])  # (3, END) costs a little more
    assert words_of(find(BeamSearch(2, 0.0), table)["tokens"][0]) == (END,)
    assert words_of(find(BeamSearch(2, 2.0), table)["tokens"][0]) == (3, END)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_the_length_penalty_has_its_closed_form(alpha):
    lengths = np.arange(1, 101)
    received = ops.convert_to_numpy(length_penalty(ops.convert_to_tensor(lengths), alpha))
    assert received.dtype == "float32"
    np.testing.assert_allclose(received, penalty(lengths, alpha), rtol=1e-6)


# -------------------------------------------------------------------------------- stages


@pytest.mark.parametrize("stages", slow_except([2, 4], 4))
@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, 0.6, n_best=2)], ids=["greedy", "beam"])
@settings(max_examples=2)
@given(seed=seeds)
def test_sequences_that_leave_the_batch_change_nothing(search, stages, seed):
    table, forced = random_table(seed, batch=11, end=1.0), np.zeros((11, 9), "int32")
    forced[::3, 0] = 4
    limits = {"max_lengths": np.arange(1, 12, dtype="int32")}
    whole = find(search, table, forced, **limits)
    halved = find(search, table, forced, stages=stages, **limits)
    for name, value in whole.items():
        np.testing.assert_array_equal(halved[name], value)


def test_the_batch_is_halved_when_half_of_it_is_done():
    rows = []

    def step(ids, index, state, shared, back_pointers):
        rows.append(ids.shape[0])
        chosen = ops.where(shared["number"] <= index, END, WORDS[0])
        return ops.where(ops.arange(VOCAB) == chosen[..., None], 3.0, -3.0), state

    shared = {"number": ops.reshape(ops.arange(8), (8, 1))}  # sequence i ends at position i
    request = Request(ops.zeros((8, 20), "int32"), START, END)
    with eagerly():
        result = Greedy()(step, {}, request, shared, stages=3)
    assert ops.convert_to_numpy(result["lengths"]).tolist() == list(range(1, 9))
    assert rows == [8] * 4 + [4] * 2 + [2] * 2


# -------------------------------------------------------------------------- greedy search


@given(seed=seeds)
def test_greedy_takes_the_best_token_at_every_step(seed):
    table = random_table(seed)
    result = find(Greedy(), table, max_length=7)
    for row in range(BATCH):
        expected, state = [], next_state(0, START)
        while len(expected) < 7 and END not in expected:
            expected.append(int(np.argmax(table[row, state])))
            state = next_state(state, expected[-1])
        assert words_of(result["tokens"][row]) == tuple(expected)
        score = log_probability(table[row], expected)
        assert result["scores"][row] == pytest.approx(score, rel=1e-5, abs=1e-6)
        assert result["lengths"][row] == len(expected)


@given(seed=seeds)
def test_a_beam_of_one_is_greedy(seed):
    table = random_table(seed)
    greedy, beam = (find(s, table, max_length=7) for s in (Greedy(), BeamSearch(1, 0.0)))
    np.testing.assert_array_equal(beam["tokens"], greedy["tokens"])
    np.testing.assert_array_equal(beam["lengths"], greedy["lengths"])
    np.testing.assert_allclose(beam["scores"], greedy["scores"], rtol=1e-6)


# ------------------------------------------------------------- forced tokens, limits, exit


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, 0.0)], ids=["greedy", "beam"])
@given(seed=seeds)
def test_forced_tokens_are_taken_and_scored_like_any_other(search, seed):
    table, forced = random_table(seed), np.zeros((BATCH, 7), "int32")
    forced[0, :2], forced[1, 1] = (4, 3), 4  # the second row is free at its first position
    table[1, :, END] = -2e9  # ... where it must not end
    result = find(search, table, forced)
    assert words_of(result["tokens"][0])[:2] == (4, 3)
    assert words_of(result["tokens"][1])[1] == 4
    for row in range(BATCH):
        expected = log_probability(table[row], words_of(result["tokens"][row]))
        assert result["scores"][row] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, 0.6)], ids=["greedy", "beam"])
@pytest.mark.parametrize("max_length", [1, 7])
def test_a_sequence_that_does_not_end_is_cut_at_the_limit(search, max_length):
    table = random_table(3, end=-3e9)
    result = find(search, table, max_length=max_length)
    assert result["tokens"].shape == (BATCH, max_length)
    assert result["lengths"].tolist() == [max_length] * BATCH
    alpha = getattr(search, "length_penalty", 0.0)
    for row in range(BATCH):
        expected = log_probability(table[row], result["tokens"][row]) / penalty(max_length, alpha)
        assert result["scores"][row] == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, 0.6)], ids=["greedy", "beam"])
def test_padding_is_never_chosen_however_probable(search):
    table = random_table(5)
    table[..., 0] = 3.0
    for row, tokens in enumerate(find(search, table, max_length=7)["tokens"]):
        words = words_of(tokens)  # padding comes last
        assert words and END not in words[:-1]
        assert len(words) == 7 or words[-1] == END, row


def eagerly():
    """Makes loops call their Python bodies once a turn."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.disable_jit()
    return contextlib.nullcontext()


@pytest.mark.parametrize(
    ("search", "expected"), [(Greedy(), 4), (BeamSearch(1), 4), (BeamSearch(2), 5)]
)
def test_the_loop_stops_when_every_sequence_has_ended(search, expected):
    """The rows' best sequences end at steps 2 and 4; a second beam needs one step more."""
    calls = []

    def step(ids, index, state, shared, back_pointers):
        calls.append(int(index))
        logits = np.full((2, search.beams, VOCAB), -1e5, "float32")
        logits[..., 3] = 0.0
        for row, last in enumerate((1, 3)):
            if int(index) >= last:
                logits[row, :, END] = 3.0
        return ops.convert_to_tensor(logits), state

    with eagerly():
        search(step, {}, Request(ops.zeros((2, 101), "int32"), START, END))
    assert calls == list(range(expected))


@pytest.mark.parametrize(
    "settings", [{"beam_size": 0}, {"n_best": 0}, {"beam_size": 3, "n_best": 4}]
)
def test_impossible_beams_are_refused(settings):
    with pytest.raises(ValueError, match="BeamSearch: `beam_size` must be.*Received: beam_size="):
        BeamSearch(**settings)


def test_a_search_can_be_a_key():
    assert BeamSearch(4) == BeamSearch(4) != BeamSearch(5)
    assert len({BeamSearch(4), BeamSearch(4), Greedy(), Greedy()}) == 2
