"""Claims about the size of a vocabulary that goes by a corpus."""

import collections
import functools

import numpy as np
import pytest

from keras_transformers.text import SentencePieceTokenizer, train_of_fitting_size
from keras_transformers.text.trimming import share_of_frequent

RNG = np.random.default_rng(4)
WORDS = ["".join(RNG.choice(list("abcdefg"), 1 + i % 5)) for i in range(60)]
WEIGHTS = 1 / np.arange(1, 61)  # few words are frequent, as in any language
LINES = [" ".join(RNG.choice(WORDS, 6, p=WEIGHTS / WEIGHTS.sum())) for _ in range(400)]
SIZES = (20, 24, 30, 40, 65)
train = functools.cache(functools.partial(SentencePieceTokenizer.train, tuple(LINES)))


def by_hand(size):
    """Share of the pieces of several characters that occur so often."""
    tokenizer = train(size)
    names = tokenizer.pieces(range(size))
    counts = collections.Counter(
        names[token] for row in tokenizer.tokenize(LINES).to_list() for token in row
    )
    pieces = [name for name in names[4:] if len(name) > 1]
    return sum(counts[piece] >= 30 for piece in pieces) / len(pieces)


def test_the_largest_size_whose_pieces_are_frequent_is_chosen():
    shares = {size: by_hand(size) for size in SIZES}
    for size, share in shares.items():
        assert share_of_frequent(train(size), LINES, 30) == pytest.approx(share)
    fitting = [size for size, share in shares.items() if share >= 0.95]
    assert SIZES[0] < max(fitting) < SIZES[-1]
    assert train_of_fitting_size(train, LINES, SIZES, 30).vocab_size == max(fitting)


def test_sizes_that_the_text_does_not_support_are_passed_over():
    sizes = (20, 5000, 6000)
    assert train_of_fitting_size(train, LINES, sizes, examples=1).vocab_size == 20


def test_the_smallest_that_holds_all_characters_is_taken_where_none_fits():
    assert train_of_fitting_size(train, LINES, (5, 20, 30), examples=10**6).vocab_size == 20


def test_sizes_that_do_not_increase_and_no_texts_are_refused():
    for texts, sizes in ((LINES, (30, 20)), ([], (20, 30))):
        with pytest.raises(ValueError, match="`texts` must not be empty, and `sizes` increase"):
            train_of_fitting_size(train, texts, sizes)
