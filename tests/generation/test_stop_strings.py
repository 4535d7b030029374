"""Claims about strings that end texts, against a search for them in the texts themselves."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Greedy,
    Sampling,
    Shortlist,
    Shortlisted,
    Speculative,
    StopStrings,
    generate,
    stream,
)
from keras_transformers.generation.boundaries import completed
from tests.generation.model import BATCH, END, PROMPT, SOURCE, VOCAB, make, shared_model
from tests.generation.toy import (
    LENGTH,
    WORDS,
    every_sequence,
    find,
    log_probability,
    penalty,
    random_table,
    seeds,
    words_of,
)
from tests.slow import slow_except

bits = st.text("ab", min_size=1, max_size=4)


class Tokens:
    """A tokenizer whose texts are the joined strings of its tokens."""

    def __init__(self, strings):
        self.strings, self.vocab_size = strings, len(strings)

    def text(self, ids):
        return "".join(self.strings[token] for token in ids if token < self.vocab_size)

    def detokenize(self, ids):
        texts = np.array([self.text(row).encode() for row in ids], object)
        return types.SimpleNamespace(numpy=lambda: texts)


def stops(tokens, ids, strings, prompt=0):
    """Number of ids up to the first behind the prompt that completes one of the strings."""
    for number in range(prompt + 1, len(ids) + 1):
        before, text = tokens.text(ids[: number - 1]), tokens.text(ids[:number])
        for string in strings:
            start = text.find(string, max(0, len(before) - len(string) + 1))
            if start >= 0:
                return number
    return len(ids)


@settings(max_examples=60)
@given(
    strings=st.lists(bits, min_size=1, max_size=3),
    words=st.lists(bits, min_size=2, max_size=6),
    seed=seeds,
)
def test_a_token_completes_a_string_that_ends_in_it(strings, words, seed):
    tokens = Tokens(["ab", *words])
    ids = np.random.default_rng(seed).integers(0, tokens.vocab_size, 9)
    table = ops.convert_to_tensor(StopStrings(tokens, strings).for_vocabulary(None))
    rows = ops.convert_to_tensor(ids[None, None].astype("int32"))
    for position in range(len(ids)):
        until = ids[: position + 1].tolist()
        text, last = tokens.text(until), tokens.strings[until[-1]]
        expected = any(
            text.find(string, max(0, len(text) - len(last) - len(string) + 1)) >= 0
            for string in strings
        )
        assert bool(completed(rows, position, table)[0, 0]) == expected
        each_row = ops.convert_to_tensor(np.array([position], "int32"))
        assert bool(completed(rows, each_row, table)[0, 0]) == expected


def test_characters_of_several_bytes_are_found_across_tokens():
    """The euro sign has three bytes; tokens of byte pairs may hold one of them."""
    table = StopStrings(Tokens(["a", "€"]), "€").for_vocabulary(5)
    assert (
        table.shape == (4, 6) and table[0, 1] < 0 and (table[:, 2:] == [[0], [1], [2], [3]]).all()
    )


@settings(max_examples=4)
@given(seed=seeds)
def test_a_beam_of_everything_finds_the_best_of_all_that_end_or_stop(seed):
    strings, table = ["ab"], random_table(seed)[:1]
    tokens = Tokens(["", "", "", "a", "b"])
    stop = StopStrings(tokens, strings).for_vocabulary(5)

    def first(sequence):
        return stops(tokens, sequence, strings)

    every = {s for s in every_sequence() if first(s) == len(s)}
    every |= {s[: first(s)] for s in every_sequence() if first(s) < len(s)}
    words = {(*s[:-1], w) for s in every_sequence() for w in WORDS}
    every |= {s for s in words if first(s) == len(s) and tokens.text(s).endswith("ab")}
    scores = {s: log_probability(table[0], s) / penalty(len(s), 0.6) for s in every}
    search = BeamSearch(64, 0.6, n_best=20)
    found = find(search, table, compiled=False, stop_table=stop)
    expected = sorted(scores, key=scores.get, reverse=True)
    ended = found["finished"][0]
    received = [words_of(row) for row, end in zip(found["tokens"][0], ended, strict=True) if end]
    assert received == expected[: len(received)] and len(received) >= 15
    assert max(map(len, expected)) <= LENGTH


PAIRS = [[5, 7], [7, 6], [9, 8]], [[8, 9], [9, 10], [4, 5]]
SEARCHES = {
    "greedy": Greedy(),
    "sampling": Sampling(seed=1),
    "draft": Speculative(make(seed=5), 2),
    "list": Shortlisted(Shortlist.learn(*PAIRS, VOCAB, VOCAB, likeliest=1, frequent=3)),
}
LETTERS = Tokens(["", "", "", *"abcdefghij"])


@pytest.mark.parametrize("search", slow_except(SEARCHES, "greedy"))
def test_a_sequence_is_the_usual_one_up_to_the_string(search):
    options = {"prompt": PROMPT, "search": search, "max_length": 12}
    usual = generate(shared_model(), SOURCE, **options)
    shortest = 12
    for begin in range(2, 9):
        strings = {LETTERS.text(row[begin : begin + 2]) for row in usual["tokens"].tolist()}
        strings = [string for string in strings if string][:2]
        if not strings:
            continue
        stop = StopStrings(LETTERS, strings)
        found = generate(shared_model(), SOURCE, **options, stop_strings=stop)
        if isinstance(search, Greedy) and begin == 3:
            one = {"prompt": PROMPT[:1], "max_length": 12, "stop_strings": stop}
            streamed = list(stream(shared_model(), SOURCE[:1], **one, tokens_at_a_time=1))
            size = int(found["lengths"][0])
            assert streamed == found["tokens"][0, int(np.sum(PROMPT[0] > 0)) : size].tolist()
        for row in range(BATCH):
            tokens = usual["tokens"][row].tolist()
            prompt = int(np.sum(PROMPT[row] > 0))
            number = min(stops(LETTERS, tokens, strings, prompt), int(usual["lengths"][row]))
            assert found["tokens"][row].tolist() == tokens[:number] + [0] * (12 - number)
            is_end = tokens[number - 1] == END
            is_stop = stops(LETTERS, tokens[:number] + [0], strings, prompt) == number
            assert found["finished"][row] == (is_end or is_stop)
            shortest = min(shortest, number)
    assert shortest < 10


@pytest.mark.parametrize("strings", [[], "", ["a", ""], [3], ["a" * 2000]])
def test_what_is_no_string_is_refused(strings):
    with pytest.raises(ValueError, match=r"`strings` must be one str or several, none empty"):
        StopStrings(LETTERS, strings)
