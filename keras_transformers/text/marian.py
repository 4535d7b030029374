"""Marian's tokenizers in the TensorFlow graph: two languages, a vocabulary beside SentencePiece."""

import base64
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from keras_transformers.text.added_tokens import AddedToken
from keras_transformers.text.pieces import PieceTokenizer

CODE = r"(?s)^(>>.*?<<).*$"  # ">>fra<<" before a text names the language to translate to


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
        coded = tf.strings.regex_full_match(text, CODE)
        code = tf.strings.regex_replace(tf.boolean_mask(text, coded), CODE, r"\1")
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
