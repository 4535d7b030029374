"""Vocabularies for some texts: how well one suits them, and a tokenizer with a part of it.

Each kind of vocabulary says which pieces may go, and which others a piece needs.
"""

import base64
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array
from keras_transformers.core.words import byte_letters
from keras_transformers.text.byte_pairs import BytePairTokenizer
from keras_transformers.text.published_pieces import (
    FairseqTokenizer,
    MarianTokenizer,
    PieceTokenizer,
)
from keras_transformers.text.sentence_pieces import (
    SentencePieceModel,
    SentencePieceTokenizer,
    merge_steps,
)
from keras_transformers.text.tokenizers import cutter_of_targets, given_texts
from keras_transformers.text.wordpiece import SPECIAL, WordPieceTokenizer, bert_words

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


COMMON = {0, 1}  # numbers of the scripts "common", digits and punctuation, and "inherited"
ROWS = 1024  # texts that are cut at once
Tokenizer: TypeAlias = (
    SentencePieceTokenizer | PieceTokenizer | BytePairTokenizer | WordPieceTokenizer
)
CONTINUES = "##"  # in front of a piece of BERT's that goes on with a word


class Trimmable(Protocol):
    """A vocabulary some of whose pieces may go.

    Attributes:
        names: The pieces in the order of their ids.
        free: Those that may go: neither marks nor what every text needs.
        by_frequency: The free ones, first those that were frequent where they were learnt.
    """

    names: Sequence[str]
    free: set[str]
    by_frequency: Sequence[str]

    def needed(self, pieces: Iterable[str]) -> set[str]:
        """Pieces, and those that stand between them and the characters they are merged from."""

    def characters(self, piece: str) -> str:
        """The text of a piece."""

    def tried(self, texts: Sequence[str]) -> Iterable[str]:
        """Pieces that decide how texts are cut and are not in their ids."""

    def without(self, dropped: set[str]) -> Tokenizer:
        """The tokenizer without free pieces; the ids of the others keep their order."""


class Pieces:
    """The vocabulary of a tokenizer that SentencePiece cuts for."""

    names: Sequence[str]
    by_frequency: Sequence[str]

    def __init__(self, tokenizer: SentencePieceTokenizer | PieceTokenizer) -> None:
        self._tokenizer = tokenizer
        self.names = tokenizer.pieces(range(tokenizer.vocab_size))
        targets = getattr(tokenizer, "target_proto", None)
        protos = [tokenizer.proto] if targets is None else [tokenizer.proto, targets]
        self._models = [SentencePieceModel(proto) for proto in protos]
        known, scores = {*self.names}, dict[str, float]()
        for model in self._models:
            for piece, score in model.normal.items():
                scores[piece] = max(score, scores.get(piece, score))
        outside = self.needed(scores.keys() - known)
        fixed = outside.union(*(model.extremes for model in self._models))
        self.free = (scores.keys() & known) - fixed
        self.by_frequency = sorted(self.free, key=lambda piece: (-scores[piece], piece))

    def needed(self, pieces: Iterable[str]) -> set[str]:
        found, last = {*pieces}, -1
        while len(found) > last:
            last = len(found)
            for model in self._models:
                found |= model.steps(found)
        return found

    def characters(self, piece: str) -> str:
        return piece

    def tried(self, texts: Sequence[str]) -> Iterable[str]:
        return ()

    def without(self, dropped: set[str]) -> Tokenizer:
        config = self._tokenizer.get_config()
        smaller = [base64.b64encode(each.without(dropped)).decode() for each in self._models]
        config["proto"] = smaller[0]
        if len(smaller) > 1:
            config["target_proto"] = smaller[1]
        if "vocab" in config:
            config["vocab"] = [piece for piece in config["vocab"] if piece not in dropped]
        return type(self._tokenizer).from_config(config)


class BytePairs:
    """The vocabulary of a tokenizer that merges pairs of bytes."""

    names: Sequence[str]
    by_frequency: Sequence[str]

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        self._tokenizer = tokenizer
        numbers = dict(tokenizer.vocab)
        others = [token.content for token in tokenizer.added_tokens]
        others += [tokenizer.start, tokenizer.end]
        others += [] if tokenizer.padding is None else [tokenizer.padding]
        for each in others:
            numbers.setdefault(each, len(numbers))
        self.names = sorted(numbers, key=numbers.__getitem__)
        self._ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
        made = [first + second for first, second in tokenizer.merges]
        self.free = {*made} - {*others, *byte_letters()}
        self.by_frequency = [piece for piece in dict.fromkeys(made) if piece in self.free]
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}

    def needed(self, pieces: Iterable[str]) -> set[str]:
        found = {*pieces}
        return found.union(*(merge_steps(piece, self._ranks.get) for piece in found & self.free))

    def characters(self, piece: str) -> str:
        found = bytes(self._bytes[letter] for letter in piece if letter in self._bytes)
        return found.decode("utf-8", "ignore")

    def tried(self, texts: Sequence[str]) -> Iterable[str]:
        return ()

    def without(self, dropped: set[str]) -> Tokenizer:
        config, vocab = self._tokenizer.get_config(), self._tokenizer.vocab
        kept = [piece for piece in sorted(vocab, key=vocab.__getitem__) if piece not in dropped]
        config["vocab"] = {piece: number for number, piece in enumerate(kept)}
        config["merges"] = [
            (first, second)
            for first, second in config["merges"]
            if not dropped & {first, second, first + second}
        ]
        return BytePairTokenizer.from_config(config)


class WordPieces:
    """The vocabulary of a tokenizer of BERT's kind, which takes the longest piece each time."""

    names: Sequence[str]
    by_frequency: Sequence[str]

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self._tokenizer, self.names = tokenizer, tokenizer.vocab
        self._added = [token.content for token in tokenizer.added_tokens]
        self.free = {*tokenizer.vocab} - {*SPECIAL, *self._added}
        self.by_frequency = [piece for piece in tokenizer.vocab if piece in self.free]

    def needed(self, pieces: Iterable[str]) -> set[str]:
        return {*pieces}

    def characters(self, piece: str) -> str:
        return piece.removeprefix(CONTINUES)

    def tried(self, texts: Sequence[str]) -> Iterable[str]:
        """The pieces of words up to the character that makes them unknown."""
        for content in self._added:
            texts = [text.replace(content, " ") for text in texts]
        words = bert_words(tf.constant(list(texts)), self._tokenizer.lower_case).flat_values
        for word in {each.decode() for each in words.numpy()}:
            yield from self._cut(word)

    def _cut(self, word: str) -> Iterator[str]:
        known, start, mark = self.free, 0, ""
        while start < len(word):
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in known), None)
            if end is None:
                return
            yield mark + word[start:end]
            start, mark = end, CONTINUES

    def without(self, dropped: set[str]) -> Tokenizer:
        config = self._tokenizer.get_config()
        config["vocab"] = [piece for piece in config["vocab"] if piece not in dropped]
        return WordPieceTokenizer.from_config(config)


def trimmable(owner: str, tokenizer: Tokenizer) -> Trimmable:
    """The vocabulary of a tokenizer.

    Raises:
        ValueError: If it is of a kind that cannot be trimmed, or has a vocabulary for each side.
    """
    kinds: Mapping[type, Callable[[Any], Trimmable]] = {
        SentencePieceTokenizer: Pieces,
        PieceTokenizer: Pieces,
        MarianTokenizer: Pieces,
        FairseqTokenizer: Pieces,
        BytePairTokenizer: BytePairs,
        WordPieceTokenizer: WordPieces,
    }
    if type(tokenizer) not in kinds:
        raise ValueError(
            f"{owner}: `tokenizer` must be a {', '.join(kind.__name__ for kind in kinds)}. "
            f"Received: a {type(tokenizer).__name__}"
        )
    if getattr(tokenizer, "target_vocab", None) is not None:
        raise ValueError(
            f"{owner}: `tokenizer` must have one vocabulary for both sides. Received: a "
            f"{type(tokenizer).__name__} with a `target_vocab`"
        )
    return kinds[type(tokenizer)](tokenizer)


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
