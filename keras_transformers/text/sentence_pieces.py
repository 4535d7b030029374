"""A SentencePiece model, run by tensorflow-text in the graph, or by `sentencepiece`."""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.text.host import has_ops, joined, package, ragged


class SentencePieces:
    """Strings to pieces and back.

    Args:
        owner: Name of the class that uses it, for messages.
        proto: The bytes of the model.
    """

    def __init__(self, owner: str, proto: bytes) -> None:
        self._owner, self._proto = owner, proto

    def _op(self, dtype: Any = tf.int32, sample: float | None = None) -> Any:
        """The tensorflow-text op, made anew wherever it is used.

        One made beforehand would hold a resource that dies when TensorFlow clears its caches, as
        `keras.utils.set_random_seed` makes it do. Inside a graph the model becomes a part of it.
        """
        import tensorflow_text as tf_text  # only who tokenizes needs it

        sampling = {} if sample is None else {"nbest_size": -1, "alpha": float(sample)}
        return tf_text.SentencepieceTokenizer(self._proto, out_type=dtype, **sampling)

    @functools.cached_property
    def _model(self) -> Any:
        """The model of the package."""
        sentencepiece = package(self._owner, "sentencepiece")
        return sentencepiece.SentencePieceProcessor(model_proto=self._proto)

    @property
    def size(self) -> int:
        """Number of pieces."""
        return int(self._op().vocab_size()) if has_ops() else self._model.get_piece_size()

    def numbers(self, pieces: Iterable[str]) -> list[int]:
        """Ids of pieces."""
        if has_ops():
            return self._op().string_to_id(tf.constant(list(pieces))).numpy().tolist()
        return [self._model.piece_to_id(piece) for piece in pieces]

    def names(self, ids: Iterable[int]) -> list[str]:
        """Pieces of ids."""
        if has_ops():
            found = self._op().id_to_string(tf.constant(list(ids), tf.int32))
            return [piece.decode() for piece in found.numpy()]
        return [self._model.id_to_piece(int(each)) for each in ids]

    def controls(
        self, pattern: re.Pattern[str], pieces: Sequence[str], first: int
    ) -> dict[str, int]:
        """Piece -> id of pieces that fit a pattern and that no text becomes; ids from `first`."""
        named = ((piece, n) for n, piece in enumerate(pieces, first) if pattern.fullmatch(piece))
        return {piece: number for piece, number in named if self._model.is_control(number)}

    def ids(self, strings: tf.Tensor, sample: float | None = None) -> tf.RaggedTensor:
        """Ids `(n, None)` of strings `(n,)`; `sample` as in `SentencePieceTokenizer.tokenize`."""
        if has_ops():
            return self._op(sample=sample).tokenize(strings)
        return ragged(lambda texts: self._cut(texts, int, sample), strings)

    def _cut(self, texts: list[str], out_type: type, sample: float | None) -> Any:
        sampling: dict[str, Any] = {}
        if sample is not None:
            sampling = {"enable_sampling": True, "nbest_size": -1, "alpha": float(sample)}
        return self._model.encode(texts, out_type=out_type, **sampling)

    def pieces(self, strings: tf.Tensor, sample: float | None = None) -> tf.RaggedTensor:
        """Pieces `(n, None)`, strings, of strings `(n,)`; unknown characters as they are."""
        if has_ops():
            return self._op(tf.string, sample).tokenize(strings)
        return ragged(lambda texts: self._cut(texts, str, sample), strings, tf.string)

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)` of ids `(n, None)`."""
        if has_ops():
            return self._op().detokenize(ids)
        return joined(lambda rows: [self._model.decode(row) for row in rows], ids)
