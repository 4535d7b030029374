"""SentencePiece with the ids of fairseq's dictionaries, in the TensorFlow graph."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.text.added_tokens import AddedToken
from keras_transformers.text.pieces import SPACE, PieceTokenizer
from keras_transformers.text.sentence_pieces import SentencePieces

MARKS = ("<s>", "<pad>", "</s>", "<unk>")
FIRST = ("<unk>", "<s>", "</s>")  # pieces 0, 1, 2 of the SentencePiece model
MASK = "<mask>"


@keras.saving.register_keras_serializable("keras_transformers")
class FairseqTokenizer(PieceTokenizer):
    """Strings to the ids of XLM-R and back, inside `tf.data` and SavedModels.

    Ids: 0 `<s>`, 1 `<pad>`, 2 `</s>`, 3 `<unk>`, then the pieces of a SentencePiece model but for
    its first three, each one more than the model itself says, then the added tokens, of which the
    first is `<mask>` (Conneau et al. 2020, https://arxiv.org/abs/1911.02116, and fairseq, with
    which it was trained). The ids are those of Hugging Face's `XLMRobertaTokenizer`.

    Args:
        proto: The bytes of the SentencePiece model, `sentencepiece.bpe.model`.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written, beside the marks. They get the ids behind the pieces.

    Raises:
        ValueError: If the first three pieces are others than `<unk>`, `<s>` and `</s>`, or another
            piece is one of the marks.

    Example: made by `keras_transformers.pretrained.load_tokenizer`.
    >>> import io, sentencepiece
    >>> from keras_transformers.text import AddedToken, FairseqTokenizer
    >>> file, lines = io.BytesIO(), ["a cat sat on a mat"] * 9
    >>> sentencepiece.SentencePieceTrainer.train(
    ...     sentence_iterator=iter(lines), model_writer=file, vocab_size=13, minloglevel=2)
    >>> mask = AddedToken("<mask>", special=True)
    >>> tokenizer = FairseqTokenizer(file.getvalue(), [mask])
    >>> ids = tokenizer.tokenize(["a cat", "<mask>"], start=True, end=True)
    >>> ids[1].numpy().tolist(), [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ([0, 14, 2], ['a cat', ''])
    """

    marks = MARKS

    def __init__(
        self,
        proto: bytes,
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        name: str | None = None,
    ) -> None:
        model = SentencePieces("FairseqTokenizer", bytes(proto))
        learnt = tuple(model.names(range(model.size)))
        if learnt[:3] != FIRST or {*MARKS} & {*learnt[3:]}:
            raise ValueError(
                f"FairseqTokenizer: the first pieces of the model must be {', '.join(FIRST)}, and "
                f"no other one of {', '.join(MARKS)}. Received: {', '.join(learnt[:4])} ..."
            )
        super().__init__(proto, (*MARKS, *learnt[3:]), added_tokens, name=name)
        numbers = {piece: number for number, piece in enumerate(self.vocab)}
        self.mask_id = numbers.get(MASK)
        self.special_ids = tuple(sorted(numbers[piece] for piece in self._special))

    @property
    def start_id(self) -> int:
        """`<s>`, which stands in front of every text."""
        return 0

    @property
    def pair_marks(self) -> tuple[tuple[int, ...], ...]:
        """Ids before the first of a pair of texts, between the two, and after the second."""
        return (self.start_id,), (self.end_id, self.end_id), (self.end_id,)

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word; marks and added tokens do."""
        marks = {*MARKS, *(token.content for token in self.added_tokens)}
        return np.array([piece.startswith(SPACE) or piece in marks for piece in self.vocab])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {name: config[name] for name in ("proto", "added_tokens")}
