"""Claims about the merging of byte pairs: the published pieces, whatever a word's length."""

import resource
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.core.words import byte_letters
from keras_transformers.text import BytePairTokenizer
from keras_transformers.text.byte_pairs import Merging

LETTERS = byte_letters()


def vocabulary(merges):
    pieces = dict.fromkeys([*LETTERS, *(a + b for a, b in merges)])
    return {piece: number for number, piece in enumerate(pieces)}


def by_definition(word, vocab, merges):
    """The best pair that stands farthest left is merged, one at a time."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    word = list(word)
    while True:
        pairs = [
            (ranks[pair], i)
            for i, pair in enumerate(zip(word, word[1:], strict=False))
            if pair in ranks
        ]
        if not pairs:
            return [vocab[piece] for piece in word]
        _, i = min(pairs)
        word[i : i + 2] = [word[i] + word[i + 1]]


def random_merges(rng, number, in_order):
    """Merges of random pieces of three letters, of at most four letters."""
    pieces, merges = ["a", "b", "c"], []
    while len(merges) < number:
        a, b = rng.choice(pieces, 2)
        fits = len(a + b) <= 4 and (a, b) not in merges
        if fits and not (in_order and a + b in pieces):
            merges.append((str(a), str(b)))
            pieces.append(a + b)
    return merges if in_order else [merges[i] for i in rng.permutation(number)]


@pytest.mark.parametrize("in_order", [True, False])
def test_pieces_are_those_of_the_definition(in_order):
    rng = np.random.default_rng(7)
    for _ in range(6):
        merges = random_merges(rng, 9, in_order)
        vocab = vocabulary(merges)
        merge = Merging(vocab, merges, [vocab[letter] for letter in LETTERS])
        # Up to many times what decides over a pair, so that long words are merged at all ends.
        words = [
            "".join(rng.choice(list("abc"), n, p=[0.7, 0.2, 0.1])) for n in (1, 2, 7, 40, 90, 150)
        ]
        found = merge(tf.constant(words)).to_list()
        assert found == [by_definition(word, vocab, merges) for word in words]


def test_a_run_of_one_letter_is_merged_from_its_left_end():
    merges = [("x", "y"), ("a", "a"), ("aa", "aa")]
    vocab = vocabulary(merges)
    merge = Merging(vocab, merges, [vocab[letter] for letter in LETTERS])
    words = ["a" * n + "xy" + "a" * m + "b" for n in (0, 1, 60, 61) for m in (0, 59, 60, 61)]
    found = merge(tf.constant(words)).to_list()
    assert found == [by_definition(word, vocab, merges) for word in words]


def test_a_batch_of_one_token_or_none_is_whole():
    merges = [("a", "t"), ("c", "at")]
    vocab = vocabulary(merges)
    tokenizer = BytePairTokenizer(vocab, merges)
    space, end = vocab["\u0120"], tokenizer.end_id
    expected = {"": [], "a": [vocab["a"]], "cat": [vocab["cat"]], "<|endoftext|>": [end]}
    expected["a cat"] = [vocab["a"], space, vocab["cat"]]
    graph = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    for texts in ([], [""], ["a"], ["cat"], ["", "cat", ""], ["cat", "a cat"], ["<|endoftext|>"]):
        for tokenize in (tokenizer.tokenize, graph):
            found = tokenize(tf.constant(texts, tf.string, [len(texts)]))
            assert found.to_list() == [expected[text] for text in texts]


def test_a_word_of_200_000_letters_takes_the_memory_of_its_letters():
    rng = np.random.default_rng(3)
    merges = random_merges(rng, 30, in_order=True)
    tokenizer = BytePairTokenizer(vocabulary(merges), merges)
    text = "".join(rng.choice(list("abc"), 200_000))
    short = " ".join(["a", "b c"] * 10_000)  # once 200,000 bytes for each of the words, too
    tokenizer.tokenize([text[:100]])
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    ids = tokenizer.tokenize([text, short])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
    assert time.monotonic() - begun < 60
    assert b"".join(tokenizer.detokenize(ids).numpy()).decode() == text + short
