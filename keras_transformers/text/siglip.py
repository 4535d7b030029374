"""SentencePiece of texts without capitals and punctuation, as SigLIP reads them."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.annotations import Strings
from keras_transformers.text.added_tokens import AddedToken
from keras_transformers.text.cutting import SPACES, cut_out, escaped, valid
from keras_transformers.text.pieces import SPACE, PieceTokenizer

BLANKS = rf"{SPACES}\x1C-\x1F"  # what Python calls white space
PUNCTUATION = r"!-/:-@\[-`{-~"
UNKNOWN = "<unk>"


@keras.saving.register_keras_serializable("keras_transformers")
class SiglipTokenizer(PieceTokenizer):
    """Strings to the ids of SigLIP and back, inside `tf.data` and SavedModels.

    Text is made lower-case, ASCII's punctuation left out and white space made one space, as while
    training (Zhai et al. 2023, https://arxiv.org/abs/2303.15343, in the code of big_vision); then
    SentencePiece cuts it. The ids are those of Hugging Face's `SiglipTokenizer`. There is no START,
    and what fills a text is END.

    Args:
        proto: The bytes of the SentencePiece model, `spiece.model`.
        vocab: The pieces in the order of their ids, `</s>`, `<unk>` and `<pad>` among them.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written.
        lower_case: Whether text is made lower-case.

    Raises:
        ValueError: If a special piece is missing, or a piece is there twice.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> from keras_transformers.text import SentencePieceTokenizer, SiglipTokenizer
    >>> trained = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> tokenizer = SiglipTokenizer(trained.proto, trained.pieces(range(14)))
    >>> tokenizer.pieces(tokenizer.tokenize("A cat!", end=True).numpy())
    ['▁', 'a', '▁', 'c', 'at', '</s>']
    """

    marks = ()

    def __init__(
        self,
        proto: bytes,
        vocab: Sequence[str],
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        lower_case: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(proto, vocab, added_tokens, name=name)
        self.lower_case = lower_case
        self.pad_id = self.end_id
        marks = "|".join(escaped(each) for each in sorted(self._special, key=len, reverse=True))
        # A space of its own that would stand before a mark.
        self._before_mark = rf"^{SPACE}[{BLANKS}{PUNCTUATION}]*?({marks})" if marks else None
        alone = self._model.pieces(tf.constant([UNKNOWN]))
        self._pieces_of_unknown = int(alone.row_lengths()[0])

    @property
    def start_id(self) -> None:  # type: ignore[override]
        """None: no text has a START."""
        return None

    @property
    def text_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after a text."""
        return (), (self.end_id,)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """As `PieceTokenizer.tokenize`; there is no START, and no second END behind one."""
        if start:
            raise ValueError("SiglipTokenizer.tokenize: `start` must be False, for there is none.")
        strings = tf.convert_to_tensor(strings, tf.string)
        text = valid(tf.reshape(strings, [-1]))
        text = tf.strings.join([SPACE, tf.strings.regex_replace(text, SPACE, " ")])
        if self._before_mark is not None:
            text = tf.strings.regex_replace(text, self._before_mark, r"\1")
        ids = super().tokenize(text, sample=sample)
        if end:
            ids = tf.concat(
                [self._without_end(ids), tf.fill([ids.nrows(), 1], self.end_id)], axis=1
            )
        return ids if strings.shape.rank else ids[0]

    def _without_end(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Rows without END, where they end with one."""
        lasts = tf.gather(ids.row_limits(), ids.value_rowids()) - 1
        number = tf.range(tf.size(ids.values, lasts.dtype))
        ends = (number == lasts) & (ids.values == self.end_id)
        return tf.ragged.boolean_mask(ids, ids.with_values(~ends))

    def _ids_of_text(self, text: tf.Tensor, sample: float | None) -> tf.RaggedTensor:
        text = _lower(text) if self.lower_case else text
        text = tf.strings.regex_replace(text, f"[{PUNCTUATION}]", "")
        text = tf.strings.regex_replace(text, f"[{BLANKS}]+", " ")
        text = tf.strings.regex_replace(text, "^ | $", "")
        # Behind other pieces the first space is kept.
        pieces = self._model.pieces(tf.strings.join([UNKNOWN, text]), sample)
        return self._ids(pieces[:, self._pieces_of_unknown :])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["languages"]
        return {**config, "lower_case": self.lower_case}


def _lower(text: tf.Tensor) -> tf.Tensor:
    """Text in lower case; by itself TensorFlow would end it at a zero."""
    parts = cut_out(text, r"\x00")
    flat = tf.where(parts.values == "\x00", parts.values, tf.strings.lower(parts.values, "utf-8"))
    return tf.strings.reduce_join(parts.with_values(flat), 1)
