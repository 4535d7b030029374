"""Phrases that must occur, against the enumeration of all sequences of a model made by hand."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Request,
    Sampling,
    generate,
)
from keras_transformers.generation.constraints import after_each, demands_of, first_progress
from keras_transformers.models import Transformer
from tests.generation.toy import (
    BATCH,
    END,
    LENGTH,
    VOCAB,
    find,
    log_probability,
    penalty,
    random_table,
    words_of,
)

EVERYTHING = 96  # 32 unfinished sequences, each with three continuations


def every_sequence(length):
    words = (itertools.product((3, 4), repeat=size) for size in range(length))
    return [(*each, END) for of_size in words for each in of_size]


def occurrences(tokens, phrase, joints=((), ())):
    """How often a phrase stands in a sequence, from the left, without overlap."""
    found, start = 0, 0
    while start + len(phrase) <= len(tokens):
        end = start + len(phrase)
        here = tuple(tokens[start:end]) == tuple(phrase)
        if start and phrase[0] in joints[0] and tokens[start - 1] in joints[1]:
            here = False
        if phrase[-1] in joints[1] and tokens[end : end + 1] and tokens[end] in joints[0]:
            here = False
        found, start = (found + 1, end) if here else (found, start + 1)
    return found


def met(tokens, phrases, joints=((), ())):
    """Whether each phrase stands there as often as it is demanded."""
    return all(occurrences(tokens, each, joints) >= phrases.count(each) for each in phrases)


def left_of(tokens, phrases):
    """How many tokens of phrases lack, each for itself, and how many are there of one begun."""
    left, begun = 0, 0
    for phrase in set(phrases):
        found = occurrences(tokens, phrase)
        if found < phrases.count(phrase):
            left += len(phrase) * (phrases.count(phrase) - found)
            # What has been counted does not begin the next.
            ends = (n for n in range(len(tokens) + 1) if occurrences(tokens[:n], phrase) == found)
            rest = tokens[next(ends) :]
            sizes = range(1, min(len(phrase), len(rest) + 1))
            begun = max([begun, *(n for n in sizes if rest[-n:] == phrase[:n])])
    return left, begun


def leaves_room(tokens, phrases, limit):
    """Whether each token goes on with a phrase, or leaves room for all that lacks, and END."""
    for index in range(len(tokens) - 1):
        before, begun = left_of(tokens[:index], phrases)
        after, more = left_of(tokens[: index + 1], phrases)
        if limit - index <= before + 1 and before and after == before and more != begun + 1:
            return False
    return True


def padded(rows):
    """Lists of phrases as the integers of a request."""
    number, length = max(map(len, rows)), max(len(p) for row in rows for p in row)
    ids = np.zeros((len(rows), number, length), "int32")
    for row, phrases in zip(ids, rows, strict=True):
        for place, phrase in zip(row, phrases, strict=False):
            place[: len(phrase)] = phrase
    return ids


CASES = [
    [[(3, 4)], [(4, 4, 3)]],
    [[(3,), (3,)], [(4, 4), (4, 4)]],
    [[(3, 4), (4, 3)], []],
    [[(3, 3, 4)], [(4, 3, 4, 3)]],  # each begins anew where it breaks off
]


@pytest.mark.parametrize("rows", CASES)
def test_a_beam_of_everything_finds_the_best_of_all_sequences_with_the_phrases(rows):
    length = LENGTH + 1
    table = random_table(3)
    search = BeamSearch(EVERYTHING, 0.6, n_best=EVERYTHING)
    result = find(search, table, max_length=length, compiled=False, phrases=padded(rows))
    for row, phrases in enumerate(rows):
        scores = {
            tokens: log_probability(table[row], tokens) / penalty(len(tokens), 0.6)
            for tokens in every_sequence(length)
            if met(tokens, phrases) and leaves_room(tokens, phrases, length)
        }
        expected = sorted(scores, key=scores.get, reverse=True)
        found = [words_of(tokens) for tokens in result["tokens"][row, : len(expected)]]
        assert found == expected
        received = result["scores"][row, : len(expected)]
        np.testing.assert_allclose(received, [scores[s] for s in expected], rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_narrow_beam_finds_phrases_of_no_probability(beam_size):
    table = random_table(4, end=2.0)
    table[..., 4] -= 30.0
    rows = [[(4, 4, 3), (3, 4)], [(4, 3, 3)]]
    result = find(BeamSearch(beam_size), table, max_length=11, phrases=padded(rows))
    for row, phrases in enumerate(rows):
        tokens = words_of(result["tokens"][row])
        assert met(tokens, phrases)
        logp = log_probability(table[row], tokens)
        np.testing.assert_allclose(result["log_probabilities"][row], logp, rtol=2e-5)


def test_a_phrase_of_little_probability_comes_where_it_costs_least():
    # Beginning it late is cheaper than having paid for most of it, until nothing else is left.
    batch, length, phrase = 40, 10, (4, 4, 4, 3)
    table = random_table(8, batch, end=2.0)
    table[..., 4] -= 3.0
    rows = [[phrase]] * batch
    result = find(BeamSearch(4), table, max_length=length, compiled=False, phrases=padded(rows))
    with_phrase = [tokens for tokens in every_sequence(length) if met(tokens, [phrase])]
    best = [max(log_probability(each, tokens) for tokens in with_phrase) for each in table]
    lost = best - result["log_probabilities"]
    assert lost.min() > -1e-4
    assert lost.mean() < 1  # 3.9, were banks ranked by what has been paid alone


@pytest.mark.parametrize("search", [Greedy(), Sampling(seed=1)], ids=["greedy", "sampling"])
def test_other_searches_find_them_too(search):
    table, rows = random_table(5, end=2.0), [[(4, 4, 3)], [(3, 4), (4, 4)]]
    others = {"phrases": padded(rows)}
    if isinstance(search, Sampling):
        others["uniform"] = np.random.default_rng(0).random((BATCH, 9, 1), "float32")
    result = find(search, table, max_length=9, compiled=False, **others)
    for tokens, phrases in zip(result["tokens"], rows, strict=True):
        assert met(words_of(tokens), phrases)


def test_a_row_without_phrases_is_as_if_none_had_any():
    table = random_table(6)
    phrases = padded([[(3, 3)], []])
    expected = find(BeamSearch(4), table, compiled=False)
    result = find(BeamSearch(4), table, compiled=False, phrases=phrases)
    for name in expected:
        np.testing.assert_array_equal(result[name][1], expected[name][1])


def test_from_the_first_that_does_not_fit_on_phrases_are_left_out():
    rows = [[(3, 3), (4, 4, 3)], [(4, 4, 4, 4, 3), (3,)]]
    table = random_table(7)
    result = find(BeamSearch(4), table, compiled=False, phrases=padded(rows))
    assert occurrences(words_of(result["tokens"][0]), (3, 3))
    expected = find(BeamSearch(4), table, compiled=False)
    np.testing.assert_array_equal(result["tokens"][1], expected["tokens"][1])


def test_a_prompt_counts_and_so_do_required_ids():
    forced = np.zeros((BATCH, 7), "int32")
    forced[:, :2] = (3, 4)
    table = random_table(8, end=9.0)
    search = BeamSearch(2, constraints=Constraints(required=(3,)))
    result = find(search, table, forced, compiled=False, phrases=padded([[(4, 4, 3)], [(3, 4)]]))
    assert met(words_of(result["tokens"][0]), [(4, 4, 3), (3,)])
    assert words_of(result["tokens"][1]) == (3, 4, END)


JOINTS = ((4,), (4,))  # 4 is as a digit, and 3 a word


@pytest.mark.parametrize("rows", [[[(3, 4)], [(4,)]], [[(4, 3)], [(4, 4), (3,)]]])
def test_what_is_joined_at_its_edges_is_another_phrase(rows):
    length, table = LENGTH + 1, random_table(9)
    joint = np.isin(np.arange(VOCAB), JOINTS[0])
    search = BeamSearch(EVERYTHING, 0.0, n_best=EVERYTHING)
    request = {"phrases": padded(rows), "joints": (joint, joint, joint & False)}
    result = found_with_joints(search, table, length, **request)
    for row, phrases in enumerate(rows):
        scores = {
            tokens: log_probability(table[row], tokens)
            for tokens in every_sequence(length)
            if met(tokens, phrases, JOINTS)
        }
        real = result["tokens"][row][result["scores"][row] > -1e8]
        found = [words_of(tokens) for tokens in real if END in tokens]
        assert {*found} <= {*scores} and len(found) >= len(scores) - 5  # but in the narrowest room
        assert found[0] == max(scores, key=scores.get)
    narrow = found_with_joints(BeamSearch(2), table, length, **request)
    for tokens, phrases in zip(narrow["tokens"], rows, strict=True):
        assert met(words_of(tokens), phrases, JOINTS)


def found_with_joints(search, table, length, phrases, joints):
    from tests.generation.toy import START, toy_step

    forced = ops.zeros((len(table), length), "int32")
    request = Request(forced, START, END, phrases=phrases, joints=joints)
    step, state, shared = toy_step(ops.convert_to_tensor(table), search.beams, length)
    found = search(step, state, request, shared)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def test_progress_is_as_counted_by_hand():
    rng = np.random.default_rng(0)
    phrases = rng.integers(3, 5, (40, 3, 4)).astype("int32")
    phrases[np.arange(4) >= rng.integers(1, 5, (40, 3, 1))] = 0
    tokens = rng.integers(3, 5, (40, 1, 30)).astype("int32")
    request = Request(ops.zeros((40, 30), "int32"), 1, END)
    demands = demands_of(ops.convert_to_tensor(phrases), request, np.full(40, 99))
    many = ops.full((40, 3), 99, "int32")  # so that it goes on counting
    request = request._replace(phrases=demands._replace(needed=many))
    progress = first_progress(request, ops.convert_to_tensor(tokens), 29)
    progress = after_each(request, progress, ops.convert_to_tensor(tokens[..., 29]))
    for row in range(40):
        for number, phrase in enumerate(phrases[row]):
            counted = occurrences(tokens[row, 0].tolist(), phrase[phrase > 0].tolist())
            assert int(progress.found[row, 0, number]) == counted


def test_one_of_several_forms_is_enough():
    table = random_table(10)
    table[..., 4] -= 9.0
    forms = np.array([[[[4, 4, 0], [3, 3, 0]]], [[[4, 3, 3], [4, 0, 0]]]], "int32")
    result = find(BeamSearch(8), table, max_length=6, phrases=forms)
    first, second = (words_of(tokens) for tokens in result["tokens"])
    assert 4 not in first and occurrences(first, (3, 3))
    assert second.count(4) == 1 and not occurrences(second, (4, 3, 3))


@pytest.fixture(scope="module")
def model():
    model = Transformer(23, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(3)
    model.set_weights([rng.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return model


def test_cached_decoding_scores_them_as_the_whole_model_does(model):
    source = np.array([[5, 7, 9, 2], [6, 2, 0, 0], [8, 3, 2, 0]])
    rows = [[(11, 12, 13), (4, 4)], [(9,), (9,), (20, 21)], []]
    options = {"search": BeamSearch(4, 0.0), "max_length": 14}
    found = generate(model, source, phrases=padded(rows), **options)
    for row, phrases in enumerate(rows):
        tokens = words_of(found["tokens"][row])
        assert met(tokens, phrases)
        target = np.array([[1, *tokens[:-1]]])
        inputs = {"source": source[row : row + 1], "target": target}
        logits = np.float64(ops.convert_to_numpy(model(inputs)))[0]
        logits -= np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        logp = np.sum(logits[np.arange(len(tokens)), tokens])
        np.testing.assert_allclose(found["scores"][row], logp, rtol=1e-4)
    plain = generate(model, source, **options)
    np.testing.assert_array_equal(found["tokens"][2], plain["tokens"][2])


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        (np.zeros((1, 3), "int32"), r"shape \(2, phrases, \[forms,\] length\)"),
        (np.ones((2, 1, 1)), "Received: float64"),
        (np.full((2, 1, 1), 23), "ids of `phrases` must be from 0 to 22"),
        (np.full((2, 1, 1), 2), "must have no END, 2, and padding only behind"),
        (np.array([[[0, 4]], [[4, 0]]]), "padding only behind"),
    ],
)
def test_phrases_that_cannot_be_are_refused(model, phrases, message):
    with pytest.raises(ValueError, match=f"generate: .*{message}"):
        generate(model, np.array([[5, 2], [6, 2]]), phrases=phrases)
