"""Mask filling: the tokens that are masked in a raw text."""

import pathlib
from collections.abc import Sequence
from typing import Any, Unpack

import keras
import tensorflow as tf

from keras_transformers.core.types import StrPath
from keras_transformers.generation.request import padding_of
from keras_transformers.models import MaskedLanguageHead
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.predictor_folder import Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import (
    LENGTHS,
    Saving,
    Served,
    joined_past_ends,
    lengths_for,
    strings,
)
from keras_transformers.tasks.text_classification import UnlabelledTextFitting
from keras_transformers.tasks.text_predictor import TextPredictor, text_of
from keras_transformers.text import masked, packed_documents
from keras_transformers.text.wordpiece import WordPieceTokenizer

CANDIDATES = 5


class MaskFiller(Served):
    """A masked language model and its tokenizer as one function from text to text.

    Every `[MASK]` of a text becomes the token that the model finds most probable there,
    independently of the other masks. The function takes UTF-8 strings `(batch,)`, with any number
    of `[MASK]` in each, and gives a dict of `text` string `(batch,)`, as the tokenizer writes it;
    `candidates` string `(batch, 5)` for the first `[MASK]`, best first, and their `probabilities`
    float32 `(batch, 5)`, "" and 0 if there is no mask; and `truncated` bool `(batch,)`. For XLA
    lengths and batch sizes are few, as in `TextClassifier`; weights are shared.

    Args:
        model: A `models.TextEncoder` with `head="masked_language"`, or any model from ids `(batch,
            length)`, 0 = padding, to logits `(batch, length, vocab_size)`.
        tokenizer: A `text.WordPieceTokenizer`.
        lengths: Lengths in ids, [CLS] and [SEP] included, to which texts are padded; a longer text
            is cut, and `truncated` tells so. By default those of 32, 64, 128, 256 and 512 for which
            the model has positions.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, or the
            tokenizer has ids that the model does not know.

    Example:
    >>> from keras_transformers.export import MaskFiller
    >>> from keras_transformers.models import TextEncoder
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = WordPieceTokenizer([*special, "a", "cat", "sat"])
    >>> model = TextEncoder.from_variant("tiny", 8, head="masked_language")
    >>> filler = MaskFiller(model, tokenizer, lengths=(8,))
    >>> [len(text.split()) for text in filler.fill(["a [MASK] sat", "a cat"])]
    [3, 2]
    """

    kind = "mask_filler"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        lengths: Sequence[int] | None = None,
    ) -> None:
        super().__init__("mask_filler", model, tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("MaskFiller", model, tokenizer, lengths, LENGTHS)
        model(tf.ones((1, 2), tf.int32), training=False)
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.lengths = lengths
        self._candidates = min(CANDIDATES, tokenizer.vocab_size)
        special = tf.one_hot(tokenizer.special_ids, tokenizer.vocab_size, 1e9)
        self._never = tf.reduce_max(special, axis=0)

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        ids, truncated = self.frame_texts(text)
        fill = rounds.program(self._fill)
        number = self._candidates

        def compute(ids: tf.Tensor) -> dict[str, tf.Tensor]:
            dense = rounds.padded(ids, self.lengths, self.padding)
            filled, probabilities, best, any_masked = fill(dense)
            words = self.tokenizer.detokenize(tf.reshape(best, [-1, 1]))
            words = tf.reshape(words, [-1, number])
            return {
                "text": joined_past_ends(self.tokenizer, filled, self.padding),
                "candidates": tf.where(any_masked[:, None], words, ""),
                "probabilities": tf.where(any_masked[:, None], probabilities, 0.0),
            }

        results = {
            "text": tf.TensorSpec([None], tf.string),
            "candidates": tf.TensorSpec([None, number], tf.string),
            "probabilities": tf.TensorSpec([None, number], tf.float32),
        }
        outputs = rounds.run_by_length(compute, ids, results)
        return {**outputs, "truncated": truncated}

    def _fill(self, ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns filled rows; the best tokens of the first mask; and which rows have a mask."""
        logits = tf.cast(self.model(ids, training=False), tf.float32) - self._never
        is_mask = ids == self.tokenizer.mask_id
        filled = tf.where(is_mask, tf.argmax(logits, axis=-1, output_type=tf.int32), ids)
        first = tf.argmax(tf.cast(is_mask, tf.int32), axis=1)
        probabilities = tf.nn.softmax(tf.gather(logits, first, batch_dims=1))
        values, tokens = tf.math.top_k(probabilities, self._candidates)
        return filled, values, tokens, tf.reduce_any(is_mask, axis=1)

    def fill(self, texts: Sequence[str]) -> list[str]:
        """Fills the masks of a list of str."""
        return [text.decode() for text in self(strings(texts))["text"].numpy()]


def mask_filler(
    model: keras.Model,
    tokenizer: WordPieceTokenizer,
    path: StrPath,
    lengths: Sequence[int] | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a filler of `[MASK]`. See `MaskFiller` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = text.WordPieceTokenizer([*special, "a", "cat", "sat"])
    >>> model = models.TextEncoder.from_variant("tiny", 8, head="masked_language")
    >>> path = export.mask_filler(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a [MASK] sat"])))
    ['candidates', 'probabilities', 'text', 'truncated']
    """
    return MaskFiller(model, tokenizer, lengths).save(path, **saving)


class MaskFillerPredictor(TextPredictor):
    """Fills in `[MASK]`: a dict of `text`, `candidates` and `truncated` for each text.

    `candidates` are dicts of `token` and `probability` for the first `[MASK]`, best first.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import MaskFillerPredictor
    >>> def fill(text):
    ...     return {"text": tf.constant(["to be"]), "candidates": tf.constant([["be", "do"]]),
    ...             "probabilities": tf.constant([[0.75, 0.25]]), "truncated": tf.constant([False])}
    >>> MaskFillerPredictor(fill).predict("to [MASK]")["candidates"][0]
    {'token': 'be', 'probability': 0.75}
    """

    kind = "mask_filler"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        candidates = []
        for token, probability in zip(row["candidates"], row["probabilities"], strict=True):
            if probability > 0:  # it is 0 in a text without a mask
                candidates.append({"token": text_of(token), "probability": float(probability)})
        return {
            "text": text_of(row["text"]),
            "candidates": candidates,
            "truncated": bool(row["truncated"]),
        }


class MaskFillerFitting(UnlabelledTextFitting):
    """An encoder that fills masks.

    Example:
    >>> from keras_transformers.fitting import MaskFillerFitting
    >>> MaskFillerFitting.kind
    'mask_filler'
    """

    kind = "mask_filler"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        if not isinstance(getattr(published.model, "head", None), MaskedLanguageHead):
            return None
        return cls(published.read_text_model())

    def served(self) -> Any:
        return MaskFiller(self.held.model, self.held.tokenizer, **self.held.options)

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
    """Packs documents into batches of rows, and hides tokens.

    Args:
        documents: Ragged ids, see `text.packed_documents`.
        tokenizer: The tokenizer of the documents, with `mask_id` and `special_ids`.
        length, rows: Length and number of the rows of a batch.
        seed: Seed of the order and of the hidden tokens, which change with each epoch; with None,
            both stay the same.
        epoch: Number of the epoch.
        rate, whole_words: See `text.masked`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.tasks.mask_filling import masked_documents
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


TASKS = (Task(MaskFiller, MaskFillerPredictor, MaskFillerFitting, output="candidates"),)
