"""Measures of a vocabulary: how well it suits texts, and which size suits a corpus."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformers.text.tokenizers import given_texts

MEASURED_AT_ONCE = 1024  # texts that are cut at once


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What a tokenizer makes of texts.

    Args:
        texts, words, pieces: Their numbers; words are what stands between white space.
        unknown: Share of the pieces that are unknown, 0 where a tokenizer has no such piece.
        pieces_per_word: The fertility: 1 where every word is a piece. Of a language that writes no
            spaces it says little.
        used: Share of the vocabulary that the texts use.

    Example: see `coverage`.
    >>> from keras_transformers.text import Coverage
    >>> Coverage(texts=1, words=2, pieces=3, unknown=0.0, pieces_per_word=1.5, used=0.1).used
    0.1
    """

    texts: int
    words: int
    pieces: int
    unknown: float
    pieces_per_word: float
    used: float


def coverage(tokenizer: Any, texts: Iterable[str]) -> Coverage:
    """Counts what a tokenizer makes of texts, without marks before and after them.

    Args:
        tokenizer: One of `keras_transformers.text`.
        texts: Iterable of str, read once; of one language, or the figures are of the mixture.

    Returns:
        A `Coverage`.

    Raises:
        ValueError: If `texts` are no texts, or there is no word in them.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, coverage
    >>> lines = ["the cat sat on the mat", "кошка сидела на ковре"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=29)
    >>> for language, texts in {"en": ["the mat"], "el": ["η γάτα"]}.items():
    ...     found = coverage(tokenizer, texts)
    ...     print(language, round(found.unknown, 2), found.pieces_per_word, round(found.used, 2))
    en 0.0 3.5 0.21
    el 0.5 2.0 0.07
    """
    rest, unknown_id = given_texts("coverage", texts), getattr(tokenizer, "unknown_id", None)
    number = words = pieces = unknown = 0
    used = set[int]()
    while batch := list(itertools.islice(rest, MEASURED_AT_ONCE)):
        number += len(batch)
        words += sum(len(text.split()) for text in batch)
        ids = tf.reshape(tokenizer.tokenize(batch).flat_values, [-1]).numpy()
        pieces += ids.size
        unknown += 0 if unknown_id is None else int((ids == unknown_id).sum())
        used.update(ids.tolist())
    if not words:
        raise ValueError("coverage: `texts` must have words in them. Received: none")
    return Coverage(
        texts=number,
        words=words,
        pieces=pieces,
        unknown=unknown / max(pieces, 1),
        pieces_per_word=pieces / words,
        used=len(used) / tokenizer.vocab_size,
    )


SIZES = (500, 700, 1000, 1400, 2000, 2800, 4000, 5600, 8000, 11000, 16000, 22000, 32000, 45000)
EXAMPLES, SHARE_OF_FREQUENT = 10, 0.95
COUNTED_AT_ONCE = 1 << 16  # texts that are cut at once

Kind = TypeVar("Kind", bound=Any)


def share_of_frequent(tokenizer: Any, texts: Sequence[str], examples: int = EXAMPLES) -> float:
    """Share of a vocabulary's pieces that occur so often at least in texts.

    Single characters are left out, which a vocabulary of any size has, and rare ones of any script;
    and special tokens, marks and the bytes of `byte_fallback`.
    """
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for start in range(0, len(texts), COUNTED_AT_ONCE):
        ids = tokenizer.tokenize(texts[start : start + COUNTED_AT_ONCE])
        flat = tf.reshape(ids.flat_values, [-1]).numpy()
        counts += np.bincount(flat, minlength=tokenizer.vocab_size)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    special = [piece.startswith("<") and piece.endswith(">") for piece in pieces]
    real = np.array([len(piece) > 1 for piece in pieces]) & ~np.array(special)
    return float((counts[real] >= examples).mean()) if real.any() else 1.0


def train_of_fitting_size(
    train: Callable[[int], Kind],
    texts: Iterable[str],
    sizes: Sequence[int] = SIZES,
    examples: int = EXAMPLES,
    share: float = SHARE_OF_FREQUENT,
) -> Kind:
    """The tokenizer with the largest vocabulary whose pieces are frequent enough to be learned.

    At least 95 % of its pieces, single characters not counted, occur 10 times or more in the texts
    that it is trained on. The rule is that of Gowda and May (2020,
    https://aclanthology.org/2020.findings-emnlp.352, section 5), who have 100 times, for the
    target's classes. That is too many where splits are drawn, so that a rare piece is not all that
    a rare word is learned by: of two sets of 30,000 pairs, for which it gives fewer than 2,000
    pieces, one was translated better with 8,000 than with 4,000, the other no worse with 4,000 than
    with 2,500 (`benchmarks/results/translation_options.md`). Both sides count together, as they
    share a table. About `log2(len(sizes))` vocabularies are trained.

    Args:
        train: Function of a size that gives a tokenizer, or raises ValueError where the texts
            support none of that size.
        texts: Iterable of str, those that it is trained on.
        sizes: Increasing candidates. The first is taken where none fits.
        examples, share: The rule's numbers.

    Raises:
        ValueError: If there are no texts, `sizes` do not increase, or of the smallest size there
            can be no tokenizer.

    Example:
    >>> from functools import partial
    >>> from keras_transformers.text import SentencePieceTokenizer, train_of_fitting_size
    >>> lines = ["the cat sat on the mat", "the dog sat on the log"] * 200
    >>> train = partial(SentencePieceTokenizer.train, lines)
    >>> train_of_fitting_size(train, lines, sizes=(18, 20, 90)).vocab_size
    20
    """
    texts = list(given_texts("train_of_fitting_size", texts))
    if not texts or not sizes or any(np.diff(sizes) <= 0):
        raise ValueError(
            "train_of_fitting_size: `texts` must not be empty, and `sizes` increase. "
            f"Received: {len(texts)} texts, {tuple(sizes)}"
        )
    characters = len(set().union(*texts))  # each is a piece, or no tokenizer is trained
    sizes = [size for size in sizes if size > characters] or [sizes[-1]]
    best, low, high = None, 0, len(sizes)  # the first `low` fit, those from `high` on do not
    while low < high:
        middle = (low + high) // 2
        try:
            found = train(sizes[middle])
        except ValueError:
            high = middle
            continue
        if share_of_frequent(found, texts, examples) >= share:
            best, low = found, middle + 1
        else:
            high = middle
    return train(sizes[0]) if best is None else best
