"""SentencePiece in the TensorFlow graph, whose pieces a vocabulary beside it numbers."""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from keras_transformers.annotations import Strings
from keras_transformers.text.added_tokens import (
    AddedToken,
    AddedTokens,
    numbered,
    read_added,
    write_added,
)
from keras_transformers.text.cutting import Numbers, valid
from keras_transformers.text.frames import rows_of
from keras_transformers.text.given import GivenIds, given_ids, given_row
from keras_transformers.text.host import check_ops
from keras_transformers.text.languages import Languages, Multilingual
from keras_transformers.text.sentence_pieces import SentencePieces
from keras_transformers.text.templates import Marks

SPACE = "▁"
SPECIAL = ("</s>", "<unk>", "<pad>")


@keras.saving.register_keras_serializable("keras_transformers")
class PieceTokenizer(Multilingual, tf.Module):
    """Strings to the ids of a published translator and back, inside `tf.data` and SavedModels.

    SentencePiece cuts the text into pieces (Kudo & Richardson 2018,
    https://arxiv.org/abs/1808.06226); a vocabulary beside it numbers them. So it is in mBART,
    M2M-100, NLLB, PEGASUS and T5. The ids are those of Hugging Face's tokenizers of these names.

    Args:
        proto: The bytes of the SentencePiece model.
        vocab: The pieces in the order of their ids, `</s>`, `<unk>` and `<pad>` among them.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written, beside the special pieces. Those that `vocab` lacks get the ids behind it.
        languages: `text.Languages`, or a dict of its arguments, of a translator of many languages.

    Raises:
        ValueError: If a special piece or the token of a language is missing, or a piece is there
            twice.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> from keras_transformers.text import Languages, PieceTokenizer, SentencePieceTokenizer
    >>> trained = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> pieces = [*trained.pieces(range(14)), "en_XX", "ro_RO"]
    >>> codes = {code: code for code in ("en_XX", "ro_RO")}
    >>> tokenizer = PieceTokenizer(trained.proto, pieces, languages=Languages(codes, "en_XX"))
    >>> tokenizer.pieces(tokenizer.tokenize("a cat", end=True).numpy())
    ['en_XX', '▁', 'a', '▁', 'c', 'at', '</s>']
    >>> tokenizer.between("en_XX", "ro_RO").language_id
    15
    """

    marks: tuple[str, ...] = SPECIAL  # pieces that are no text

    def __init__(
        self,
        proto: bytes,
        vocab: Sequence[str],
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        languages: Languages | dict[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        owner = type(self).__name__
        self.proto, self._learnt = bytes(proto), tuple(vocab)
        self.added_tokens = read_added(owner, added_tokens)
        numbers = numbered({piece: i for i, piece in enumerate(vocab)}, self.added_tokens)
        self.vocab = (*self._learnt, *list(numbers)[len(set(vocab)) :])
        self.vocab_size = len(self.vocab)
        self.languages = Languages(**languages) if isinstance(languages, dict) else languages
        tokens = self.languages.tokens if self.languages else {}
        missing = [piece for piece in (*SPECIAL, *tokens.values()) if piece not in numbers]
        if missing or len(set(self.vocab)) < len(self.vocab):
            raise ValueError(
                f"{owner}: `vocab` must have </s>, <unk> and <pad>, the token of every language, "
                f"and no piece twice. Missing: {missing[:5]}"
            )
        self.end_id, self.unknown_id, self.pad_id = (numbers[piece] for piece in SPECIAL)
        self.language_ids = {code: numbers[token] for code, token in tokens.items()}
        given = {token.content for token in self.added_tokens}
        marks = [each for each in (*self.marks, *tokens.values()) if each not in given]
        marks = [AddedToken(each, special=True) for each in marks]
        self.added_ids = tuple(numbers[token.content] for token in self.added_tokens)
        self._added = AddedTokens((*marks, *self.added_tokens), numbers)
        self._special = {token.content for token in (*marks, *self.added_tokens) if token.special}
        self._model = SentencePieces(owner, self.proto)
        self._number = Numbers({piece: i for i, piece in enumerate(self._learnt)})

    def with_languages(self, languages: Languages) -> "PieceTokenizer":
        """The same tokenizer with other languages."""
        return PieceTokenizer(self.proto, self._learnt, self.added_tokens, languages)

    @property
    def start_id(self) -> int:
        """What decoding starts with, unless a search's `Boundaries` say otherwise.

        `<pad>`; with languages `</s>`, or the token of the target's where that stands behind END.
        """
        return self.pad_id if self.languages is None else self._language_start()

    @property
    def source_marks(self) -> tuple[Marks, Marks]:
        """Ids that stand before and behind a text that is translated."""
        return ((), (self.end_id,)) if self.languages is None else self._language_marks()

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; a special piece or added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start: Whether to put START, with which decoding starts, in front of all.
            end: Whether to put END behind, and the token of the language where it stands.
            sample: As for `SentencePieceTokenizer.tokenize`.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        text = valid(tf.reshape(strings, [-1]))
        ids = self._added.ids(text, lambda text, first: self._ids_of_text(text, sample))
        ids = ids if strings.shape.rank else ids[0]
        before, after = self.source_marks if end else ((), ())
        before = (self.start_id, *before) if start else before
        parts = [self._rows_of(before, ids), ids, self._rows_of(after, ids)]
        return tf.concat([part for part in parts if part is not None], axis=-1)

    @staticmethod
    def _rows_of(marks: tuple[int, ...], ids: tf.RaggedTensor | tf.Tensor) -> tf.Tensor | None:
        """The marks as they stand before or behind every row of `ids`."""
        if not marks:
            return None
        if isinstance(ids, tf.RaggedTensor):
            return rows_of(marks, ids.nrows())
        return tf.constant(marks, tf.int32)

    def _ids_of_text(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        """Ids of text without added tokens."""
        return self._ids(self._model.pieces(text, sample))

    def _ids(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ids of ragged pieces; what is in no vocabulary is unknown."""
        return pieces.with_flat_values(self._number(pieces.flat_values, self.unknown_id))

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; special pieces vanish, as does all from the first `</s>` on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids(f"{type(self).__name__}.detokenize", ids, self.vocab_size, self.pad_id)
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=-1) > 0
        as_text = ["" if piece in self._special else piece for piece in self.vocab]
        pieces = tf.where(ended, "", tf.gather(tf.constant(as_text), ids))
        text = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.strip(tf.strings.regex_replace(text, SPACE, " "))

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row(f"{type(self).__name__}.pieces", ids, self.vocab_size)
        return [self.vocab[index] for index in ids]

    def check_exportable(self) -> None:
        """ImportError where it cannot become part of a SavedModel."""
        check_ops(type(self).__name__)

    def get_config(self) -> dict[str, Any]:
        languages = None if self.languages is None else dataclasses.asdict(self.languages)
        return {
            "proto": base64.b64encode(self.proto).decode(),
            "vocab": list(self._learnt),
            "added_tokens": write_added(self.added_tokens),
            "languages": languages,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "proto": base64.b64decode(config["proto"])})
