"""How well a vocabulary suits texts."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_transformers.text.given import given_texts

ROWS = 1024  # texts that are cut at once


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
    while batch := list(itertools.islice(rest, ROWS)):
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
