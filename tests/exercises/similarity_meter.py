"""An exercise: a task of one's own, how similar two texts are; CONTRIBUTING.md, "Add a task"."""

import numpy as np
import tensorflow as tf

from keras_transformers.generation.request import padding_of
from keras_transformers.tasks.fitting import Answering
from keras_transformers.tasks.predictor import received
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.served import LENGTHS, Served, lengths_for
from keras_transformers.tasks.text_predictor import TextPredictor


class SimilarityMeter(Served):
    """An encoder and its tokenizer as one function from pairs of texts to their similarity.

    It takes strings `(batch, 2)`, and returns a dict of `similarity`, float32 `(batch,)`, the
    cosine of the mean vectors of both texts; and `truncated`, bool `(batch,)`.
    """

    kind = "similarity_meter"

    def __init__(self, model, tokenizer, lengths=None):
        request = tf.TensorSpec([None, 2], tf.string, name="texts")
        super().__init__("similarity_meter", model, request)
        self.tokenizer, self.padding = tokenizer, padding_of(model)
        self.lengths = lengths_for("SimilarityMeter", model, tokenizer, lengths, LENGTHS)
        self._width = model(tf.ones((1, 2), tf.int32), training=False).shape[-1]

    def answer(self, texts, rounds):
        results = {"vector": tf.TensorSpec([None, self._width], tf.float32)}
        first, second = (self.run_texts(texts[:, i], rounds, self._encode, results) for i in (0, 1))
        return {
            "similarity": tf.reduce_sum(first["vector"] * second["vector"], axis=1),
            "truncated": first["truncated"] | second["truncated"],
        }

    def _encode(self, ids):
        is_real = tf.cast(ids != self.padding, tf.float32)[..., None]
        total = tf.reduce_sum(self.model(ids, training=False) * is_real, axis=1)
        return {"vector": tf.math.l2_normalize(total, axis=-1)}


class SimilarityPredictor(TextPredictor):
    """Says how similar two texts are: a float from -1 to 1 for each pair."""

    kind = "similarity_meter"
    takes = "texts"

    def _is_one(self, raw):
        is_pair = isinstance(raw, tuple | list) and len(raw) == 2
        return is_pair and all(isinstance(text, str | bytes) for text in raw)

    def _encoded(self, item):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"must be a pair of texts. {received(item)}")
        return [super(SimilarityPredictor, self)._encoded(text) for text in item]

    def _answer(self, row, details):
        similarity = float(row["similarity"])
        if not details:
            return similarity
        return {"similarity": similarity, "truncated": bool(row["truncated"])}


class SimilarityFitting(Answering):
    """A model that says how similar texts are, and is scored on pairs with known similarity."""

    kind = "similarity_meter"

    def served(self):
        return SimilarityMeter(self.held.model, self.held.tokenizer, **self.held.options)

    def evaluate(self, data, columns=None):
        """Returns the correlation with `(text, text, similarity)` rows."""
        rows = list(data)
        expected = [similarity for _, _, similarity in rows]
        answers = SimilarityPredictor(self.served()).predict([row[:2] for row in rows])
        return {"correlation": float(np.corrcoef(answers, expected)[0, 1]), "rows": len(rows)}


TASKS = (Task(SimilarityMeter, SimilarityPredictor, SimilarityFitting, output="similarity"),)
