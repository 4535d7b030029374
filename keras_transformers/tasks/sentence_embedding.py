"""Sentence embedding: a vector for a raw text."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, Unpack

import keras
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import Array, StrPath, Tokenizer
from keras_transformers.data.table_files import Chosen
from keras_transformers.generation.request import padding_of
from keras_transformers.models import TextEncoder
from keras_transformers.models.text_heads import pooled_tokens
from keras_transformers.tasks import served
from keras_transformers.tasks.conversion import Program, id_program, text_settings
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.predictor_folder import Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import (
    Conversion,
    Convertible,
    lengths_for,
    lengths_within,
    strings,
)
from keras_transformers.tasks.text_classification import TextClassifierFitting
from keras_transformers.tasks.text_predictor import TextPredictor

LENGTHS = (32, 64, 128, 256)  # in ids, by default


class SentenceEncoder(Convertible):
    """An encoder and its tokenizer as one function from raw text to vectors to compare.

    The vector of a text is the mean of the vectors of its tokens, or the vector of the first token.
    On request it has length 1, so that products are cosines (Reimers & Gurevych 2019,
    "Sentence-BERT", https://arxiv.org/abs/1908.10084, section 3). The function takes UTF-8 strings
    `(batch,)` and gives a dict of `embedding` float32 `(batch, hidden_dim)` and `truncated` bool
    `(batch,)`. For XLA texts are sorted by length and padded to a few lengths and batch sizes, each
    compiled when it is first used; the SavedModel that `save` writes can be called without XLA, see
    `Served`. The model's weights are shared, not copied.

    Args:
        model: A `models.TextEncoder` without a head, or any model from ids `(batch, length)` to
            `(batch, length, hidden_dim)`; its `padding_id`, or 0, fills shorter rows.
        tokenizer: A `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`; the model sees
            START, the text's ids and END.
        pooling: "mean" or "token".
        normalize: Whether vectors are scaled to length 1.
        lengths: Lengths in ids, START and END included, to which texts are padded; a longer text is
            cut, and `truncated` tells so. By default those of 32, 64, 128 and 256 for which the
            model has positions.
        prompt: Text that is put in front of every text, for instance "query: ", if a published
            model was trained so.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, the tokenizer
            has ids that the model does not know, `pooling` is unknown, or the model gives no vector
            for each token.

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
        super().__init__("sentence_encoder", model, tf.TensorSpec([None], tf.string, name="text"))
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
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.lengths = lengths
        self._width = shape[-1]
        self._pooling = pooling
        self._normalize = normalize
        self._prompt = prompt

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer]:
        if self._prompt:
            raise ValueError(
                'SentenceEncoder: with `format` other than "saved_model", `prompt` must be "", for '
                f"ids go in, which have it already. Received: {self._prompt!r}"
            )
        program = sentence_program(
            self.model, self.tokenizer, self.longest, self._pooling, self._normalize
        )
        settings = text_settings(
            self.model,
            self.tokenizer,
            self.longest,
            pooling=self._pooling,
            normalized=self._normalize,
        )
        return program, settings, self.tokenizer

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        results = {"embedding": tf.TensorSpec([None, self._width], tf.float32)}
        return self.run_texts(self._prompt + text, rounds, self._encode, results)

    def _encode(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        x = self.model(ids, training=False)
        return vectors(ids, x, self._pooling, self._normalize, self.padding)

    def encode(self, texts: Sequence[str]) -> Array:
        """Encodes a list of str to vectors `(n, hidden_dim)`, NumPy float32."""
        return self(strings(texts))["embedding"].numpy()


def sentence_encoder(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    pooling: Literal["mean", "token"] = "mean",
    normalize: bool = True,
    lengths: Sequence[int] | None = None,
    prompt: str = "",
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports an encoder from raw text to vectors. See `SentenceEncoder` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.TextEncoder.from_variant("tiny", 14)
    >>> path = export.sentence_encoder(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['embedding', 'truncated']
    """
    encoder = SentenceEncoder(model, tokenizer, pooling, normalize, lengths, prompt)
    return encoder.save(path, **saving)


def sentence_program(
    model: Any,
    tokenizer: Tokenizer,
    longest: int,
    pooling: Literal["mean", "token"],
    normalize: bool,
) -> Program:
    """Returns the program from ids, with marks and padding, to one vector for each text."""
    answer = functools.partial(
        vectors, pooling=pooling, normalize=normalize, padding=padding_of(model)
    )
    return id_program("sentence_encoder", model, tokenizer, longest, answer, "embedding")


def vectors(
    ids: tf.Tensor, x: tf.Tensor, pooling: Literal["mean", "token"], normalize: bool, padding: int
) -> dict[str, tf.Tensor]:
    """Returns one vector for each row of `x` `(batch, length, hidden_dim)`, without padding."""
    embedding = tf.cast(pooled_tokens(x, ids != padding, pooling), tf.float32)
    if normalize:
        embedding = tf.math.l2_normalize(embedding, axis=-1)
    return {"embedding": embedding}


class SentenceEncoderPredictor(TextPredictor):
    """Gives a vector for a text: a list of floats.

    With `details` it gives a dict with `embedding` and `truncated`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import SentenceEncoderPredictor
    >>> encode = lambda text: {"embedding": tf.ones((len(text), 2))}
    >>> SentenceEncoderPredictor(encode).predict("to be")
    [1.0, 1.0]
    """

    kind = "sentence_encoder"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        vector = row["embedding"].tolist()
        return {"embedding": vector, "truncated": bool(row["truncated"])} if details else vector


class EncoderFitting(TextClassifierFitting):
    """An encoder of sentences, which answers with vectors and learns classes.

    Example:
    >>> from keras_transformers.fitting import EncoderFitting
    >>> EncoderFitting.kind
    'sentence_encoder'
    """

    kind = "sentence_encoder"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        if not isinstance(model, TextEncoder) or model.head is not None:
            return None
        options = pretrained.load_pooling(published.folder)
        options["lengths"] = lengths_within(model, options.get("lengths", served.LENGTHS))
        return cls(published.read_text_model(options))

    def served(self) -> Any:
        return SentenceEncoder(self.held.model, self.held.tokenizer, **self.held.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        raise ValueError(
            "evaluate: an encoder of sentences has no classes to be right or wrong about; "
            "`fit` gives it some."
        )


TASKS = (Task(SentenceEncoder, SentenceEncoderPredictor, EncoderFitting, output="embedding"),)
