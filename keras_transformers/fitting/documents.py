"""Language models and fillers of masks learn from texts without labels."""

import dataclasses
import math
import re
from typing import Any

import tensorflow as tf

from keras_transformers import export
from keras_transformers.data.columns import LABELS, Chosen
from keras_transformers.data.tables import names_column
from keras_transformers.fitting.base import Asked, Fitted, in_two, learned, parts_of, with_adapter
from keras_transformers.fitting.loop import counted, uncompiled
from keras_transformers.fitting.text_classes import TextClassifierFitting
from keras_transformers.generation.request import padding_of
from keras_transformers.text import TextCorpus, masked, packed_documents, read_texts
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
        data, valid = parts_of(data, valid, asked.verbose)
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


class LanguageModelFitting(_OfTexts):
    """A language model, which goes on with texts.

    Example:
    >>> from keras_transformers.fitting import LanguageModelFitting
    >>> LanguageModelFitting.kind
    'text_generator'
    """

    kind = "text_generator"

    def served(self) -> Any:
        return export.TextGenerator(self.held.model, self.held.tokenizer, **self.held.options)

    def _marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokenizer = self.held.tokenizer
        start = () if tokenizer.start_id is None else (tokenizer.start_id,)
        return start, (tokenizer.end_id,)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        padding = padding_of(self.held.model)
        return packed_documents(rows, self._length(), size, seed, padding_id=padding, epoch=epoch)


class MaskFillerFitting(_OfTexts):
    """An encoder that fills masks.

    Example:
    >>> from keras_transformers.fitting import MaskFillerFitting
    >>> MaskFillerFitting.kind
    'mask_filler'
    """

    kind = "mask_filler"

    def served(self) -> Any:
        return export.MaskFiller(self.held.model, self.held.tokenizer, **self.held.options)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        return masked_documents(rows, self.held.tokenizer, self._length(), size, seed, epoch)


def masked_documents(
    documents: tf.data.Dataset,
    tokenizer: Any,
    length: int,
    rows: int,
    seed: int | None = None,
    epoch: Any = None,
    rate: float = 0.15,
    whole_words: bool = False,
) -> tf.data.Dataset:
    """Batches of documents in rows, in which tokens are hidden.

    Args:
        documents: Ragged ids, see `text.packed_documents`.
        tokenizer: Theirs, with `mask_id` and `special_ids`.
        length, rows: Of a batch.
        seed: Of order and of what is hidden, anew in each epoch; None: the same each time.
        epoch: Its number.
        rate, whole_words: See `text.masked`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.fitting.documents import masked_documents
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> words = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"])
    >>> documents = tf.data.Dataset.from_tensors(tf.ragged.constant([[2, 5, 5, 3], [2, 5, 3]]))
    >>> inputs, labels = next(iter(masked_documents(documents, words, length=8, rows=1)))
    >>> tuple(inputs["ids"].shape)
    (1, 8)
    """
    packed = packed_documents(documents, length, rows, seed, shift=False, epoch=epoch)
    return masked(
        packed,
        tokenizer.mask_id,
        tokenizer.vocab_size,
        tokenizer.special_ids,
        rate,
        tokenizer.starts_word if whole_words else None,
        seed or 0,
        dynamic=seed is not None,
        epoch=epoch,
    )


def in_parts(corpus: TextCorpus, words: int) -> TextCorpus:
    """A corpus of fewer than ten texts cut into pieces, of which some can be held out.

    Args:
        corpus: Texts without labels.
        words: Of a piece.

    Example:
    >>> from keras_transformers.fitting.documents import in_parts
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
