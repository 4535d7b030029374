"""The functions of further signatures: what an exporter of text does besides writing it."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.export.piece_names import PieceNames
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import bounded
from keras_transformers.generation.request import most_tokens
from keras_transformers.text.tokenizers import cutter_of_targets, in_marks


class Besides(tf.Module):
    """A function of texts that uses an exporter; a subclass has `_answer(*inputs, rounds=)`.

    Args:
        name: Name of the function, for TensorFlow.
        exporter: `Translator` or `TextGenerator`, whose model, tokenizer, search and programs are
            used.
        inputs: `tf.TensorSpec` of each input.

    Attributes:
        compiled: The function, by XLA.
        portable: The function, by TensorFlow's own kernels, as SavedModels have it.
    """

    def __init__(self, name: str, exporter: Any, inputs: Sequence[tf.TensorSpec]) -> None:
        super().__init__(name=name)
        self._exporter_of = lambda: exporter
        self._tokenizer = cutter_of_targets(exporter._tokenizer)
        self._pieces = PieceNames(self._tokenizer)
        compiled = self._traced(exporter._rounds, inputs)
        self._compiled_of = lambda: compiled  # out of TensorFlow's sight, which would save it
        self.portable = self._traced(exporter._portable_rounds, inputs)

    @property
    def _exporter(self) -> Any:
        return self._exporter_of()

    @property
    def compiled(self) -> Any:
        return self._compiled_of()

    def _traced(self, rounds: Rounds, inputs: Sequence[tf.TensorSpec]) -> Any:
        def answer(*given: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._answer(*given, rounds=rounds)

        return tf.function(answer, input_signature=tuple(inputs), autograph=False)

    def _targets(
        self, texts: tf.Tensor, before: tuple[int, ...], after: tuple[int, ...] = ()
    ) -> tuple[tf.RaggedTensor, tf.Tensor, list[int]]:
        """Ids of translations between marks, which of them are cut, and lengths to pad them to."""
        translator = self._exporter
        sources = translator._lengths
        limits = {*map(most_tokens, sources), *map(translator.most_tokens, sources)}
        lengths = [each + len(before) for each in sorted(limits)]
        texts, shortened = bounded(texts, lengths[-1])
        ids = self._tokenizer.tokenize(texts)
        room = lengths[-1] - len(before) - len(after)
        targets = in_marks(ids[:, :room], (before, after))
        return targets, (ids.row_lengths() > room) | shortened, lengths

    def _token_scores(
        self, ids: tf.Tensor, values: tf.Tensor, counts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the pieces of tokens, their log-probabilities and the sums of these.

        Args:
            ids: int32 `(..., length)`.
            values: Log-probabilities, float32 `(..., length)`.
            counts: Tokens that count, from the first on, bool `(..., length)`.

        Returns:
            Dict of `tokens` and `log_probabilities`, `(..., longest)`, "" and 0 behind the last of
            each row, and `log_probability` `(...)`.
        """
        numbers = tf.reduce_sum(tf.cast(counts, tf.int32), axis=-1)
        longest = tf.maximum(tf.reduce_max(numbers), 0)  # of no row it is the least integer
        counts, values = counts[..., :longest], tf.where(counts, values, 0.0)[..., :longest]
        pieces = self._pieces(tf.where(counts, ids[..., :longest], 0))
        return {
            "tokens": tf.where(counts, pieces, ""),
            "log_probabilities": values,
            "log_probability": tf.reduce_sum(values, axis=-1),
        }

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        raise NotImplementedError
