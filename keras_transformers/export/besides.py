"""What a translator does besides translating: the functions of its further signatures."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.export.piece_names import PieceNames
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import bounded
from keras_transformers.generation.request import most_tokens
from keras_transformers.text.frames import cutter_of_targets, in_marks


class Besides(tf.Module):
    """A function of texts that uses a `Translator`; a subclass has `_answer(*inputs, rounds=)`.

    Args:
        name: What it is, for TensorFlow.
        translator: The `Translator`, whose model, tokenizer, search and programs are used.
        inputs: `tf.TensorSpec` of each input.

    Attributes:
        compiled: The function, by XLA.
        portable: The function, by TensorFlow's own kernels, as SavedModels have it.
    """

    def __init__(self, name: str, translator: Any, inputs: Sequence[tf.TensorSpec]) -> None:
        super().__init__(name=name)
        self._translator_of = lambda: translator
        self._tokenizer = cutter_of_targets(translator._tokenizer)
        self._pieces = PieceNames(self._tokenizer)
        compiled = self._traced(translator._rounds, inputs)
        self._compiled_of = lambda: compiled  # out of TensorFlow's sight, which would save it
        self.portable = self._traced(translator._portable_rounds, inputs)

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
        translator = self._translator_of()
        sources = translator._lengths
        limits = {*map(most_tokens, sources), *map(translator.most_tokens, sources)}
        lengths = [each + len(before) for each in sorted(limits)]
        texts, shortened = bounded(texts, lengths[-1])
        ids = self._tokenizer.tokenize(texts)
        room = lengths[-1] - len(before) - len(after)
        targets = in_marks(ids[:, :room], (before, after))
        return targets, (ids.row_lengths() > room) | shortened, lengths

    def _answer(self, *given: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        raise NotImplementedError
