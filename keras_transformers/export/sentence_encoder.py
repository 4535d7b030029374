"""SavedModels that give a vector for a raw text."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from keras_transformers.core.types import Array, Tokenizer
from keras_transformers.export.convertible import Convertible
from keras_transformers.export.preprocessing_file import of_texts
from keras_transformers.export.programs import Program, sentence_program, vectors
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import bounded, lengths_for, strings
from keras_transformers.generation.request import padding_of
from keras_transformers.text import framed

LENGTHS = (32, 64, 128, 256)  # in ids, where nothing else is said


class SentenceEncoder(Convertible):
    """An encoder and its tokenizer as one function from raw text to vectors to compare.

    The vector of a text is the mean of its tokens' (or its first token's), of length 1 on request,
    so that products are cosines (Reimers & Gurevych 2019, "Sentence-BERT",
    https://arxiv.org/abs/1908.10084, section 3). It takes UTF-8 strings `(batch,)` and gives a dict
    of `embedding` float32 `(batch, hidden_dim)` and `truncated` bool `(batch,)`. For XLA texts are
    sorted by length and padded to a few lengths and batch sizes, each compiled when it is first
    met; what `save` writes can be called without XLA, see `Served`. The model's weights are shared,
    not copied.

    Args:
        model: A `models.TextEncoder` without a head, or any model from ids `(batch, length)` to
            `(batch, length, hidden_dim)`; its `padding_id`, or 0, fills shorter rows.
        tokenizer: A `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`; the model sees
            START, the text's ids and END.
        pooling: "mean" or "token".
        normalize: Whether vectors are made of length 1.
        lengths: Lengths in ids, START and END included, to which texts are padded; what exceeds the
            last is cut off, and said so in `truncated`. By default those of 32, 64, 128 and 256
            for which the model has positions.
        prompt: What is put in front of every text, for instance "query: ", where a published model
            was trained so.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, the tokenizer
            has ids that are none of the model's, `pooling` is unknown, or the model gives no
            vector for each token.

    Example:
    >>> from keras_transformers.export import SentenceEncoder
    >>> from keras_transformers.models import TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> encoder = SentenceEncoder(TextEncoder.from_variant("tiny", 14), tokenizer, lengths=(8,))
    >>> encoder.encode(["a cat", ""]).shape
    (2, 128)
    """

    kind = "sentence_encoder"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        pooling: Literal["mean", "token"] = "mean",
        normalize: bool = True,
        lengths: Sequence[int] | None = None,
        prompt: str = "",
    ) -> None:
        super().__init__("sentence_encoder", tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("SentenceEncoder", model, tokenizer, lengths, LENGTHS)
        if pooling not in ("mean", "token"):
            raise ValueError(
                f'SentenceEncoder: `pooling` must be "mean" or "token". Received: {pooling!r}'
            )
        shape = model(tf.ones((1, 2), tf.int32), training=False).shape
        if len(shape) != 3:
            raise ValueError(
                "SentenceEncoder: `model` must give a vector for each token; leave its head out. "
                f"Received: output of shape {tuple(shape)}"
            )
        self._hold(model)
        self._tokenizer, self._padding = tokenizer, padding_of(model)
        self._lengths, self._width = lengths, shape[-1]
        self._pooling, self._normalize, self._prompt = pooling, normalize, prompt

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer]:
        if self._prompt:
            raise ValueError(
                'SentenceEncoder: with `format` other than "saved_model", `prompt` must be "", for '
                f"ids go in, which have it already. Received: {self._prompt!r}"
            )
        options = (self._pooling, self._normalize)
        program = sentence_program(self._model, self._tokenizer, self.longest, *options)
        settings = of_texts(
            self._model,
            self._tokenizer,
            self.longest,
            pooling=self._pooling,
            normalized=self._normalize,
        )
        return program, settings, self._tokenizer

    def _answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, cut = bounded(self._prompt + text, self._lengths[-1])
        ids, truncated = framed(self._tokenizer, text, self._lengths[-1])
        results = {"embedding": tf.TensorSpec([None, self._width], tf.float32)}
        encode = rounds.program(self._encode)
        found = rounds.run_by_length(
            lambda ids: encode(rounds.padded(ids, self._lengths, self._padding)), ids, results
        )
        return {**found, "truncated": truncated | cut}

    def _encode(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        x = self._model(ids, training=False)
        return vectors(ids, x, self._pooling, self._normalize, self._padding)

    def encode(self, texts: Sequence[str]) -> Array:
        """Vectors `(n, hidden_dim)`, NumPy float32, of a list of str."""
        return self(strings(texts))["embedding"].numpy()
