"""A tokenizer with the part of its vocabulary that some texts need."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.text.frames import cutter_of_targets
from keras_transformers.text.given import given_texts
from keras_transformers.text.trimmable import Tokenizer, Trimmable, trimmable

COMMON = {0, 1}  # numbers of the scripts "common", digits and punctuation, and "inherited"
ROWS = 1024  # texts that are cut at once


@dataclasses.dataclass(frozen=True)
class TrimmedTokenizer:
    """A tokenizer with fewer pieces, and the ids that they had.

    Args:
        tokenizer: The new one.
        kept: Ids of its pieces in the old one, int32 `(new vocabulary,)`, increasing: the new id of
            `kept[i]` is `i`.

    Example: see `trim_tokenizer`.
    >>> from keras_transformers.text import SentencePieceTokenizer, trim_tokenizer
    >>> lines = ["the cat sat on the mat", "кошка сидела на ковре"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=29)
    >>> trimmed = trim_tokenizer(tokenizer, ["the cat"])
    >>> trimmed.renumbered([0, 1, 2])
    [0, 1, 2]
    """

    tokenizer: Any
    kept: Array

    def renumbered(self, ids: Iterable[int]) -> list[int]:
        """The new ids of old ones.

        Raises:
            ValueError: If one is not kept.
        """
        numbers = {int(old): new for new, old in enumerate(self.kept)}
        ids = list(ids)
        gone = [each for each in ids if each not in numbers]
        if gone:
            raise ValueError(
                "TrimmedTokenizer.renumbered: `ids` must be among those that are kept; name them "
                f"in `also` to keep them. Received: {gone[:5]}"
            )
        return [numbers[each] for each in ids]


def trim_tokenizer(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    targets: Iterable[str] = (),
    also: Iterable[int | str] = (),
    size: int | None = None,
) -> TrimmedTokenizer:
    """Leaves the pieces out that texts do not need; the same texts are cut into the same pieces.

    Kept are the pieces of the texts, those that these are merged from, marks, languages' tokens,
    added tokens and bytes, and every piece of one character of the scripts of the texts (digits and
    punctuation belong to all), so that no character of theirs becomes unknown. Ids keep their
    order. Another text may be cut into more and smaller pieces than before, and characters of other
    scripts may be unknown.

    Args:
        tokenizer: A `SentencePieceTokenizer`, `PieceTokenizer` (NLLB, M2M-100, mBART, PEGASUS, T5),
            `MarianTokenizer`, `FairseqTokenizer` (XLM-R), `BytePairTokenizer` (GPT-2, RoBERTa,
            BART) or `WordPieceTokenizer` (BERT).
        texts: Iterable of str, read once; of all languages that matter.
        targets: Iterable of str that `tokenizer.for_targets()` cuts, of a `MarianTokenizer`, which
            has a model for each side. Elsewhere the same as more of `texts`.
        also: Ids, or pieces by name, to keep besides.
        size: Pieces to end with, at most: as long as there is room, free pieces in the scripts of
            the texts are kept, too, the most frequent of the vocabulary first. Other texts of these
            languages are then cut more as before.

    Returns:
        A `TrimmedTokenizer`.

    Raises:
        ValueError: If the tokenizer is of another kind or has two vocabularies, `texts` are no
            texts or empty, `also` names no piece, or `size` is less than what is needed.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, trim_tokenizer
    >>> lines = ["the cat sat on the mat", "кошка сидела на ковре"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=29)
    >>> trimmed = trim_tokenizer(tokenizer, ["the cat sat", "the mat"]).tokenizer
    >>> trimmed.vocab_size < tokenizer.vocab_size
    True
    >>> old, new = (each.tokenize("the cat sat").numpy() for each in (tokenizer, trimmed))
    >>> tokenizer.pieces(old) == trimmed.pieces(new)
    True
    """
    vocabulary = trimmable("trim_tokenizer", tokenizer)
    other = cutter_of_targets(tokenizer)
    used, seen = set[str](), set[str]()
    for side, given in ((tokenizer, texts), (other, targets)):
        for batch in _batches(given):
            found, _ = tf.unique(side.tokenize(batch).flat_values)
            used |= {vocabulary.names[i] for i in found.numpy()}
            seen.update(*batch)
            used.update(vocabulary.tried(batch))
    if not used:
        raise ValueError("trim_tokenizer: `texts` must have text in them. Received: none")
    asked = {_named(vocabulary, each) for each in also}
    scripts = _scripts(seen.union(*map(vocabulary.characters, used | asked)))
    kept = _kept(vocabulary, used | asked, COMMON | {*scripts.values()}, size)
    dropped = vocabulary.free - kept
    ids = [i for i, piece in enumerate(vocabulary.names) if piece not in dropped]
    return TrimmedTokenizer(vocabulary.without(dropped), np.array(ids, "int32"))


def _batches(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    rest = given_texts("trim_tokenizer", texts)
    while batch := list(itertools.islice(rest, ROWS)):
        yield batch


def _named(vocabulary: Trimmable, each: int | str) -> str:
    """The piece that is asked for by its id or by its name."""
    names = vocabulary.names
    if isinstance(each, str) and each in names:
        return each
    if isinstance(each, int | np.integer) and 0 <= each < len(names):
        return names[each]
    raise ValueError(
        f"trim_tokenizer: `also` must be pieces, or ids from 0 to {len(names) - 1}. "
        f"Received: {each!r}"
    )


def _scripts(characters: Iterable[str]) -> dict[str, int]:
    """Character -> number of its script."""
    listed = sorted({*characters})
    numbers = tf.strings.unicode_script(tf.constant([*map(ord, listed)], tf.int32))
    return dict(zip(listed, numbers.numpy().tolist(), strict=True))


def _kept(vocabulary: Trimmable, wanted: set[str], scripts: set[int], size: int | None) -> set[str]:
    """The free pieces that stay."""
    text = {piece: vocabulary.characters(piece) for piece in vocabulary.free}
    script = _scripts(itertools.chain(*text.values()))

    def readable(piece: str) -> bool:
        return all(script[character] in scripts for character in text[piece])

    single = {piece for piece in text if len(text[piece]) == 1 and readable(piece)}
    kept = vocabulary.needed(wanted | single) & vocabulary.free
    if size is None:
        return kept
    room = size - (len(vocabulary.names) - len(vocabulary.free))
    if room < len(kept):
        least = len(vocabulary.names) - len(vocabulary.free) + len(kept)
        raise ValueError(
            f"trim_tokenizer: `size` must be at least {least}, which the texts need. "
            f"Received: {size}"
        )
    for piece in vocabulary.by_frequency:
        if piece in kept or not readable(piece):
            continue
        more = vocabulary.needed([piece]) & vocabulary.free
        if len(kept | more) <= room:
            kept |= more
    return kept
