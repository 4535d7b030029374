"""Claims about the searches, over step functions made by hand.

A `table` `(batch, STATES, VOCAB)` of logits stands for the model. What comes next depends on the
whole sequence so far: its tokens are folded into a number, the state, that picks the row. A search
that mixes up the states of its beams gets other scores.
"""

import contextlib
import functools
import itertools
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.generation import BeamSearch, Greedy, length_penalty

START, END, VOCAB, LENGTH, STATES, BATCH = 1, 2, 5, 3, 101, 2
WORDS = (3, 4)  # the others are padding, START and END
seeds = st.integers(0, 10_000)


def next_state(state, token):
    return (7 * state + token) % STATES


def random_table(seed, batch=BATCH, end=0.0):
    """Random logits; padding and START are all but impossible, `end` is added to END's."""
    table = np.random.default_rng(seed).normal(0, 2, (batch, STATES, VOCAB)).astype("float32")
    table[..., : START + 1] = -1e5
    table[..., END] += end
    return table


def log_probability(table, tokens):
    """Log-probability of one sequence under the table of one batch element, in float64."""
    state, total = next_state(0, START), 0.0
    for token in tokens:
        row = np.float64(table[state])
        total += row[token] - row.max() - np.log(np.exp(row - row.max()).sum())
        state = next_state(state, token)
    return total


@functools.cache
def searcher(search):
    """`search` over tables, compiled by XLA; takes a table and forced tokens."""

    def run(table, forced):
        batch = table.shape[0]
        flat = ops.reshape(table, (batch * STATES, VOCAB))
        rows = ops.broadcast_to(ops.arange(batch)[:, None], (batch, search.beams))
        state = {"row": rows, "state": ops.zeros((batch, search.beams), "int32")}

        def step(ids, index, state):
            after = next_state(state["state"], ids)
            logits = ops.take(flat, state["row"] * STATES + after, axis=0)
            return logits, {**state, "state": after}

        return search(step, state, forced, START, END)

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(run)
    import tensorflow as tf

    return tf.function(run, jit_compile=True)


def find(search, table, forced=None, max_length=LENGTH):
    forced = np.zeros((len(table), max_length), "int32") if forced is None else forced
    result = searcher(search)(*(ops.convert_to_tensor(each) for each in (table, forced)))
    return {name: ops.convert_to_numpy(value) for name, value in result.items()}


def words_of(tokens):
    """A row of tokens as a tuple, without padding, which must come last."""
    length = np.count_nonzero(tokens)
    assert not np.any(tokens[length:])
    return tuple(tokens[:length].tolist())


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


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


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@given(seed=seeds)
def test_a_beam_wide_enough_finds_the_best_of_all_sequences(alpha, seed):
    table = random_table(seed)
    everything = [
        (*words, END)
        for length in range(LENGTH)
        for words in itertools.product(WORDS, repeat=length)
    ]
    result = find(BeamSearch(16, alpha, n_best=len(everything)), table)
    for row in range(BATCH):
        scores = {s: log_probability(table[row], s) / penalty(len(s), alpha) for s in everything}
        expected = sorted(everything, key=scores.get, reverse=True)
        assert [words_of(tokens) for tokens in result["tokens"][row]] == expected
        np.testing.assert_allclose(result["scores"][row], [scores[s] for s in expected], rtol=1e-5)


@pytest.mark.parametrize("beam_size", [2, 3])
@given(seed=seeds)
def test_a_narrow_beam_gives_what_the_plain_algorithm_gives(beam_size, seed):
    table = random_table(seed)
    result = find(BeamSearch(beam_size, 0.6, n_best=2), table, max_length=6)
    for row in range(BATCH):
        for place, (score, tokens) in enumerate(reference(table[row], beam_size, 0.6, 6)[:2]):
            assert words_of(result["tokens"][row, place]) == tokens
            assert result["scores"][row, place] == pytest.approx(score, rel=1e-5)


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
        for row, place in np.ndindex(BATCH, 3):
            tokens = words_of(result["tokens"][row, place])
            assert END not in tokens[:-1]
            expected = log_probability(table[row], tokens) / penalty(len(tokens), 0.6)
            assert result["scores"][row, place] == pytest.approx(expected, rel=1e-5)
            assert result["lengths"][row, place] == len(tokens)


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
    forced[0, :2], forced[1, 1] = (4, 3), 4  # the second row is free at its first place
    table[1, :, END] = -1e6  # ... where it must not end
    result = find(search, table, forced)
    assert words_of(result["tokens"][0])[:2] == (4, 3)
    assert words_of(result["tokens"][1])[1] == 4
    for row in range(BATCH):
        expected = log_probability(table[row], words_of(result["tokens"][row]))
        assert result["scores"][row] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3, 0.6)], ids=["greedy", "beam"])
@pytest.mark.parametrize("max_length", [1, 7])
def test_a_sequence_that_does_not_end_is_cut_at_the_limit(search, max_length):
    table = random_table(3, end=-1e6)
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

    def step(ids, index, state):
        calls.append(int(index))
        logits = np.full((2, search.beams, VOCAB), -1e5, "float32")
        logits[..., 3] = 0.0
        for row, last in enumerate((1, 3)):
            if int(index) >= last:
                logits[row, :, END] = 3.0
        return ops.convert_to_tensor(logits), state

    with eagerly():
        search(step, {}, ops.zeros((2, 101), "int32"), START, END)
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
