"""SentencePiece with the ids of fairseq's dictionaries, in the TensorFlow graph."""

import base64
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array, Strings
from keras_transformers.text.added_tokens import (
    AddedToken,
    AddedTokens,
    numbered,
    read_added,
    write_added,
)
from keras_transformers.text.given import GivenIds, given_ids, given_row

SPACE = "▁"
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
FIRST = ("<unk>", "<s>", "</s>")  # pieces 0, 1, 2 of the SentencePiece model
MASK = "<mask>"


@keras.saving.register_keras_serializable("keras_transformers")
class FairseqTokenizer(tf.Module):
    """Strings to the ids of XLM-R and back, inside `tf.data` and SavedModels.

    Ids: 0 `<s>`, 1 `<pad>`, 2 `</s>`, 3 `<unk>`, then the pieces of a SentencePiece model but for
    its first three, each one more than the model itself says, then the added tokens, of which the
    first is `<mask>` (Conneau et al. 2020, https://arxiv.org/abs/1911.02116, and fairseq, with
    which it was trained). The ids are those of Hugging Face's `XLMRobertaTokenizer`.

    Args:
        proto: The bytes of the SentencePiece model, `sentencepiece.bpe.model`.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written, beside the marks. They get the ids behind the pieces.

    Raises:
        ValueError: If the first three pieces are others than `<unk>`, `<s>` and `</s>`, or another
            piece is one of the marks.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> import io, sentencepiece
    >>> from keras_transformers.text import AddedToken, FairseqTokenizer
    >>> file, lines = io.BytesIO(), ["a cat sat on a mat"] * 9
    >>> sentencepiece.SentencePieceTrainer.train(
    ...     sentence_iterator=iter(lines), model_writer=file, vocab_size=13, minloglevel=2)
    >>> mask = AddedToken("<mask>", special=True)
    >>> tokenizer = FairseqTokenizer(file.getvalue(), [mask])
    >>> ids = tokenizer.tokenize(["a cat", "<mask>"], start=True, end=True)
    >>> ids[1].numpy().tolist(), [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ([0, 14, 2], ['a cat', ''])
    """

    start_id, pad_id, end_id, unknown_id = range(4)

    def __init__(
        self,
        proto: bytes,
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.proto = bytes(proto)
        self.added_tokens = read_added("FairseqTokenizer", added_tokens)
        op = self._op(None, tf.string)
        pieces = op.id_to_string(tf.range(op.vocab_size())).numpy()
        learnt = tuple(piece.decode() for piece in pieces)
        if learnt[:3] != FIRST or {*MARKS} & {*learnt[3:]}:
            raise ValueError(
                f"FairseqTokenizer: the first pieces of the model must be {', '.join(FIRST)}, and "
                f"no other one of {', '.join(MARKS)}. Received: {', '.join(learnt[:4])} ..."
            )
        numbers = {piece: number for number, piece in enumerate((*MARKS, *learnt[3:]))}
        numbers = numbered(numbers, self.added_tokens)
        self.vocab = tuple(numbers)
        self.vocab_size = len(numbers)
        self.mask_id = numbers.get(MASK)
        given = {token.content for token in self.added_tokens}
        marks = [AddedToken(each, special=True) for each in MARKS if each not in given]
        found = (*marks, *self.added_tokens)
        self.special_ids = tuple(numbers[token.content] for token in found if token.special)
        self.added_ids = tuple(numbers[token.content] for token in self.added_tokens)
        self._added = AddedTokens(found, numbers)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; a mark or an added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put `<s>` before and `</s>` after.
            sample: As for `SentencePieceTokenizer.tokenize`.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        text = tf.reshape(strings, [-1])
        ids = self._added.ids(text, lambda text: self._ids(text, sample))
        ids = ids if strings.shape.rank else ids[0]
        shape = [ids.nrows(), 1] if isinstance(ids, tf.RaggedTensor) else [1]
        before = [tf.fill(shape, self.start_id)] if start else []
        return tf.concat([*before, ids, *([tf.fill(shape, self.end_id)] if end else [])], axis=-1)

    def _ids(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        """Ids of text without added tokens."""
        pieces = self._op(sample, tf.int32).tokenize(text)
        ids = pieces.flat_values
        return pieces.with_flat_values(tf.where(ids == 0, self.unknown_id, ids + 1))

    def _op(self, sample: float | None, out_type: tf.DType) -> Any:
        """The tensorflow-text op, made anew wherever it is used; see `SentencePieceTokenizer`."""
        sampling = {} if sample is None else {"nbest_size": -1, "alpha": float(sample)}
        import tensorflow_text as tf_text  # only who tokenizes needs it

        return tf_text.SentencepieceTokenizer(self.proto, out_type=out_type, **sampling)

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; marks vanish, as does all from the first `</s>` on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("FairseqTokenizer.detokenize", ids, self.vocab_size, self.pad_id)
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=-1) > 0
        special = {*self.special_ids}
        as_text = ["" if i in special else piece for i, piece in enumerate(self.vocab)]
        pieces = tf.where(ended, "", tf.gather(tf.constant(as_text), ids))
        text = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.strip(tf.strings.regex_replace(text, SPACE, " "))

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("FairseqTokenizer.pieces", ids, self.vocab_size)
        return [self.vocab[index] for index in ids]

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word; marks and added tokens do."""
        marks = {*MARKS, *(token.content for token in self.added_tokens)}
        return np.array([piece.startswith(SPACE) or piece in marks for piece in self.vocab])

    def get_config(self) -> dict[str, Any]:
        proto = base64.b64encode(self.proto).decode()
        return {"proto": proto, "added_tokens": write_added(self.added_tokens)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "proto": base64.b64decode(config["proto"])})
