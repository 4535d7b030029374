"""Training on texts without labels: language models and fillers of masks."""

import dataclasses
import math
import re
from typing import Any

import tensorflow as tf

from keras_transformers.data.table_files import LABELS, Chosen
from keras_transformers.data.tables import names_column
from keras_transformers.generation.request import padding_of
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    counted,
    in_two,
    learned,
    split_parts,
    uncompiled,
    with_adapter,
)
from keras_transformers.tasks.text_classification import TextClassifierFitting
from keras_transformers.text import TextCorpus, read_texts
from keras_transformers.text.tokenizers import in_marks, marks_of
from keras_transformers.training import token_learning

FEW = 10  # texts; of fewer, pieces are held out
LONGEST = 256  # positions of a row, in which texts stand one behind the other


class _OfTexts(TextClassifierFitting):
    """What learns from texts alone, or classes where texts have labels."""

    shift = True  # whether labels are the next tokens

    def _rows(self, corpus: TextCorpus) -> tf.data.Dataset:
        """All texts with the marks that the model knows, as one ragged row of ids."""
        tokenizer = self.held.tokenizer
        ids = tokenizer.tokenize(tf.constant(corpus.texts, tf.string))
        return tf.data.Dataset.from_tensors(in_marks(ids, self._marks()))

    def _marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return marks_of(self.held.tokenizer)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        raise NotImplementedError

    def _length(self) -> int:
        return int(min(getattr(self.held.model, "most_positions", None) or LONGEST, LONGEST))

    def fit(  # type: ignore[override]
        self, data: Any, valid: Any, asked: Asked, **options: Any
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on texts, or as `TextClassifierFitting` where there are labels too."""
        data, valid = split_parts(data, valid, asked.verbose)
        if options or names_column(data, LABELS, asked.columns):
            return super().fit(data, valid, asked, **options)
        train = read_texts(data, asked.columns)
        watched = None if valid is None else read_texts(valid, asked.columns)
        train = in_parts(train, self._length()) if watched is None else train
        train, watched = in_two(asked, train, watched, TextCorpus.split)
        rows = [self._rows(corpus) for corpus in (train, watched)]
        numbers = asked.numbers(len(train), "text")
        size = min(numbers.batch_size, 8)  # rows, each of which holds several texts
        held = with_adapter(self.held, False)
        history = learned(
            held.model,
            lambda epoch: self._batches(rows[0], size, asked.seed, epoch),
            self._batches(rows[1], size),
            numbers,
            asked,
            **token_learning(padding_of(held.model), model=held.model),
        )
        return type(self)(held), history

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Perplexity per token, and the share of tokens that are found right."""
        corpus = read_texts(data, columns)
        model = self.held.model
        model.compile(**token_learning(padding_of(model), model=model), jit_compile=False)
        batches = counted(self._batches(self._rows(corpus), 8))
        try:
            found = model.evaluate(batches, verbose=0, return_dict=True)
        finally:
            uncompiled(model)
        perplexity = math.exp(found["cross_entropy"])
        return {"perplexity": perplexity, "accuracy": found["accuracy"], "rows": len(corpus)}


def in_parts(corpus: TextCorpus, words: int) -> TextCorpus:
    """A corpus of fewer than ten texts cut into pieces, of which some can be held out.

    Args:
        corpus: Texts without labels.
        words: Of a piece.

    Example:
    >>> from keras_transformers.tasks.documents import in_parts
    >>> from keras_transformers.text import TextCorpus
    >>> in_parts(TextCorpus("toy", ["to be or not to be"]), words=4).texts
    ['to be or not ', 'to be']
    """
    if len(corpus) >= FEW:
        return corpus
    pieces = []
    for text in corpus.texts:
        found = re.findall(r"\s*\S+\s*", text)
        pieces += ["".join(found[start : start + words]) for start in range(0, len(found), words)]
    return dataclasses.replace(corpus, texts=pieces)
