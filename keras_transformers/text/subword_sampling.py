"""Splits of text into subwords that are drawn by a seed."""

import collections
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from keras_transformers.annotations import Array, Tokenizer, Values
from keras_transformers.contexts import SEPARATOR
from keras_transformers.extras import needed_by
from keras_transformers.text.lattices import LatticeSampling, summed
from keras_transformers.text.merge_dropout import MergeDropout
from keras_transformers.text.tokenizers import SentencePieceTokenizer

SPACE = "▁"
UNIGRAM, BPE = 1, 2  # SentencePiece's numbers of these kinds of models
NORMAL, USER_DEFINED = 1, 4  # and of the kinds of pieces that are looked for in a text
UNKNOWN_PENALTY = 10.0  # an unknown character scores so much less than the worst piece


class SubwordSampler:
    """Splits of the sentences of a corpus into subwords, drawn by a seed.

    Of a unigram model the split into the pieces `x_1 .. x_n` is drawn in proportion to
    `exp(alpha * (score(x_1) + .. + score(x_n)))`, of all splits that the model allows (Kudo 2018,
    https://arxiv.org/abs/1804.10959, section 3.3): forward filtering and backward sampling, here
    from right to left, then from left to right; each probability to 1e-9. SentencePiece draws the
    same splits as often, but by no seed.

    No piece goes on beyond a space, so each different word is looked up once, beforehand, and the
    words of all chosen sentences then take a step at a time together. (Of a model that was trained
    to go beyond spaces, a sentence is one word.)

    Of a bpe model merges are left out, see `MergeDropout` (Provilkov et al. 2020).

    Args:
        tokenizer: A `SentencePieceTokenizer` of a unigram or a bpe model.
        strings: The sentences, a list of str.
        alpha: Of a unigram model the inverse temperature: 0 makes all splits alike, 0.1 varied
            ones, 1 those of the model. Of a bpe model the probability that a merge is left out: 0
            makes the split of the model, 0.1 varied ones, 1 characters.

    Raises:
        ValueError: If the model is of another kind, or `alpha` out of its range.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, SubwordSampler
    >>> lines = ["the cat sat on the mat", "the dog sat on the log"]
    >>> tokenizer = SentencePieceTokenizer.train(lines * 20, vocab_size=20)
    >>> sampler = SubwordSampler(tokenizer, lines, alpha=0.1)
    >>> ids, lengths = sampler.sample([1, 0, 1], seed=3)
    >>> tokenizer.detokenize(ids[: lengths[0]]).numpy().decode()
    'the dog sat on the log'
    """

    def __init__(self, tokenizer: Tokenizer, strings: Sequence[str], alpha: float) -> None:
        with needed_by("SubwordSampler"):
            import sentencepiece

        if not can_be_drawn(tokenizer):
            raise ValueError(
                "SubwordSampler: `tokenizer` must be a SentencePieceTokenizer of a unigram or a "
                "bpe model."
            )
        model = _model(tokenizer.proto)
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
        pieces = {
            piece.piece: number
            for number, piece in enumerate(model.pieces)
            if piece.type in (NORMAL, USER_DEFINED)
        }
        normalized = processor.normalize(list(strings))
        if context := tokenizer.context:
            pieces[SEPARATOR] = context.mark
            parts = (text.split(SEPARATOR)[-context.sentences - 1 :] for text in strings)
            normalized = [SEPARATOR.join(processor.normalize(each)) for each in parts]
        words, self._words, self._word_splits = _distinct_words(normalized, pieces)
        unknown_id, scores = tokenizer.unknown_id, _scores(model, tokenizer.unknown_id)
        if model.trainer_spec.model_type == BPE:
            if not 0 <= alpha <= 1:
                raise ValueError(
                    "SubwordSampler: `alpha` must be from 0 to 1, the share of merges that are "
                    f"left out, of a bpe model. Received: {alpha}"
                )
            whole = [piece.piece for piece in model.pieces if piece.type == USER_DEFINED]
            whole += [SEPARATOR] if tokenizer.context else []
            self._splitter: Any = MergeDropout(words, pieces, scores, alpha, unknown_id, whole)
        else:
            if not 0 <= alpha < np.inf:
                raise ValueError(f"SubwordSampler: `alpha` must be at least 0. Received: {alpha}")
            self._splitter = LatticeSampling(words, pieces, scores, alpha, unknown_id)
        ids, self._spelling = self._splitter.ids, None
        if model.trainer_spec.byte_fallback:
            ids, self._spelling = _spelling(model, self._splitter.characters, ids, unknown_id)
        self._ids = ids.astype(np.int32)
        self._marks = tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id

    def sample(
        self, chosen: Values, seed: int | Sequence[int], start: bool = False, end: bool = False
    ) -> tuple[Array, Array]:
        """Draws a split of each chosen sentence.

        Args:
            chosen: Numbers of sentences in the list, in any order.
            seed: An integer, or several, for `np.random.default_rng`. The splits follow from it
                and from `chosen` alone, in any process.
            start, end: Whether to put START before and END after.

        Returns:
            int32 ids of the sentences one after another, and the number of ids of each.
        """
        words, splits = _rows(self._words, self._word_splits, np.asarray(chosen, np.int64))
        drawn, word_splits = self._splitter.draw(words, np.random.default_rng(seed))
        ids, splits = self._ids[drawn], word_splits[splits]
        if self._spelling is not None:
            flat, spelt = self._spelling
            ids, id_splits = _rows(flat, spelt, ids)
            splits = id_splits[splits]
        start_id, end_id, unknown_id = self._marks
        ids, splits = _runs_as_one(ids, splits, unknown_id)
        if start:
            ids, splits = np.insert(ids, splits[:-1], start_id), splits + np.arange(len(splits))
        if end:
            ids, splits = np.insert(ids, splits[1:], end_id), splits + np.arange(len(splits))
        return ids, np.diff(splits)


def can_be_drawn(tokenizer: object) -> TypeGuard[SentencePieceTokenizer]:
    """Whether a tokenizer is one whose splits `SubwordSampler` can draw."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return False
    return _model(tokenizer.proto).trainer_spec.model_type in (UNIGRAM, BPE)


def _model(proto: bytes) -> Any:
    with needed_by("SubwordSampler"):
        from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]


def _scores(model: Any, unknown_id: int) -> Array:
    """Score of each piece, by SentencePiece's rules for symbols of the user and the unknown."""
    scores = np.array([piece.score for piece in model.pieces])
    kinds = np.array([piece.type for piece in model.pieces])
    lengths = np.array([len(piece.piece) for piece in model.pieces])
    normal = scores[kinds == NORMAL]
    scores = np.where(kinds == USER_DEFINED, lengths * max(normal.max(), 0) - 0.1, scores)
    scores[unknown_id] = normal.min() - UNKNOWN_PENALTY
    return scores


def _distinct_words(
    texts: Sequence[str], pieces: Mapping[str, int]
) -> tuple[list[str], Array, Array]:
    """The different words; the number of each word of the texts; where each text's begin and end.

    A word is a part of a text over whose ends no piece of the model goes.
    """
    crossing = any(re.search(f"[^{SPACE}]{SPACE}", piece) for piece in pieces)
    cut = re.compile("(?s).+" if crossing else f"{SPACE}*[^{SPACE}]+|{SPACE}+").findall
    numbers: dict[str, int] = collections.defaultdict(itertools.count().__next__)
    rows = [[numbers[word] for word in cut(text)] for text in texts]
    flat = np.fromiter(itertools.chain.from_iterable(rows), np.int64)
    return list(numbers), flat, summed([len(row) for row in rows])


def _spelling(
    model: Any, characters: Array, ids: Array, unknown_id: int
) -> tuple[Array, tuple[Array, Array] | None]:
    """Unknown characters as their bytes: ids beyond those of the pieces, and what they stand for.

    What they stand for is given as the ids of all one after another, and where each one's begin.
    """
    unknown = ids == unknown_id
    if not unknown.any():
        return ids, None
    size = len(model.pieces)
    different, numbers = np.unique(characters[unknown], return_inverse=True)
    ids = ids.copy()
    ids[unknown] = size + numbers
    of_bytes = {piece.piece: number for number, piece in enumerate(model.pieces)}
    spelt = [[of_bytes[f"<0x{byte:02X}>"] for byte in chr(each).encode()] for each in different]
    flat = np.array([*range(size), *itertools.chain.from_iterable(spelt)], np.int32)
    return ids, (flat, summed([1] * size + [len(each) for each in spelt]))


def _runs_as_one(ids: Array, splits: Array, unknown_id: int) -> tuple[Array, Array]:
    """Without an unknown id that follows one in its sentence."""
    again = np.zeros(len(ids), bool)
    again[1:] = (ids[1:] == unknown_id) & (ids[:-1] == unknown_id)
    if not again.any():
        return ids, splits
    again[splits[:-1][np.diff(splits) > 0]] = False
    return ids[~again], summed(~again)[splits]


def _rows(flat: Array, splits: Array, chosen: Array) -> tuple[Array, Array]:
    """The chosen rows of a ragged array one after another, and where each begins and ends."""
    lengths = splits[chosen + 1] - splits[chosen]
    new = summed(lengths)
    return flat[np.repeat(splits[chosen] - new[:-1], lengths) + np.arange(new[-1])], new
