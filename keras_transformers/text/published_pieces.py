"""Tokenizers of published models: a SentencePiece model, and a vocabulary that numbers its pieces.

`PieceTokenizer` is the base. Marian has two languages, fairseq its own special ids, and SigLIP
reads texts without capitals and punctuation.
"""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Strings
from keras_transformers.text.cutting import (
    SPACES,
    AddedToken,
    AddedTokens,
    Numbers,
    cut_out,
    escaped,
    numbered,
    read_added,
    valid,
    write_added,
)
from keras_transformers.text.sentence_pieces import SentencePieces
from keras_transformers.text.tokenizers import (
    GivenIds,
    Languages,
    Marks,
    Multilingual,
    check_ops,
    given_ids,
    given_row,
    rows_of,
)

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


MARIAN_CODE = r"(?s)^(>>.*?<<).*$"  # ">>fra<<" before a text names the language to translate to


@keras.saving.register_keras_serializable("keras_transformers")
class MarianTokenizer(PieceTokenizer):
    """Strings to the ids of an OPUS-MT model and back, inside `tf.data` and SavedModels.

    SentencePiece cuts the text into pieces; a vocabulary of its own numbers them (Junczys-Dowmunt
    et al. 2018, https://arxiv.org/abs/1804.00344). A language code such as `>>fra<<` at the
    beginning is one piece. The ids are those of Hugging Face's `MarianTokenizer`.

    Args:
        proto: The bytes of the SentencePiece model.
        vocab: The pieces in the order of their ids, `</s>`, `<unk>` and `<pad>` among them.
        target_proto: Bytes of the model for the other language; by default `proto`.
        target_vocab: Its vocabulary; by default `vocab`.
        added_tokens: As for `PieceTokenizer`.

    Raises:
        ValueError: If a special piece is missing, or a piece is there twice.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> from keras_transformers.text import MarianTokenizer, SentencePieceTokenizer
    >>> trained = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> pieces = [piece for piece in trained.pieces(range(14)) if piece not in ("<pad>", "<s>")]
    >>> tokenizer = MarianTokenizer(trained.proto, [*pieces, "<pad>"])
    >>> ids = tokenizer.tokenize(["a cat", ""], end=True)
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['a cat', '']
    """

    def __init__(
        self,
        proto: bytes,
        vocab: Sequence[str],
        target_proto: bytes | None = None,
        target_vocab: Sequence[str] | None = None,
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        name: str | None = None,
    ) -> None:
        super().__init__(proto, vocab, added_tokens, name=name)
        self.target_proto, self.target_vocab = target_proto, target_vocab

    def for_targets(self) -> "MarianTokenizer":
        """The tokenizer of the other language: what a model is trained to write."""
        vocab = self._learnt if self.target_vocab is None else self.target_vocab
        proto = self.target_proto or self.proto
        return MarianTokenizer(proto, vocab, added_tokens=self.added_tokens)

    def _ids_of_text(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        """Ids of text without added tokens, in front of which a code can stand."""
        coded = tf.strings.regex_full_match(text, MARIAN_CODE)
        code = tf.strings.regex_replace(tf.boolean_mask(text, coded), MARIAN_CODE, r"\1")
        code = tf.RaggedTensor.from_row_lengths(code, tf.cast(coded, tf.int64))
        text = tf.strings.regex_replace(text, r"(?s)^>>.*?<<", "")
        return self._ids(tf.concat([code, self._model.pieces(text, sample)], axis=1))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["languages"]
        target, vocab = self.target_proto, self.target_vocab
        config["target_proto"] = None if target is None else base64.b64encode(target).decode()
        config["target_vocab"] = None if vocab is None else list(vocab)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        target = config["target_proto"]
        decoded = None if target is None else base64.b64decode(target)
        return super().from_config({**config, "target_proto": decoded})


FAIRSEQ_MARKS = ("<s>", "<pad>", "</s>", "<unk>")
FAIRSEQ_FIRST = ("<unk>", "<s>", "</s>")  # pieces 0, 1, 2 of the SentencePiece model
FAIRSEQ_MASK = "<mask>"


@keras.saving.register_keras_serializable("keras_transformers")
class FairseqTokenizer(PieceTokenizer):
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

    marks = FAIRSEQ_MARKS

    def __init__(
        self,
        proto: bytes,
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        name: str | None = None,
    ) -> None:
        model = SentencePieces("FairseqTokenizer", bytes(proto))
        learnt = tuple(model.names(range(model.size)))
        if learnt[:3] != FAIRSEQ_FIRST or {*FAIRSEQ_MARKS} & {*learnt[3:]}:
            raise ValueError(
                "FairseqTokenizer: the first pieces of the model must be "
                f"{', '.join(FAIRSEQ_FIRST)}, and no other one of "
                f"{', '.join(FAIRSEQ_MARKS)}. Received: {', '.join(learnt[:4])} ..."
            )
        super().__init__(proto, (*FAIRSEQ_MARKS, *learnt[3:]), added_tokens, name=name)
        numbers = {piece: number for number, piece in enumerate(self.vocab)}
        self.mask_id = numbers.get(FAIRSEQ_MASK)
        self.special_ids = tuple(sorted(numbers[piece] for piece in self._special))

    @property
    def start_id(self) -> int:
        """`<s>`, which stands in front of every text."""
        return 0

    @property
    def pair_marks(self) -> tuple[tuple[int, ...], ...]:
        """Ids before the first of a pair of texts, between the two, and after the second."""
        return (self.start_id,), (self.end_id, self.end_id), (self.end_id,)

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word; marks and added tokens do."""
        marks = {*FAIRSEQ_MARKS, *(token.content for token in self.added_tokens)}
        return np.array([piece.startswith(SPACE) or piece in marks for piece in self.vocab])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {name: config[name] for name in ("proto", "added_tokens")}


SIGLIP_BLANKS = rf"{SPACES}\x1C-\x1F"  # what Python calls white space
SIGLIP_PUNCTUATION = r"!-/:-@\[-`{-~"
SIGLIP_UNKNOWN = "<unk>"


@keras.saving.register_keras_serializable("keras_transformers")
class SiglipTokenizer(PieceTokenizer):
    """Strings to the ids of SigLIP and back, inside `tf.data` and SavedModels.

    Text is made lower-case, ASCII's punctuation left out and white space made one space, as while
    training (Zhai et al. 2023, https://arxiv.org/abs/2303.15343, in the code of big_vision); then
    SentencePiece cuts it. The ids are those of Hugging Face's `SiglipTokenizer`. There is no START,
    and what fills a text is END.

    Args:
        proto: The bytes of the SentencePiece model, `spiece.model`.
        vocab: The pieces in the order of their ids, `</s>`, `<unk>` and `<pad>` among them.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written.
        lower_case: Whether text is made lower-case.

    Raises:
        ValueError: If a special piece is missing, or a piece is there twice.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> from keras_transformers.text import SentencePieceTokenizer, SiglipTokenizer
    >>> trained = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> tokenizer = SiglipTokenizer(trained.proto, trained.pieces(range(14)))
    >>> tokenizer.pieces(tokenizer.tokenize("A cat!", end=True).numpy())
    ['▁', 'a', '▁', 'c', 'at', '</s>']
    """

    marks = ()

    def __init__(
        self,
        proto: bytes,
        vocab: Sequence[str],
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        lower_case: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(proto, vocab, added_tokens, name=name)
        self.lower_case = lower_case
        self.pad_id = self.end_id
        marks = "|".join(escaped(each) for each in sorted(self._special, key=len, reverse=True))
        # A space of its own that would stand before a mark.
        self._before_mark = (
            rf"^{SPACE}[{SIGLIP_BLANKS}{SIGLIP_PUNCTUATION}]*?({marks})" if marks else None
        )
        alone = self._model.pieces(tf.constant([SIGLIP_UNKNOWN]))
        self._pieces_of_unknown = int(alone.row_lengths()[0])

    @property
    def start_id(self) -> None:  # type: ignore[override]
        """None: no text has a START."""
        return None

    @property
    def text_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after a text."""
        return (), (self.end_id,)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """As `PieceTokenizer.tokenize`; there is no START, and no second END behind one."""
        if start:
            raise ValueError("SiglipTokenizer.tokenize: `start` must be False, for there is none.")
        strings = tf.convert_to_tensor(strings, tf.string)
        text = valid(tf.reshape(strings, [-1]))
        text = tf.strings.join([SPACE, tf.strings.regex_replace(text, SPACE, " ")])
        if self._before_mark is not None:
            text = tf.strings.regex_replace(text, self._before_mark, r"\1")
        ids = super().tokenize(text, sample=sample)
        if end:
            ids = tf.concat(
                [self._without_end(ids), tf.fill([ids.nrows(), 1], self.end_id)], axis=1
            )
        return ids if strings.shape.rank else ids[0]

    def _without_end(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Rows without END, where they end with one."""
        lasts = tf.gather(ids.row_limits(), ids.value_rowids()) - 1
        number = tf.range(tf.size(ids.values, lasts.dtype))
        ends = (number == lasts) & (ids.values == self.end_id)
        return tf.ragged.boolean_mask(ids, ids.with_values(~ends))

    def _ids_of_text(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        text = _lower(text) if self.lower_case else text
        text = tf.strings.regex_replace(text, f"[{SIGLIP_PUNCTUATION}]", "")
        text = tf.strings.regex_replace(text, f"[{SIGLIP_BLANKS}]+", " ")
        text = tf.strings.regex_replace(text, "^ | $", "")
        # Behind other pieces the first space is kept.
        pieces = self._model.pieces(tf.strings.join([SIGLIP_UNKNOWN, text]), sample)
        return self._ids(pieces[:, self._pieces_of_unknown :])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["languages"]
        return {**config, "lower_case": self.lower_case}


def _lower(text: tf.Tensor) -> tf.Tensor:
    """Text in lower case; by itself TensorFlow would end it at a zero."""
    parts = cut_out(text, r"\x00")
    flat = tf.where(parts.values == "\x00", parts.values, tf.strings.lower(parts.values, "utf-8"))
    return tf.strings.reduce_join(parts.with_values(flat), 1)
