"""A tokenizer with the part of its vocabulary that some texts need.

Each kind of vocabulary says which pieces may go, and which others a piece needs.
"""

import base64
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

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
