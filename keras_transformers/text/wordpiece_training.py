"""Learning a WordPiece vocabulary: characters, and what merges most often inside words."""

import collections
import io
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from keras_transformers.extras import needed_by
from keras_transformers.text.given import given_texts
from keras_transformers.text.word_splitting import MARKS, SPECIAL, bert_words

ALPHABET = 1000  # characters that are kept, those at a word's start and inside counted apart
CHUNK = 8192  # strings that are split at a time
RESERVED = {"\u2581", "\u2585"}  # a space and an unknown character, to SentencePiece


def learn_vocabulary(strings: Iterable[Any], vocab_size: int, lower_case: bool) -> list[str]:
    """Pieces in the order of their ids; see `WordPieceTokenizer.train`."""
    strings = given_texts("WordPieceTokenizer.train", strings)
    lines = list(_split(strings, lower_case))
    forms: collections.Counter[str] = collections.Counter()
    for word, count in collections.Counter(itertools.chain(*lines)).items():
        for form in _forms(word):
            forms[form] += count
    alphabet = sorted(forms, key=lambda form: (-forms[form], form))[:ALPHABET]
    if not alphabet:
        raise ValueError("WordPieceTokenizer.train: `strings` has no text in it.")
    least = len(SPECIAL) + len(alphabet)
    if vocab_size < least:
        raise ValueError(
            f"WordPieceTokenizer.train: vocab_size={vocab_size} is less than the number of "
            f"special tokens and characters; use at least {least}."
        )
    known = set(alphabet)
    lines = ([word for word in line if known.issuperset(_forms(word))] for line in lines)
    merged = _merged(lines, vocab_size + least)
    return list(dict.fromkeys([*SPECIAL, *alphabet, *merged]))[:vocab_size]


def _split(strings: Iterable[str], lower_case: bool) -> Iterator[list[str]]:
    """Lists of the words of each string."""
    strings, marks = iter(strings), set(MARKS.values())
    while chunk := list(itertools.islice(strings, CHUNK)):
        for line in bert_words(tf.constant(chunk, tf.string), lower_case).to_list():
            yield [word for word in map(bytes.decode, line) if word not in marks]


def _forms(word: str) -> list[str]:
    """Characters of a word as pieces: the first, then the others with `##`."""
    return [word[0], *(f"##{character}" for character in word[1:])]


def _merged(lines: Iterable[list[str]], count: int) -> list[str]:
    """Pieces of several characters that SentencePiece merges within the words of the lines."""
    with needed_by("WordPieceTokenizer.train"):
        import sentencepiece

    texts = (" ".join(word for word in line if RESERVED.isdisjoint(word)) for line in lines)
    texts = [text for text in texts if text]
    if not texts:
        return []
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=count,
        hard_vocab_limit=False,
        model_type="bpe",
        character_coverage=1.0,
        normalization_rule_name="identity",
        split_by_unicode_script=False,
        split_by_number=False,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        max_sentence_length=1 << 30,
        num_threads=1,  # more threads make the pieces depend on timing
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [model.id_to_piece(number) for number in range(1, len(model))]
    starts = [piece[1:] if piece[0] == "▁" else f"##{piece}" for piece in pieces]
    return [piece for piece in starts if len(piece.removeprefix("##")) > 1]
