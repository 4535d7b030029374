"""Marian's tokenizers in the TensorFlow graph: SentencePiece with a vocabulary beside it."""

import base64
from collections.abc import Sequence
from typing import Any, Self

import keras
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
SPECIAL = ("</s>", "<unk>", "<pad>")
CODE = r"(?s)^(>>.*?<<).*$"  # ">>fra<<" before a text names the language to translate to


@keras.saving.register_keras_serializable("keras_transformers")
class MarianTokenizer(tf.Module):
    """Strings to the ids of an OPUS-MT model and back, inside `tf.data` and SavedModels.

    SentencePiece cuts the text into pieces; a vocabulary of its own numbers them (Junczys-Dowmunt
    et al. 2018, https://arxiv.org/abs/1804.00344). A language code such as `>>fra<<` at the
    beginning is one piece. The ids are those of Hugging Face's `MarianTokenizer`.

    Args:
        proto: The bytes of the SentencePiece model.
        vocab: The pieces in the order of their ids, `</s>`, `<unk>` and `<pad>` among them.
        target_proto: Bytes of the model for the other language; by default `proto`.
        target_vocab: Its vocabulary; by default `vocab`.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written, beside the special pieces. Those that `vocab` lacks get the ids behind it.

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
        super().__init__(name=name)
        self.proto, self._learnt = bytes(proto), tuple(vocab)
        self.added_tokens = read_added("MarianTokenizer", added_tokens)
        numbers = numbered({piece: i for i, piece in enumerate(vocab)}, self.added_tokens)
        self.vocab = (*self._learnt, *list(numbers)[len(set(vocab)) :])
        self.target_proto, self.target_vocab = target_proto, target_vocab
        self.vocab_size = len(self.vocab)
        missing = [piece for piece in SPECIAL if piece not in self.vocab]
        if missing or len(set(self.vocab)) < len(self.vocab):
            raise ValueError(
                "MarianTokenizer: `vocab` must have </s>, <unk> and <pad>, and no piece twice. "
                f"Missing: {missing}"
            )
        self.end_id, self.unknown_id, self.pad_id = map(self.vocab.index, SPECIAL)
        given = {token.content for token in self.added_tokens}
        special = [AddedToken(each, special=True) for each in SPECIAL if each not in given]
        self.added_ids = tuple(numbers[token.content] for token in self.added_tokens)
        self._added = AddedTokens((*special, *self.added_tokens), numbers)
        self.start_id = self.pad_id
        self._hashes, self._order = _by_hash(self._learnt)

    def for_targets(self) -> "MarianTokenizer":
        """The tokenizer of the other language: what a model is trained to write."""
        vocab = self._learnt if self.target_vocab is None else self.target_vocab
        proto = self.target_proto or self.proto
        return MarianTokenizer(proto, vocab, added_tokens=self.added_tokens)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; a special piece or added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put `<pad>`, with which decoding starts, before and `</s>` after.
            sample: As for `SentencePieceTokenizer.tokenize`.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        text = tf.reshape(strings, [-1])
        ids = self._added.ids(text, lambda text: self._ids_of_text(text, sample))
        ids = ids if strings.shape.rank else ids[0]
        shape = [ids.nrows(), 1] if isinstance(ids, tf.RaggedTensor) else [1]
        before = [tf.fill(shape, self.start_id)] if start else []
        return tf.concat([*before, ids, *([tf.fill(shape, self.end_id)] if end else [])], axis=-1)

    def _ids_of_text(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        """Ids of text without added tokens, in front of which a code can stand."""
        coded = tf.strings.regex_full_match(text, CODE)
        code = tf.strings.regex_replace(tf.boolean_mask(text, coded), CODE, r"\1")
        code = tf.RaggedTensor.from_row_lengths(code, tf.cast(coded, tf.int64))
        text = tf.strings.regex_replace(text, r"(?s)^>>.*?<<", "")
        return self._ids(tf.concat([code, self._op(sample).tokenize(text)], axis=1))

    def _op(self, sample: float | None) -> Any:
        """The tensorflow-text op, made anew wherever it is used; see `SentencePieceTokenizer`."""
        sampling = {} if sample is None else {"nbest_size": -1, "alpha": float(sample)}
        import tensorflow_text as tf_text  # only who tokenizes needs it

        return tf_text.SentencepieceTokenizer(self.proto, out_type=tf.string, **sampling)

    def _ids(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ids of ragged pieces; what is in no vocabulary is unknown."""
        hashes = _hashed(pieces.flat_values)
        positions = tf.minimum(tf.searchsorted(self._hashes, hashes), len(self._order) - 1)
        known = tf.gather(tf.constant(self._hashes), positions) == hashes
        ids = tf.where(known, tf.gather(tf.constant(self._order), positions), self.unknown_id)
        return pieces.with_flat_values(ids)

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
        ids = given_ids("MarianTokenizer.detokenize", ids, self.vocab_size, self.pad_id)
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=-1) > 0
        special = {*SPECIAL, *(token.content for token in self.added_tokens if token.special)}
        as_text = ["" if piece in special else piece for piece in self.vocab]
        pieces = tf.where(ended, "", tf.gather(tf.constant(as_text), ids))
        text = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.strip(tf.strings.regex_replace(text, SPACE, " "))

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("MarianTokenizer.pieces", ids, self.vocab_size)
        return [self.vocab[index] for index in ids]

    def get_config(self) -> dict[str, Any]:
        protos = (self.proto, self.target_proto)
        encoded = [None if each is None else base64.b64encode(each).decode() for each in protos]
        vocabs = (self._learnt, self.target_vocab)
        vocabs = [None if each is None else list(each) for each in vocabs]
        names = ("proto", "target_proto", "vocab", "target_vocab")
        config = dict(zip(names, (*encoded, *vocabs), strict=True))
        return {**config, "added_tokens": write_added(self.added_tokens)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        decoded = {
            name: None if config[name] is None else base64.b64decode(config[name])
            for name in ("proto", "target_proto")
        }
        return cls(**{**config, **decoded})


def _hashed(pieces: Any) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(pieces, (1 << 63) - 1)


def _by_hash(vocab: Sequence[str]) -> tuple[Array, Array]:
    """Sorted hashes of the pieces, and the id of each: a table that is no resource of a graph."""
    hashes = _hashed(tf.constant(vocab)).numpy()
    order = hashes.argsort()
    hashes = hashes[order]
    if (hashes[1:] == hashes[:-1]).any():
        raise ValueError("MarianTokenizer: two pieces of `vocab` have one hash.")
    return hashes, order.astype("int32")
