"""Vocabularies as `trimming` sees them: which pieces may go, and what those that stay need."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from keras_transformers.text.byte_pairs import BytePairTokenizer
from keras_transformers.text.fairseq import FairseqTokenizer
from keras_transformers.text.marian import MarianTokenizer
from keras_transformers.text.merge_steps import merge_steps
from keras_transformers.text.pieces import PieceTokenizer
from keras_transformers.text.sentence_piece_models import SentencePieceModel
from keras_transformers.text.tokenizers import SentencePieceTokenizer
from keras_transformers.text.word_splitting import SPECIAL, bert_words
from keras_transformers.text.wordpiece import WordPieceTokenizer
from keras_transformers.words import byte_letters

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
