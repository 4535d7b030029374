"""Claims about the n-gram baseline: a distribution, and Chen & Goodman's equations."""

import collections

import numpy as np
import pytest

from benchmarks.ngrams import KneserNey

START, END, VOCAB = 1, 2, 61
RNG = np.random.default_rng(0)
SHARES = 1 / np.arange(1, VOCAB - 2)
DOCUMENTS = [
    np.array([START, *RNG.choice(np.arange(3, VOCAB), 40, p=SHARES / SHARES.sum()), END])
    for _ in range(30)
]
HISTORIES = [[1], [1, 3], [3, 4, 5], [7, 7, 7, 7], [1, 3, 3, 4], [8, 8, 8]]


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("history", HISTORIES)
def test_probabilities_of_all_tokens_sum_to_one(history, order):
    model = KneserNey(DOCUMENTS, VOCAB, order)
    found = [model.probabilities([*history, token])[-1] for token in range(VOCAB)]
    assert sum(found) == pytest.approx(1)
    assert min(found) > 0


def occurrences(order):
    """What an n-gram counts for, a dict for each order from 1."""
    tables = []
    for n in range(1, order + 1):
        counts, before = collections.Counter(), collections.defaultdict(set)
        for document in map(list, DOCUMENTS):
            for end in range(n, len(document) + 1):
                gram = tuple(document[end - n : end])
                if n == order or end == n:
                    counts[gram] += 1  # of the highest order, or with nothing before it
                else:
                    before[gram].add(document[end - n - 1])
        for gram, tokens in before.items():
            counts[gram] += len(tokens)
        counts.pop((START,), None)
        tables.append(counts)
    return tables


def interpolated(counts, history, token, lower):
    """One order of `p(token | history)`, as the paper writes it."""
    followers = {gram: c for gram, c in counts.items() if gram[:-1] == history}
    if not followers:
        return lower
    n1, n2, n3, n4 = (sum(c == i for c in counts.values()) for i in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    discounts = {1: 1 - 2 * y * n2 / n1, 2: 2 - 3 * y * n3 / n2, 3: 3 - 4 * y * n4 / n3}
    assert all(0 < discount <= i for i, discount in discounts.items()), "the text is too small"
    total = sum(followers.values())
    left_over = sum(discounts[min(c, 3)] for c in followers.values()) / total
    count = followers.get((*history, token), 0)
    return ((count - discounts[min(count, 3)]) / total if count else 0) + left_over * lower


def test_probabilities_are_those_of_the_equations():
    """Of the orders 3 and 2; so few single tokens have no counts of counts to speak of."""
    model, (_, pairs, triples) = KneserNey(DOCUMENTS, VOCAB, 3), occurrences(3)
    model_of_one = KneserNey(DOCUMENTS, VOCAB, 3)
    model_of_one._tables = model._tables[:1]
    document = [START, 3, 4, 5, 3, 3, 8, 8, 6, END]
    found, single = model.probabilities(document), model_of_one.probabilities(document)
    for position in range(2, len(document)):
        history, token = tuple(document[position - 2 : position]), document[position]
        expected = interpolated(pairs, history[1:], token, single[position - 1])
        expected = interpolated(triples, history, token, expected)
        assert found[position - 1] == pytest.approx(expected)
