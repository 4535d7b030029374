"""SentencePiece: trained by `sentencepiece`, run by tensorflow-text in the graph, or by itself."""

import base64
import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array, Strings, StrPath
from keras_transformers.text.context import Context
from keras_transformers.text.frames import in_marks
from keras_transformers.text.given import GivenIds, given_ids, given_row, given_texts
from keras_transformers.text.host import check_ops, package
from keras_transformers.text.sentence_pieces import SentencePieces
from keras_transformers.text.sentencepiece_training import (
    END_ID,
    LOSSLESS,
    MOST_MARKS,
    NORMALIZATIONS,
    PAD_ID,
    START_ID,
    TAG,
    UNKNOWN_ID,
    check_choices,
    control_symbols,
    escapes,
    marks_of_languages,
    trained,
    without_paths,
)
from keras_transformers.text.templates import Marks

Normalization: TypeAlias = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "none"]


@keras.saving.register_keras_serializable("keras_transformers")
class SentencePieceTokenizer(tf.Module):
    """Strings to subword ids and back, inside `tf.data` and SavedModels.

    Ids: 0 padding, 1 START, 2 END, 3 unknown, then the pieces. Make one with `train` or `load`
    (SentencePiece: Kudo & Richardson 2018, https://arxiv.org/abs/1808.06226).

    A vocabulary can have marks of languages, `<2de>`, for a translator into several: the mark of
    the language that is asked for stands before a source (Johnson et al. 2017,
    https://arxiv.org/abs/1611.04558). Text never becomes one, and `detokenize` leaves them out.

    Args:
        proto: The bytes of a SentencePiece model with the ids above.
        target: Code of the language whose mark stands before a source, of those that the model has
            marks of; None where each text is asked for in one of its own, or there are none.

    Attributes:
        language_marks: Dict of the code of each language -> id of its mark.
        context: `Context`, if there is a mark of previous sentences as `<context2>`; or None.
        tags: Dict of each other mark, as "<bt>" -> its id.

    Raises:
        ValueError: If the model numbers its special tokens otherwise, or has no mark of `target`.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> lines = ["the cat sat on the mat", "the dog sat on the log"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=20)
    >>> ids = tokenizer.tokenize(["the cat", ""], end=True)
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['the cat', '']
    """

    pad_id, start_id, end_id, unknown_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID

    def __init__(self, proto: bytes, target: str | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        self.proto = bytes(proto)
        self._model = SentencePieces("SentencePieceTokenizer", self.proto)
        self.vocab_size = self._model.size
        piece_ids = self._model.numbers(["<pad>", "<s>", "</s>", "<unk>"])
        if piece_ids != [PAD_ID, START_ID, END_ID, UNKNOWN_ID]:
            raise ValueError(
                "SentencePieceTokenizer: the model must number <pad>, <s>, </s>, <unk> as 0, 1, 2, "
                f"3. Received: {piece_ids}. Train one with SentencePieceTokenizer.train."
            )
        first = UNKNOWN_ID + 1
        pieces = self._model.names(range(first, min(self.vocab_size, MOST_MARKS)))
        self.language_marks = marks_of_languages(pieces, first)
        self.tags = self._model.controls(TAG, pieces, first)
        self.context = Context.of_tags(self.tags)
        if target is not None and target not in self.language_marks:
            known = ", ".join(self.language_marks) or "none, the vocabulary has no marks"
            raise ValueError(
                f"SentencePieceTokenizer: `target` must be one of {known}. Received: {target!r}"
            )
        self.target = target

    @classmethod
    def train(
        cls,
        strings: Iterable[Any],
        vocab_size: int = 4000,
        model_type: Literal["unigram", "bpe"] = "unigram",
        character_coverage: float = 1.0,
        byte_fallback: bool = False,
        lossless: bool = False,
        normalization: Normalization = "nmt_nfkc",
        languages: Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> Self:
        """Learns a vocabulary.

        Args:
            strings: Iterable of str, one sentence each; for translation, both sides. Bytes or
                tensors, as a dataset has them, are read as UTF-8.
            vocab_size: Number of ids, special ones included.
            model_type: "unigram" (Kudo 2018, https://arxiv.org/abs/1804.10959) or "bpe".
            character_coverage: Share of characters that must be in the vocabulary; 0.9995 for
                languages with thousands of characters.
            byte_fallback: Whether characters outside the vocabulary become their UTF-8 bytes, for
                which 256 ids are set aside, instead of the one unknown id.
            lossless: Whether text is kept to the byte: no character is normalised, no space left
                out or added, each newline is an id of its own, and `byte_fallback` is on. Then
                `detokenize(tokenize(text)) == text` for any valid UTF-8 and nothing is unknown, so
                that a language model's bits per byte count every byte. Pieces are learnt from the
                lines of `strings`, which may be whole documents.
            normalization: What is done to characters before: "nmt_nfkc", SentencePiece's own
                ("…" becomes "...", full-width punctuation that of ASCII, and joiners of zero width
                are dropped), "nfkc", either with "_cf" behind it, which folds the case of letters
                too, or "none". Of no effect on a lossless one.
            languages: Codes of languages, each of which gets a mark: "de" gets `<2de>`.
            tags: Other marks, as "<bt>", that no text becomes either; see the attribute `tags`.

        Returns:
            A `SentencePieceTokenizer`; the same text and arguments always give the same one.

        Raises:
            ValueError: If `strings` are no texts, there is no text, or too little of it for
                `vocab_size`; or a language or tag is there twice, or none.
        """
        check_choices(model_type, normalization)
        strings = given_texts("SentencePieceTokenizer.train", strings)
        if lossless:
            strings = (line for text in strings for line in text.split("\n"))
        strings = [line for line in strings if line.strip()]
        if not strings:
            raise ValueError("SentencePieceTokenizer.train: `strings` has no text in it.")

        def options(folder: str) -> dict[str, Any]:
            if lossless:
                return LOSSLESS | escapes(folder)
            rule = NORMALIZATIONS[normalization]
            return {"byte_fallback": byte_fallback, "normalization_rule_name": rule}

        settings: dict[str, Any] = {"control_symbols": control_symbols(languages, tags)}
        settings |= {"model_type": model_type, "character_coverage": character_coverage}
        proto = trained(strings, vocab_size, settings, options)
        return cls(without_paths(proto) if lossless else proto)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Reads a `.model` file of SentencePiece.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it holds no SentencePiece model, or one that numbers its special tokens
                otherwise.
        """
        return cls(cls.read(path))

    @staticmethod
    def read(path: StrPath) -> bytes:
        """The bytes of a model of SentencePiece, whatever its numbers, after checking them.

        Raises:
            FileNotFoundError, ValueError: As `load`.
        """
        sentencepiece = package("SentencePieceTokenizer", "sentencepiece")
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"SentencePieceTokenizer.load: there is no file {path}")
        proto = path.read_bytes()
        try:
            if not proto:
                raise RuntimeError("empty")
            sentencepiece.SentencePieceProcessor(model_proto=proto)
        except RuntimeError:
            raise ValueError(
                f"SentencePieceTokenizer.load: {path} is not a SentencePiece model; give a file "
                "that `save` wrote."
            ) from None
        return proto

    def save(self, path: StrPath) -> None:
        """Writes a `.model` file of SentencePiece."""
        pathlib.Path(path).write_bytes(self.proto)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start: Whether to put START before.
            end: Whether to put END after, and the mark of the language `target` before.
            sample: Strength of subword regularisation, or None for the best split: for unigram
                models the inverse temperature alpha of a split sampled from all (0.1 is varied,
                1 close to the best; Kudo 2018, section 3.3), for bpe the dropout of merges. Drawn
                anew at each call, in `tf.data` for each element, and by no seed: `SubwordSampler`
                has one.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        cut, flat = functools.partial(self._model.ids, sample=sample), tf.reshape(strings, [-1])
        ids = cut(flat) if self.context is None else self.context.ids(cut, flat)
        before, after = self.source_marks if end else ((), ())
        ids = in_marks(ids, ((START_ID, *before) if start else before, after))
        return ids if strings.shape.rank else ids[0]

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; START, padding and marks vanish, as does all from END on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("SentencePieceTokenizer.detokenize", ids, self.vocab_size, PAD_ID)
        shape = tf.shape(ids)
        dense = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        ended = tf.cumsum(tf.cast(dense == END_ID, tf.int32), axis=1) > 0
        marks = [PAD_ID, START_ID, *self.language_marks.values()]
        real = ~ended & tf.gather(~np.isin(np.arange(self.vocab_size), marks), dense)
        strings = self._model.texts(tf.ragged.boolean_mask(dense, real))
        return tf.ensure_shape(tf.reshape(strings, shape[:-1]), ids.shape[:-1])

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("SentencePieceTokenizer.pieces", ids, self.vocab_size)
        return self._model.names(ids)

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word.

        A piece with a space in front does, the marks 0 to 3 and a newline do; the rest go on with a
        word, punctuation and bytes among them.
        """
        pieces = self.pieces(range(self.vocab_size))
        starts = [piece.startswith("▁") or piece == "\n" for piece in pieces]
        return np.array(starts) | (np.arange(self.vocab_size) <= UNKNOWN_ID)

    @property
    def source_marks(self) -> tuple[Marks, Marks]:
        """Ids that stand before and behind a text that is translated."""
        return (() if self.target is None else (self.language_marks[self.target],)), (END_ID,)

    def towards(self, target: str | None) -> Self:
        """The same tokenizer for sources that are translated into a language, or into no one.

        Raises:
            ValueError: If the vocabulary has no mark of it.

        Example:
        >>> from keras_transformers.text import SentencePieceTokenizer
        >>> lines = ["the cat sat on the mat"] * 20
        >>> tokenizer = SentencePieceTokenizer.train(lines, 17, languages=("de", "es"))
        >>> ids = tokenizer.towards("es").tokenize("the cat", end=True)
        >>> tokenizer.pieces(ids)[0], tokenizer.detokenize(ids).numpy()
        ('<2es>', b'the cat')
        """
        return type(self)(self.proto, target)

    def for_targets(self) -> Self:
        """The tokenizer of what a model is trained to write: without a mark."""
        return self if self.target is None else self.towards(None)

    def check_exportable(self) -> None:
        """ImportError where it cannot become part of a SavedModel."""
        check_ops("SentencePieceTokenizer")

    def get_config(self) -> dict[str, Any]:
        return {"proto": base64.b64encode(self.proto).decode(), "target": self.target}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(base64.b64decode(config["proto"]), config.get("target"))
