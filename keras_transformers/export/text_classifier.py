"""SavedModels that say what class a raw text is of."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.core.types import Array, ClassProblem, Tokenizer
from keras_transformers.export.classes import Classes
from keras_transformers.export.convertible import Convertible
from keras_transformers.export.preprocessing_file import of_texts
from keras_transformers.export.programs import Program, text_program
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import LENGTHS, bounded, lengths_for, strings
from keras_transformers.generation.request import padding_of
from keras_transformers.text import framed


class TextClassifier(Convertible):
    """A trained encoder, its tokenizer and its class names as one function of raw text.

    It takes UTF-8 strings `(batch,)` and gives a dict of `label` string, `probability` float32 and
    `truncated` bool, each `(batch,)`, and `probabilities` float32 `(batch, classes)`; where a text
    can have several labels, also `present` bool `(batch, classes)`, and `label` is the most
    probable. For XLA texts are sorted by length and padded to a few lengths and batch sizes, each
    compiled when it is first met; what `save` writes can be called without XLA, see `Served`. The
    model's weights are shared, not copied.

    Args:
        model: A `models.TextEncoder` with `head="classification"`, or any model from ids `(batch,
            length)`, 0 = padding, to logits `(batch, classes)`.
        tokenizer: A `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`; the model sees
            START, the text's ids and END.
        labels: Names of the classes, one for each logit; two for a single logit, which is the
            second one's.
        lengths: Lengths in ids, START and END included, to which texts are padded; what exceeds the
            last is cut off, and said so in `truncated`. By default those of 32, 64, 128, 256 and
            512 for which the model has positions.
        problem_type: "single_label_classification" (probabilities sum to 1) or
            "multi_label_classification" (each label by itself); by default the model's, or the
            first. A single logit always is by itself.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, the tokenizer
            has ids that are none of the model's, the labels are not as many as the logits, or the
            model's `problem_type` is "regression".

    Example:
    >>> from keras_transformers.export import TextClassifier
    >>> from keras_transformers.models import TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = TextEncoder.from_variant("tiny", 14, head="classification", num_classes=2)
    >>> classifier = TextClassifier(model, tokenizer, ["cat", "dog"], lengths=(8,))
    >>> classifier.probabilities(["a cat", ""]).shape
    (2, 2)
    """

    kind = "text_classifier"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Sequence[int] | None = None,
        problem_type: ClassProblem | None = None,
    ) -> None:
        super().__init__("text_classifier", tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("TextClassifier", model, tokenizer, lengths, LENGTHS)
        width = model(tf.ones((1, 2), tf.int32), training=False).shape[-1]
        self._classes = Classes("TextClassifier", model, width, labels, problem_type)
        self._hold(model)
        self._tokenizer, self._padding = tokenizer, padding_of(model)
        self._labels = tf.constant(self._classes.names, tf.string)
        self._lengths = lengths

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer]:
        program = text_program(self._model, self._tokenizer, self.longest, self._classes)
        settings = of_texts(self._model, self._tokenizer, self.longest, labels=self.labels)
        return program, settings, self._tokenizer

    def _answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, cut = bounded(text, self._lengths[-1])
        ids, truncated = framed(self._tokenizer, text, self._lengths[-1])
        results = {"probabilities": tf.TensorSpec([None, len(self._labels)], tf.float32)}
        classify = rounds.program(self._classify)
        probabilities = rounds.run_by_length(
            lambda ids: classify(rounds.padded(ids, self._lengths, self._padding)), ids, results
        )["probabilities"]
        return self._classes.named_answer(probabilities) | {"truncated": truncated | cut}

    def _classify(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self._model(ids, training=False)
        return {"probabilities": self._classes.probabilities(logits)}

    def probabilities(self, texts: Sequence[str]) -> Array:
        """Class probabilities `(n, classes)`, NumPy float32, of a list of str."""
        return self(strings(texts))["probabilities"].numpy()
