"""Claims about BPE-dropout by a seed."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.text import SentencePieceTokenizer, SubwordSampler, encode_pairs

RNG = np.random.default_rng(2)
WORDS = "lower lowest newer newest wider widest new low wide slow slower".split()
LINES = [" ".join(RNG.choice(WORDS, 1 + i % 6)) for i in range(300)]


@functools.cache
def made(**options):
    return SentencePieceTokenizer.train(LINES, 45, model_type="bpe", **options)


def rows(found):
    ids, lengths = found
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_without_dropout_splits_are_those_of_the_model():
    texts = ["lower new", "", "newest  lowest slowest low", "wxyz new 日本", "ééé", *LINES[:50]]
    for tokenizer in (made(), SentencePieceTokenizer.train(LINES, 310, "bpe", 1.0, True)):
        found = SubwordSampler(tokenizer, texts, 0.0).sample(range(len(texts)), seed=1)
        assert rows(found) == tokenizer.tokenize(texts).to_list()


def test_all_merges_dropped_leaves_characters():
    found = SubwordSampler(made(), ["lower new"], 1.0).sample([0], seed=1)
    assert made().pieces(found[0]) == list("▁lower▁new")


def algorithm_1(pieces, scores, symbols, p):
    """The probability of each split of a word: all choices of the paper's algorithm 1."""
    found = collections.Counter()
    merges = [
        (-scores[a + b], i)
        for i, (a, b) in enumerate(zip(symbols, symbols[1:], strict=False))
        if a + b in pieces
    ]
    # The k-th best is taken where it remains, and all that are better were left out.
    for k, (_, i) in enumerate(sorted(merges)):
        after = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        for split, probability in algorithm_1(pieces, scores, after, p).items():
            found[split] += p**k * (1 - p) * probability
    found[symbols] += p ** len(merges)
    return found


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_splits_are_drawn_as_often_as_the_algorithm_says(dropout):
    tokenizer, number = made(), 20_000
    pieces = tokenizer.pieces(range(4, tokenizer.vocab_size))
    scores = {piece: -rank for rank, piece in enumerate(pieces)}
    expected = algorithm_1(set(pieces), scores, tuple("▁newest"), dropout)
    sampler = SubwordSampler(tokenizer, ["low", "newest"], dropout)
    drawn = rows(sampler.sample(np.ones(number, int), seed=3))
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    counts = collections.Counter(tuple(names[token] for token in row) for row in drawn)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) <= set(expected)
    for split, probability in expected.items():
        spread = np.sqrt(probability * (1 - probability) / number)
        assert counts[split] / number == pytest.approx(probability, abs=5 * spread + 1e-9)


def test_a_seed_draws_the_same_splits_and_words_may_be_merged_in_parts(monkeypatch):
    sampler, chosen = SubwordSampler(made(), LINES, 0.3), range(40)
    found = rows(sampler.sample(chosen, seed=7))
    assert rows(sampler.sample(chosen, seed=7)) == found != rows(sampler.sample(chosen, seed=8))
    monkeypatch.setattr("keras_transformers.text.subword_sampling.AT_ONCE", 60)
    in_parts = sampler.sample(chosen, seed=7)
    again = made().detokenize(tf.RaggedTensor.from_row_lengths(*in_parts)).numpy()
    assert [line.decode() for line in again] == LINES[:40]


def test_pairs_are_drawn_anew_each_epoch_by_the_seed():
    def epoch(number):
        pairs = encode_pairs(
            LINES[:9], LINES[:9], made(), shuffle_seed=1, sample=0.5, epoch=tf.constant(number)
        )
        return [ids.numpy().tolist() for pair in pairs for ids in pair.values()]

    assert epoch(0) == epoch(0) != epoch(1)


def test_more_than_all_merges_cannot_be_left_out():
    with pytest.raises(ValueError, match=r"`alpha` must be from 0 to 1.* bpe model. Received: 1.5"):
        SubwordSampler(made(), LINES, 1.5)
