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
    attach_adapter,
    counted,
    hold_out_part,
    split_parts,
    train_model,
    uncompiled,
)
from keras_transformers.tasks.text_classification import TextClassifierFitting
from keras_transformers.text import TextCorpus, read_texts
from keras_transformers.text.tokenizers import in_marks, marks_of
from keras_transformers.training import token_learning

FEW = 10  # fewer texts are cut into pieces, of which some are held out
LONGEST = 256  # positions of a row, in which texts stand one behind the other


class UnlabelledTextFitting(TextClassifierFitting):
    """The base of models that learn from texts alone, and classes from texts with labels."""

    def _rows(self, corpus: TextCorpus) -> tf.data.Dataset:
        """Returns all texts, with their marks, as one dataset element of ragged ids."""
        tokenizer = self.held.tokenizer
        ids = tokenizer.tokenize(tf.constant(corpus.texts, tf.string))
        return tf.data.Dataset.from_tensors(in_marks(ids, self._marks()))

    def _marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and behind a text."""
        return marks_of(self.held.tokenizer)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        """Returns batches of rows of tokens: the hook of a subclass."""
        raise NotImplementedError

    def _length(self) -> int:
        """Returns the length of a row of tokens."""
        return int(min(getattr(self.held.model, "most_positions", None) or LONGEST, LONGEST))

    def fit(  # type: ignore[override]
        self, data: Any, valid: Any, asked: Asked, **options: Any
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on texts, or as `TextClassifierFitting` if the texts have labels."""
        data, valid = split_parts(data, valid, asked.verbose)
        if options or names_column(data, LABELS, asked.columns):
            return super().fit(data, valid, asked, **options)
        train = read_texts(data, asked.columns)
        watched = None
        if valid is None:
            train = in_parts(train, self._length())
        else:
            watched = read_texts(valid, asked.columns)
        train, watched = hold_out_part(asked, train, watched, TextCorpus.split)
        rows = [self._rows(corpus) for corpus in (train, watched)]
        numbers = asked.numbers(len(train), "text")
        size = min(numbers.batch_size, 8)  # rows, each of which holds several texts
        held = attach_adapter(self.held, False)
        history = train_model(
            held.model,
            lambda epoch: self._batches(rows[0], size, asked.seed, epoch),
            self._batches(rows[1], size),
            numbers,
            asked,
            **token_learning(padding_of(held.model), model=held.model),
        )
        return type(self)(held), history

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns the perplexity per token, and the share of tokens that are predicted right."""
        corpus = read_texts(data, columns)
        model = self.held.model
        model.compile(**token_learning(padding_of(model), model=model), jit_compile=False)
        batches = counted(self._batches(self._rows(corpus), 8))
        try:
            scores = model.evaluate(batches, verbose=0, return_dict=True)
        finally:
            uncompiled(model)
        perplexity = math.exp(scores["cross_entropy"])
        return {"perplexity": perplexity, "accuracy": scores["accuracy"], "rows": len(corpus)}


def in_parts(corpus: TextCorpus, words: int) -> TextCorpus:
    """Cuts a corpus of fewer than ten texts into pieces, so that some can be held out.

    Args:
        corpus: Texts without labels.
        words: Number of words of a piece.

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
        found_words = re.findall(r"\s*\S+\s*", text)
        for start in range(0, len(found_words), words):
            pieces.append("".join(found_words[start : start + words]))
    return dataclasses.replace(corpus, texts=pieces)
